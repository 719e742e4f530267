"""CTranslate2, the fast engine for processors: copies of our models in its format, and the search with it.

A model is converted once. The copy lies in `.ctranslate2` beside the model folder, or in the user's cache where nothing
can be written there, and it is kept only if it gave the same words as the model itself.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import math
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, search_batches
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.decoding.torch_engine import SEARCH_TOKENS, TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.files import MANIFEST, fingerprint, new_folder
from dragoman.interop.conversion import convert, library
from dragoman.model import Model
from dragoman.model_folder import find_model, read_model, verify

FORMAT = 1  # another number: all models are converted anew
VOCABULARY = "shared_vocabulary.json"
FILES = ("config.json", "model.bin", VOCABULARY)
CACHE = ".ctranslate2"

# CTranslate2's own length penalty is another one than ours: hypotheses are ranked here. With 0 it would stop at the
# first hypothesis that ends ahead of the others.
NO_PENALTY = 1e-9
# Without patience in the settings, native search goes on until nothing can overtake the best. CTranslate2 can only
# count what is finished: with this patience the best is hardly ever another one, with 1 for up to four in a hundred
# sentences (alpha 0.6).
PATIENCE = 1.5

IMPOSSIBLE = -1e9  # nats: as improbable is what CTranslate2 fills up a list of hypotheses with

# Settings that this engine honours, and those that matter only with others that it refuses.
HONOURED = {"beam", "length_penalty", "extra_length", "min_length", "n_best", "patience", "no_repeat_ngram"}
IDLE = {"diversity_penalty", "top_k", "top_p", "seed"}
HONOURED_DEMANDS = {"prefix", "forbidden"}

# Tokens with padding, as many as are fastest: of the sources of a search, and of the outputs that are given scores.
SEARCHED, SCORED = 2048, 256

SAMPLES, SAMPLE_LENGTH = 16, 16  # made-up sources that a new copy has to translate as the model does
TIE = 1e-3  # nats for each token: less than this is rounding


# The cache


def cached(folder: Path, compute_type: str, sample: Sequence[Ids]) -> Path:
    """The model of a model folder as CTranslate2 reads it: from the cache, or converted, verified and cached now."""
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except OSError:
        verify(folder)  # says what is missing
        raise
    version = library().__version__
    key = hashlib.sha256(f"{FORMAT} {version} {compute_type} ".encode() + manifest).hexdigest()
    beside = hashlib.sha256(os.fsencode(folder.parent)).hexdigest()
    homes = [folder.parent / CACHE / folder.name]
    with contextlib.suppress(RuntimeError):  # a user without a home
        homes.append(user_cache() / beside / folder.name)
    for home in homes:
        if intact(home / f"{compute_type}-{key}"):
            return home / f"{compute_type}-{key}"
    for home in homes:
        try:
            return make(home / f"{compute_type}-{key}", folder, compute_type, sample)
        except OSError as error:
            reason = error.strerror
    raise DragomanError(f"{homes[-1]}: the model could not be converted for CTranslate2: {reason}")


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman" / "ctranslate2"


def intact(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest == {name: fingerprint(folder / name) for name in FILES}
    except (OSError, ValueError, RecursionError):
        return False


def make(path: Path, folder: Path, compute_type: str, sample: Sequence[Ids]) -> Path:
    """Convert the model of a model folder into the new folder `path`, and remove what it takes the place of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if intact(path):  # another process was faster
            return path
        model, tokenizer = read_model(folder)
        for old in path.parent.glob(f"{compute_type}-*"):  # damaged, or of a model that was here before
            shutil.rmtree(old)
        with new_folder(path) as draft:
            convert(model, tokenizer.pieces, draft)
            compare(model, CTranslate2(draft), sample, folder)
            if compute_type != "float32":
                convert(model, tokenizer.pieces, draft, compute_type)
    return path


def compare(model: Model, engine: "CTranslate2", sample: Sequence[Ids], folder: Path) -> None:
    """Raises DragomanError where a greedy search of `engine`, in float32, finds other words than our own search, or
    finds them more or less probable.
    """
    words, made = len(engine.pieces), random.Random(0)
    most = min(SAMPLE_LENGTH, (engine.max_positions or SAMPLE_LENGTH + 1) - 1)
    sources = [[made.randrange(EOS + 1, words) for _ in range(made.randint(1, most))] for _ in range(SAMPLES)]
    sources += [list(ids) for ids in sample if ids]
    greedy = SearchConfig(beam=1, extra_length=SAMPLE_LENGTH, length_penalty=0)
    ours, theirs = TorchEngine(model).search(sources, greedy), engine.search(sources, greedy)
    for source, (one,), (other,) in zip(sources, ours, theirs, strict=True):
        if one.tokens == other.tokens:
            same = abs(one.score - other.score) < TIE * tokens(one)
        else:
            same = tied(model, source, one.tokens, other.tokens)
        if not same:
            raise DragomanError(
                f"{folder}: CTranslate2 {library().__version__} does not translate as the model itself does "
                f"(for the source ids {source}): use the native engine"
            )


