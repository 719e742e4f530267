"""Look at a model while it translates: make an `Inspection`. Shapes as in inspection.py."""

import torch
from torch import Tensor

from dragoman.alignment.words import fill_gaps, subwords, token_label, words
from dragoman.config.fields import CountOrZero, check_argument
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.forced import max_positions
from dragoman.errors import UsageError
from dragoman.inspection.inspection import Alternative, Inspection, Position, Sentence
from dragoman.inspection.tree import BeamTree, Recording
from dragoman.model import Model
from dragoman.model.capture import AttentionCapture, AttentionKind
from dragoman.translation.translator import Translator
from dragoman.version import __version__


def inspect(
    translator: Translator,
    text: str,
    translation: str | None = None,
    *,
    prefix: str = "",
    tag: str = "",
    alternatives: int = 5,
    name: str = "",
) -> Inspection:
    """Return what the model does while it translates `text` into `translation`, by default its own translation.

    prefix: how the search's translation begins; tag: as for `Translator.translate`; alternatives: how many for each
    position; name: of the model, as captions show it. Of an ensemble, the first model is inspected. The model is not
    changed, so others may use it meanwhile. Raise UsageError for a text that is blank or longer than the model takes.
    """
    if not isinstance(translator, Translator) or not isinstance(text, str):
        given = f"{type(translator).__name__} and {type(text).__name__}"
        raise UsageError(f"inspect takes a Translator and a string, not {given}")
    for argument, value in (("translation", translation), ("prefix", prefix), ("tag", tag)):
        check_argument(argument, value, str | None)
    check_argument("alternatives", alternatives, CountOrZero)
    model, tokenizers = translator.model, translator.tokenizers
    if not text.strip():
        raise UsageError("there is no text to inspect")
    if prefix and translation is not None:
        raise UsageError("a prefix is for a search: give it, or a translation, not both")
    source, given = tokenizers.source.encode(text, tag or translator.tag), translator.target_tag_ids
    if len(source) > translator.max_source_tokens:
        raise UsageError(
            f"the text has {len(source)} tokens; an inspection takes at most {translator.max_source_tokens}"
        )
    tree = None
    if translation is None:
        whole, tree = search_and_record(translator, source, tokenizers.target.encode(prefix) if prefix else [])
        target = whole[len(given) :]
    else:
        target = tokenizers.target.encode(translation)
    if len(given) + len(target) >= max_positions(model):
        fewer = max_positions(model) - len(given)
        raise UsageError(f"the translation has {len(target)} tokens; an inspection takes fewer than {fewer}")
    maps, log_p = run_forced(model, source, [*given, *target])
    maps, log_p = without_tag(maps, len(given)), log_p[len(given) :]
    return Inspection(
        model=name or type(model).__name__,
        version=__version__,
        source=build_sentence(tokenizers.source, source),
        target=build_sentence(tokenizers.target, target),
        **maps,
        positions=describe_positions(tokenizers.target, [*target, EOS], log_p, alternatives),
        tree=tree,
        alignment=translator.alignment,
        target_tag=given,
    )


def search_and_record(translator: Translator, source: Ids, prefix: Ids) -> tuple[Ids, BeamTree | None]:
    """Return the translation of a source as ids, and the tree of the search if it is of a kind that can be recorded."""
    constraints = Constraints(tuple(prefix), tag=tuple(translator.target_tag_ids))
    recording = Recording(translator.engine, translator.tokenizers.target, constraints)
    (hypothesis,) = translator.replace(engine=recording).search_ids([source])
    return hypothesis.tokens, recording.tree(hypothesis)


@torch.no_grad()
def run_forced(model: Model, source: Ids, target: Ids) -> tuple[dict[AttentionKind, Tensor], Tensor]:
    """Run the model once with a given target (forced decoding), both sides as ids without EOS.

    Return the weights (L, H, queries, keys) of each kind of attention, and the log-probabilities (T, V), all on the
    CPU.
    """
    capture, device = AttentionCapture(model), next(model.parameters()).device
    vectors = capture.run(*(torch.tensor([ids], device=device) for ids in ([*source, EOS], [BOS, *target])))
    keys = {"encoder": len(source) + 1, "decoder": len(target) + 1, "cross": len(source) + 1}
    queries = {**keys, "cross": len(target) + 1}
    maps = {
        kind: torch.cat(layers).float().cpu() if layers else torch.empty(0, 0, queries[kind], keys[kind])
        for kind, layers in capture.weights.items()
    }
    return maps, capture.model.output(vectors).float().log_softmax(-1).cpu()


def without_tag(maps: dict[AttentionKind, Tensor], tag: int) -> dict[AttentionKind, Tensor]:
    """Return the maps (L, H, queries, keys) without the positions at which the first `tag` target tokens are predicted.

    What the decoder attends to when it reads them counts as attention to BOS, so that each row still sums to 1.
    """
    decoder = maps["decoder"][:, :, tag:]
    decoder = torch.cat([decoder[..., : tag + 1].sum(-1, keepdim=True), decoder[..., tag + 1 :]], -1)
    return {**maps, "decoder": decoder, "cross": maps["cross"][:, :, tag:]}


def build_sentence(tokenizer: SideTokenizer, ids: Ids) -> Sentence:
    """Return the sentence with these ids, which have no EOS; it is added to its tokens and words."""
    tokens, spelled = (fill_gaps(split(tokenizer, ids), tokenizer, ids) for split in (subwords, words))
    return Sentence(tokenizer.decode(ids), ids, tokens, spelled)


def describe_positions(tokenizer: SideTokenizer, target: Ids, log_p: Tensor, alternatives: int) -> tuple[Position, ...]:
    """Describe each position of a target with EOS; log_p (T, V); alternatives: how many tokens each names."""
    p, of_target = log_p.exp(), log_p.gather(1, torch.tensor(target)[:, None])
    entropy, rank = torch.special.entr(p).sum(-1), 1 + (log_p > of_target).sum(-1)
    best = log_p.topk(min(alternatives, log_p.size(1))).indices.tolist()
    return tuple(
        Position(
            token,
            token_label(tokenizer, token),
            float(p[t, token]),
            int(rank[t]),
            float(entropy[t]),
            tuple(Alternative(other, token_label(tokenizer, other), float(p[t, other])) for other in best[t]),
        )
        for t, token in enumerate(target)
    )