@torch.inference_mode()
def tied(model: Model, source: Ids, one: Ids, other: Ids) -> bool:
    """Whether the model finds the words where two outputs part equally likely, so that rounding decides."""
    pairs = zip([*one, EOS], [*other, EOS], strict=False)
    place, words = next((place, list(pair)) for place, pair in enumerate(pairs) if pair[0] != pair[1])
    device = next(model.parameters()).device
    target = torch.tensor([[BOS, *one[:place]]], device=device)
    likely = model(source_batch([source]).to(device), target)[0, -1].log_softmax(-1)[words]
    return bool((likely[0] - likely[1]).abs() < TIE)


# The search


class CTranslate2:
    """See `Engine`. An output may have at most `max_positions` tokens, too; that of an empty source is empty.

    Scores are always those of the model. In a beam search with a minimum length, forbidden words or no repeats, other
    words than those of native search may be found: CTranslate2 shares out among the other words what it took away.
    """

    def __init__(self, folder: Path, compute_type: str = "float32", threads: int = 1):
        """folder: as `convert` wrote it, for this `compute_type`."""
        self.folder = folder
        self.translator = library().Translator(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
        self.pieces: list[str] = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        self.ids = {piece: id for id, piece in enumerate(self.pieces)}
        self.max_positions: int | None = json.loads((folder / "config.json").read_text(encoding="utf-8"))["longest"]

    @classmethod
    def open(
        cls, path: str | Path, compute_type: str = "float32", threads: int = 1, sample: Sequence[Ids] = ()
    ) -> "CTranslate2":
        """The engine for a model folder or run folder, converted the first time.

        compute_type: what matrix products are computed in, such as float32 or int8; threads: for each.
        `sample`: sources for which a new copy has to find the words of the model itself, beside made-up ones. Raises
        UsageError where this processor cannot compute so, DragomanError where the folder is damaged or the model does
        not fit.
        """
        supported = sorted(library().get_supported_compute_types("cpu"))
        if compute_type not in supported:
            raise UsageError(f"CTranslate2 cannot compute in '{compute_type}' here, only in {', '.join(supported)}")
        return cls(cached(find_model(Path(path)).resolve(), compute_type, sample), compute_type, threads)

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        self.check(sources, config, constraints)
        found: dict[int, list[Hypothesis]] = {}
        for group in self.groups(constraints):
            for rows in search_batches(group, sources, min(SEARCHED, SEARCH_TOKENS // config.beam)):
                batch, wishes = [sources[row] for row in rows], [constraints[row] for row in rows]
                found |= zip(rows, self.search_batch(batch, config, wishes), strict=True)
        return [found[row] for row in range(len(sources))]

    def check(self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints]) -> None:
        """Raises UsageError naming what cannot be done."""
        for spec in dataclasses.fields(SearchConfig):
            if spec.name not in HONOURED | IDLE and getattr(config, spec.name) != spec.default:
                raise UsageError(f"the CTranslate2 engine does not support setting '{spec.name}': use the native one")
        for spec in dataclasses.fields(Constraints):
            if spec.name not in HONOURED_DEMANDS and any(getattr(d, spec.name) != spec.default for d in constraints):
                raise UsageError(f"the CTranslate2 engine does not support {spec.name}: use the native one")
        most = max(map(len, sources), default=0) + 1
        if self.max_positions and most > self.max_positions:
            raise UsageError(
                f"a source has {most} tokens, its end included; this model takes at most {self.max_positions}"
            )

    @staticmethod
    def groups(constraints: Sequence[Constraints]) -> list[list[int]]:
        """Numbers of sources that may be searched for together: with the same kind of constraints.

        What is forbidden holds for a whole batch, and a prefix changes how those without one are searched for.
        """

        def kind(row: int) -> tuple:
            return constraints[row].forbidden, bool(constraints[row].prefix)

        return [list(group) for _, group in itertools.groupby(sorted(range(len(constraints)), key=kind), kind)]

    def search_batch(
        self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints]
    ) -> list[list[Hypothesis]]:
        limits = [len(ids) + config.extra_length for ids in sources]
        limits = [min(limit, self.max_positions or limit) for limit in limits]
        found = self.collect(sources, config, constraints, max(limits))
        # CTranslate2 has one limit for a batch. Whoever got as far as its own limit is searched for again with that.
        # A greedy search finds the same words with any limit, only fewer of them.
        late = [
            row
            for row, limit in enumerate(limits)
            if limit < max(limits) and max(map(tokens, found[row]), default=0) >= limit
        ]
        again: dict[int, list[Hypothesis]] = {}
        if late and config.beam == 1:
            shorter = [[cut(hypothesis, limits[row]) for hypothesis in found[row]] for row in late]
            again |= zip(late, self.rescored([sources[row] for row in late], shorter), strict=True)
        else:
            for limit in sorted({limits[row] for row in late}):
                rows = [row for row in late if limits[row] == limit]
                there, wishes = [sources[row] for row in rows], [constraints[row] for row in rows]
                again |= zip(rows, self.collect(there, config, wishes, limit), strict=True)
        found = [again.get(row, hypotheses) for row, hypotheses in enumerate(found)]
        if config.min_length or config.no_repeat_ngram or any(demand != UNCONSTRAINED for demand in constraints):
            found = self.rescored(sources, found)
        return [ranked(hypotheses, config) for hypotheses in found]

    def collect(
        self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints], limit: int
    ) -> list[list[Hypothesis]]:
        """All hypotheses that CTranslate2 finds until its patience ends, with their log-probabilities as scores."""
        patience = 1.0 if config.beam == 1 else config.patience or PATIENCE
        wanted = math.ceil(patience * config.beam)
        prefixes = [self.spelled(demand.prefix) for demand in constraints]
        results = self.translator.translate_batch(
            [self.spelled([*ids, EOS]) for ids in sources],
            target_prefix=prefixes if any(prefixes) else None,
            suppress_sequences=[self.spelled(ids) for ids in constraints[0].forbidden] or None,
            beam_size=config.beam,
            patience=wanted / config.beam,
            num_hypotheses=wanted,
            length_penalty=NO_PENALTY,
            no_repeat_ngram_size=config.no_repeat_ngram,
            min_decoding_length=min(config.min_length, limit),
            max_decoding_length=limit,
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        return [
            [
                self.hypothesis(words, score)
                for words, score in zip(result.hypotheses, result.scores, strict=True)
                if score > IMPOSSIBLE
            ]
            for result in results
        ]

    def rescored(self, sources: list[Ids], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """With the log-probabilities that the model gives, where CTranslate2 shares out what rules took away."""
        owners = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
        hypotheses = [hypothesis for group in found for hypothesis in group]
        results = self.translator.score_batch(
            [self.spelled([*sources[row], EOS]) for row in owners],
            [self.spelled(hypothesis.tokens) for hypothesis in hypotheses],
            max_batch_size=SCORED,
            batch_type="tokens",
            max_input_length=0,
        )
        again: list[list[Hypothesis]] = [[] for _ in sources]
        for row, hypothesis, result in zip(owners, hypotheses, results, strict=True):
            score = sum(result.log_probs[: tokens(hypothesis)])
            again[row].append(dataclasses.replace(hypothesis, score=score))
        return again

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return [self.pieces[id] for id in ids]

    def hypothesis(self, words: list[str], score: float) -> Hypothesis:
        ids = [self.ids[word] for word in words]
        return Hypothesis([id for id in ids if id != EOS], score, ids[-1:] in ([], [EOS]))


def tokens(hypothesis: Hypothesis) -> int:
    """With the end."""
    return len(hypothesis.tokens) + hypothesis.finished


def cut(hypothesis: Hypothesis, limit: int) -> Hypothesis:
    """With so many tokens at most, the end included."""
    if tokens(hypothesis) <= limit:
        return hypothesis
    return dataclasses.replace(hypothesis, tokens=hypothesis.tokens[:limit], finished=False)


def ranked(hypotheses: list[Hypothesis], config: SearchConfig) -> list[Hypothesis]:
    """The best, with our length penalty."""
    found = [
        dataclasses.replace(h, score=h.score / length_penalty(tokens(h), config.length_penalty)) for h in hypotheses
    ]
    return sorted(found, key=lambda h: -h.score)[: config.n_best]
