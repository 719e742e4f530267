"""Word alignments: nothing is shifted between tokens, words and characters, and the best head is found."""

import dataclasses
import itertools
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, TINY_RECURRENT, Ran, tiny_transformer, write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.alignment import heads
from dragoman.alignment.heads import AlignmentHead, alignment_weights, default_head, measure_heads
from dragoman.alignment.ibm1 import most_probable_origins, mutual_links
from dragoman.alignment.links import character_links, links_above, strongest_links
from dragoman.alignment.words import Word, character_spans, fill_gaps, merge_tokens, subwords, words
from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import RESERVED, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.forced import forced_batches
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.inspect import build_sentence, run_forced
from dragoman.model import Model, build
from dragoman.model.attention import masked_softmax
from dragoman.model.capture import AttentionCapture
from dragoman.model_folder import copy_records, read_model, verify_files, write_model
from dragoman.storage.writing import new_folder

DEEP = tiny_transformer(heads=4, decoder_layers=3)
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": DEEP,
    "relative, pre-norm": dataclasses.replace(DEEP, positions="relative", norm_first=True),
    "additive": dataclasses.replace(DEEP, attention=AttentionConfig(heads=2, score="additive")),
    "gru": dataclasses.replace(TINY_RECURRENT, attention="additive"),
}
VOCABULARY = 40


def make(name: str = "sinusoidal") -> Model:
    torch.manual_seed(0)
    return build(MODELS[name], VOCABULARY).eval()


# Attention of a forced pass.


@pytest.mark.parametrize("name", MODELS)
def test_pair_is_aligned_in_a_batch_as_alone_and_as_inspected(name: str):
    model, chance = make(name), random.Random(0)
    sides = [[chance.choices(range(3, VOCABULARY), k=length) for length in (5, 1, 30, 0, 12)] for _ in range(2)]
    sides[1].reverse()
    expected = [run_forced(model, source, target)[0]["cross"] for source, target in zip(*sides, strict=True)]
    layers, count = expected[0].shape[:2]
    for layer, head in itertools.product(range(1, layers + 1), (None, *range(1, count + 1))):
        tables = alignment_weights(model, *sides, AlignmentHead(layer, head))
        for weights, maps in zip(tables, expected, strict=True):
            wanted = maps[layer - 1].mean(0) if head is None else maps[layer - 1, head - 1]
            torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)
    if count > 1:  # the control: heads differ by more than that
        assert not torch.allclose(expected[0][0, 0], expected[0][0, 1], atol=1e-3)


@pytest.mark.parametrize(
    "config", [dataclasses.replace(TINY, decoder_layers=0), RecurrentConfig(d_model=16, attention="none")]
)
def test_model_without_attention_over_the_source_says_so(config: TransformerConfig | RecurrentConfig):
    with pytest.raises(DragomanError, match="no attention over the source"):
        measure_heads(build(config, 12).eval(), [[5]], [[6]])


def test_alignment_by_a_damaged_model_is_refused_in_words():
    """The control is the same model before."""
    model = make()
    head = default_head(model)
    assert alignment_weights(model, [[3, 4]], [[4]], head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e37)
    with pytest.raises(DragomanError, match="its weights are damaged"):
        alignment_weights(model, [[3, 4]], [[4]], head)


@pytest.mark.parametrize(("layer", "head"), [(0, None), (4, None), (-1, 1), (1, 0), (1, 5), (3, -1)])
def test_layer_or_head_that_is_not_there_is_refused(layer: int, head: int | None):
    with pytest.raises(UsageError, match="the model has"):
        alignment_weights(make(), [[5]], [[6]], AlignmentHead(layer, head))
    assert len(alignment_weights(make(), [[5]], [[6]], AlignmentHead(3, 4))) == 1


# From tokens to words and characters.

ODD = [
    "", " ", "a\tb", "\u3000", "😀 e\u0301", "x\x1cy", "\0", " a  b ", "日本語 が", "\u2028 \x85", "né",
    "\u00a0x", "a\u0300\u0301b", "a\u00a0b", "The dog\tsees\u00a012 cats.", "개가\t고양이를\u00a0봐요.", "12 34",
    "中文 字\u3000符",
]  # fmt: skip
texts = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.fixture(scope="module")
def tagged(pairs: list[Pair]) -> Tokenizer:
    return Tokenizer.train((text for pair in pairs for text in pair), tags=["med"])


@settings(max_examples=100)
@given(data=st.data())
def test_character_spans_cover_what_each_token_stands_for(tagged: Tokenizer, data: st.DataObject):
    """Any ids that a model can say, with bytes that are no UTF-8, and tags among them."""
    numbers = st.integers(0, len(tagged) - 1) | st.integers(3, len(RESERVED) - 1)
    ids = data.draw(st.lists(numbers | st.sampled_from(list("é😀".encode())).map(lambda byte: byte + 3), max_size=12))
    text, spans = tagged.decode(ids), character_spans(tagged, ids)
    reached = 0
    for id, (start, end) in zip(ids, spans, strict=True):
        if id in tagged.special_ids:
            assert start == end
            continue
        assert start <= reached <= end  # no character is left out
        reached = end
        if id >= len(RESERVED):
            assert text[start:end] in (tagged.pieces[id], tagged.pieces[id].removeprefix(" "))
        else:
            assert end - start == 1 or (start, end) == (0, 0)
    assert reached == len(text)
    assert [word.label for word in words(tagged, ids)] == text.split()
    covered = [position for word in build_sentence(tagged, ids).words for position in word.tokens]
    assert covered == list(range(len(ids) + 1))


def test_bytes_of_a_character_stand_for_it_together(tokenizer: Tokenizer):
    ids = tokenizer.encode("a😀.")
    assert len(ids) > 4  # the control: it is spelled in bytes
    emoji = [span for id, span in zip(ids, character_spans(tokenizer, ids), strict=True) if id < len(RESERVED)]
    assert emoji[-4:] == [(1, 2)] * 4


def agree(tokenizer: Tokenizer, text: str, tag: str, shown: list[str]) -> bool:
    """Whether what `inspect` shows is the words that `align` links, beside white space, tags and EOS."""
    linked = [word.label for word in words(tokenizer, tokenizer.encode(text, tag))]
    blank = [label for label in shown if re.fullmatch(r"␣|\s|<0x..>|<tag:med>|</s>", label)]
    return [label for label in shown if label not in blank] == [label for label in linked if label not in blank]


@settings(max_examples=100)
@given(text=texts, tag=st.sampled_from(["", "med"]))
def test_align_and_inspect_agree_on_the_words_of_every_text(tagged: Tokenizer, text: str, tag: str):
    ids = tagged.encode(text, tag)
    found, decoded = words(tagged, ids), tagged.decode(ids)
    assert [word.label for word in found] == unicodedata.normalize("NFC", text).split()
    assert [decoded[start:end] for start, end in (word.span for word in found)] == [word.label for word in found]
    owners = {position: word for word in found for position in word.tokens}
    for position, (start, end) in enumerate(character_spans(tagged, ids)):
        first = position in owners and position == owners[position].tokens.start
        if position in owners and not (first and not decoded[start:end].strip()):  # the space in front of it
            assert owners[position].span[0] < end
            assert start < owners[position].span[1]
        else:
            assert not decoded[start:end].strip()
    shown = build_sentence(tagged, ids)
    assert agree(tagged, text, tag, [word.label for word in shown.words])
    for entries in (shown.words, shown.tokens):
        assert [position for word in entries for position in word.tokens] == list(range(len(ids) + 1))
        assert all(word.label for word in entries)


def test_words_split_at_spaces_alone_do_not_agree(tagged: Tokenizer):
    """The control for the test above."""
    texts = ["a\tb", "a\u00a0b", "The dog\tsees", "The dog sees 12 cats."]
    assert [agree(tagged, text, "", text.split(" ")) for text in texts] == [False, False, False, True]


def test_tag_belongs_to_no_word(tagged: Tokenizer):
    ids, plain = tagged.encode("The dog sees", "med"), tagged.encode("The dog sees")
    assert [word.tokens.start for word in words(tagged, ids)] == [1, 2, 3]
    assert [word.tokens for word in subwords(tagged, ids)] == [range(i, i + 1) for i in range(1, len(plain) + 1)]
    assert [word.label for word in build_sentence(tagged, ids).words] == ["<tag:med>", "The", "dog", "sees", "</s>"]


def test_space_of_its_own_joins_the_word_after_it(tagged: Tokenizer):
    ids = tagged.encode("dog  12")
    assert [tagged.pieces[id] for id in ids] == [" dog", " ", " ", "<0x31>", "2"]
    assert [(word.label, word.tokens) for word in words(tagged, ids)] == [("dog", range(1)), ("12", range(2, 5))]
    shown = [(word.label, word.tokens) for word in fill_gaps(words(tagged, ids), tagged, ids)]
    assert shown[:-1] == [("dog", range(1)), ("␣", range(1, 2)), ("12", range(2, 5))]


sides = st.lists(st.integers(0, 3), max_size=4).map(
    lambda sizes: [Word("w", range(sum(sizes[:i]), sum(sizes[: i + 1]))) for i in range(len(sizes))]
)


@given(target=sides, source=sides, seed=st.integers(0, 9))
def test_word_attention_sums_columns_and_averages_rows(target, source, seed):
    size = [side[-1].tokens.stop + 1 if side else 1 for side in (target, source)]
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(2, 3, *size, dtype=torch.float64, generator=generator)
    weights /= weights.sum(-1, keepdim=True)
    found = merge_tokens(weights, target, source)
    assert found.shape == (2, 3, len(target), len(source))
    for (w, row), (u, column) in itertools.product(enumerate(target), enumerate(source)):
        inside = weights[..., row.tokens.start : row.tokens.stop, column.tokens.start : column.tokens.stop]
        torch.testing.assert_close(found[..., w, u], inside.sum((-1, -2)) / max(len(row.tokens), 1))
    assert (found.sum(-1) < 1).all()  # EOS is left out
    with_eos = [[*side, Word("</s>", range(n - 1, n))] for side, n in zip((target, source), size, strict=True)]
    rows = [row for row in with_eos[0] if row.tokens]
    torch.testing.assert_close(merge_tokens(weights, rows, with_eos[1]).sum(-1), torch.ones(2, 3, len(rows)).double())


# Links.

WEIGHTS = torch.tensor([[0.1, 0.6, 0.2], [0.7, 0.1, 0.1], [0.0, 0.0, 0.0]])


def test_links_name_the_source_word_first():
    assert strongest_links(WEIGHTS) == [(0, 1), (1, 0)]
    assert links_above(WEIGHTS, 0.2) == [(0, 1), (1, 0), (2, 0)]
    assert links_above(WEIGHTS, 0.7) == [(0, 1)]
    assert strongest_links(WEIGHTS.T) != strongest_links(WEIGHTS)  # the control: the sides are not alike
    nothing = torch.zeros(0, 2)
    assert strongest_links(nothing) == strongest_links(nothing.T) == links_above(nothing, 0.1) == []


def test_characters_of_a_source_word_lead_to_those_of_the_target(tokenizer: Tokenizer):
    source, target = (words(tokenizer, tokenizer.encode(text)) for text in ("The dog  sees", "봐요 개가"))
    weights = torch.tensor([[0.1, 0.1, 0.8], [0.0, 0.9, 0.1]])
    assert character_links(weights, target, source) == [((0, 3), (0, 2)), ((4, 7), (3, 5)), ((9, 13), (0, 2))]
    weights[:, 0] = 0  # nothing looked at "The"
    assert [span for span, _ in character_links(weights, target, source)] == [(4, 7), (9, 13)]


# The word model, on a language whose every word has one translation.

FIRST, SIZE = 10, 15  # ids of source words; a word's translation is SIZE more


def word_by_word(count: int, order: str, seed: int = 0) -> tuple[list[Ids], list[Ids]]:
    """Sentences of different words and their translations, in the same order, backwards or mixed."""
    chance = random.Random(seed)
    sources = [chance.sample(range(FIRST, FIRST + SIZE), chance.randint(2, 7)) for _ in range(count)]
    reorder = {"same": list, "backwards": lambda ids: ids[::-1], "mixed": lambda ids: chance.sample(ids, len(ids))}
    return sources, [[id + SIZE for id in reorder[order](source)] for source in sources]


def linked(sources: list[Ids], targets: list[Ids]) -> float:
    """The share of target words that are linked with the word that they translate."""
    pairs = zip(itertools.chain(*mutual_links(sources, targets)), itertools.chain(*targets), strict=True)
    right = [origin == id - SIZE for origin, id in pairs]
    return sum(right) / len(right)


@pytest.mark.parametrize("order", ["same", "backwards", "mixed"])
def test_word_model_finds_which_word_was_translated(order: str):
    sources, targets = word_by_word(150, order)
    assert linked(sources, targets) == 1
    random.Random(1).shuffle(targets)
    assert linked(sources, targets) < 0.2  # the control: words that have nothing to do with each other


def test_word_that_stands_everywhere_explains_nothing():
    """It cannot be told from the empty word, which stands everywhere too; the others are found as before."""
    sources, targets = word_by_word(150, "mixed")
    for source, target in zip(sources, targets, strict=True):
        source.append(FIRST - 1)
        target.insert(0, FIRST - 2)
    for found, target in zip(mutual_links(sources, targets), targets, strict=True):
        assert found.tolist() == [-1, *(id - SIZE for id in target[1:])]


def slow_model_1(sources: Sequence[Ids], targets: Sequence[Ids], rounds: int) -> dict[tuple[int, int], float]:
    """The algorithm as the books have it: -1 is the empty word."""
    p = {(s, t): 1.0 for source, target in zip(sources, targets, strict=True) for s in [-1, *source] for t in target}
    for _ in range(rounds):
        counts = dict.fromkeys(p, 0.0)
        for source, target in zip(sources, targets, strict=True):
            for t in target:
                whole = sum(p[s, t] for s in [-1, *source])
                for s in [-1, *source]:
                    counts[s, t] += p[s, t] / whole
        totals: dict[int, float] = {}
        for (s, _), c in counts.items():
            totals[s] = totals.get(s, 0.0) + c
        p = {(s, t): c / totals[s] for (s, t), c in counts.items()}
    return p


sentences = st.lists(st.lists(st.integers(3, 8), min_size=1, max_size=4), min_size=1, max_size=5)


@given(sentences, st.randoms(use_true_random=False))
def test_word_model_is_ibm_model_1(sources: list[Ids], chance: random.Random):
    targets = [chance.choices(range(3, 9), k=chance.randint(1, 4)) for _ in sources]
    p = slow_model_1(sources, targets, rounds=5)
    for source, target, found in zip(sources, targets, most_probable_origins(sources, targets), strict=True):
        for t, s in zip(target, found.tolist(), strict=True):
            assert p[s, t] == pytest.approx(max(p[one, t] for one in [-1, *source]))


# Which layer and head.


def plant(model: Model, layer: int, scores_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Let a layer attend by `scores_of` its plain scores and the number of real places of each source."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        real = torch.ones(len(key), 1, 1, key.size(2), dtype=torch.bool) if mask is None else mask
        scores = scores_of(query @ key.mT / query.size(-1) ** 0.5, real.sum(-1))
        return masked_softmax(scores, mask) @ value

    model.decoder[layer - 1].cross_attention.kernel = kernel  # type: ignore[union-attr, index]


def plant_one(model: Model, layer: int, head: int, order: str = "same") -> None:
    """One head that looks at the place of its own number, counted from the start or the end; the others as before."""

    def scores_of(scores: Tensor, real: Tensor) -> Tensor:
        place = torch.arange(scores.size(2))[None, :, None]
        if order == "backwards":
            place = real - 2 - place  # before the end
        scores[:, head - 1] = 9.0 * (torch.arange(scores.size(3)) == place)
        return scores

    plant(model, layer, scores_of)


@pytest.mark.parametrize("order", ["same", "backwards"])
@pytest.mark.parametrize(("layer", "head"), [(1, 1), (2, 3), (3, 4)])
def test_head_that_aligns_is_found_wherever_it_is(layer: int, head: int, order: str):
    model = make()
    plant_one(model, layer, head, order)
    sources, targets = word_by_word(100, order)
    found = measure_heads(model, sources, targets)
    assert found == AlignmentHead(layer, head, 1.0, sum(map(len, targets)))
    # The control: for a language of another order that head is not right.
    other = measure_heads(model, *word_by_word(100, "backwards" if order == "same" else "same"))
    assert other.agreement is not None
    assert other.agreement < 0.6


def test_enough_links_are_enough(monkeypatch: pytest.MonkeyPatch):
    """The model runs on the first pairs only, until they have so many links, and the same head is found."""
    model, asked, found = make(), Counter(), {}
    plant_one(model, 2, 3)
    sources, targets = word_by_word(100, "same")

    def run(self: AttentionCapture, source: Tensor, *others: Tensor) -> Tensor:
        asked[heads.ENOUGH_LINKS] += len(source)
        return real_run(self, source, *others)

    real_run = AttentionCapture.run
    monkeypatch.setattr(AttentionCapture, "run", run)
    for enough in (50, 10_000):
        monkeypatch.setattr(heads, "ENOUGH_LINKS", enough)
        found[enough] = measure_heads(model, sources, targets)
        assert found[enough] == AlignmentHead(2, 3, 1.0, sum(map(len, targets[: asked[enough]])))
    assert 50 <= found[50].links < 50 + max(map(len, targets))
    assert asked[10_000] == len(targets)


def test_model_that_knows_nothing_agrees_no_more_than_by_chance():
    found = measure_heads(make(), *word_by_word(100, "mixed"))
    assert found.agreement is not None
    assert found.agreement < 0.5


def test_mean_of_all_heads_is_chosen_where_it_is_best():
    """Two heads of three places each; together they know all."""

    def scores_of(scores: Tensor, real: Tensor) -> Tensor:
        scores, diagonal = torch.zeros_like(scores), 9.0 * torch.eye(*scores.shape[2:])
        scores[:, 0, :2], scores[:, 1, 2:] = diagonal[:2], diagonal[2:]
        return scores

    model = make()
    plant(model, 2, scores_of)
    found = measure_heads(model, *word_by_word(100, "same"))
    assert (found.layer, found.head, found.agreement) == (2, None, 1)


@pytest.mark.parametrize("pairs", [[], [([], [])], [([5], [])], [([5] * 101, [6] * 101)]])
def test_unmeasured_alignment_head_is_the_last_layer_and_says_so(pairs: list[tuple[Ids, Ids]]):
    model = make()
    found = measure_heads(model, [source for source, _ in pairs], [target for _, target in pairs])
    assert found == default_head(model) == AlignmentHead(3)
    assert "not measured" in str(found)


def learn(sources: list[Ids], targets: list[Ids], steps: int) -> Model:
    torch.manual_seed(0)
    attention = AttentionConfig(heads=2, dropout=0.0)
    config = tiny_transformer(d_model=32, decoder_layers=2, dropout=0.0, attention=attention)
    model = build(config, FIRST + 2 * SIZE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        start = 32 * step % len(sources)
        ((_, batch),) = forced_batches(model, sources[start : start + 32], targets[start : start + 32])
        optimizer.zero_grad()
        F.cross_entropy(model(batch.source, batch.target, batch.real), batch.labels[batch.real]).backward()
        optimizer.step()
    return model.eval()


def accuracy(model: Model, sources: list[Ids], targets: list[Ids], which: AlignmentHead) -> float:
    """Share of target words whose strongest source word is the one that they translate."""
    right: list[bool] = []
    maps = alignment_weights(model, sources, targets, which)
    for source, target, weights in zip(sources, targets, maps, strict=True):
        strongest = weights[:-1, :-1].argmax(1).tolist()
        right += [source[s] == id - SIZE for s, id in zip(strongest, target, strict=True)]
    return sum(right) / len(right)


@pytest.mark.slow
def test_word_by_word_model_aligns_at_its_measured_head():
    sources, targets = word_by_word(1600, "backwards")
    model = learn(sources, targets, 250)
    fresh = word_by_word(200, "backwards", seed=1)
    found = measure_heads(model, *fresh)
    places = [AlignmentHead(layer, head) for layer in (1, 2) for head in (None, 1, 2)]
    known = {(place.layer, place.head): accuracy(model, *fresh, place) for place in places}
    assert known[found.layer, found.head] == max(known.values()) > 0.8
    # What is measured without knowing the answer is what it is with the answer.
    assert found.agreement == pytest.approx(known[found.layer, found.head], abs=0.02)
    assert min(known.values()) < 0.6  # the control: it matters which


# The record.


def test_record_comes_back_and_belongs_to_the_model_folder(tmp_path: Path, tokenizer: Tokenizer):
    folder, record = tmp_path / "model", AlignmentHead(2, 3, 0.75, 1234)
    with new_folder(folder) as draft:
        write_model(draft, build(TINY, len(tokenizer)), Tokenizers.from_tokenizer(tokenizer), f"# card\n\n- {record}\n")
        record.save(draft)
    verify_files(folder)
    assert AlignmentHead.load(folder) == record
    assert "layer 2, head 3, agrees with 75.0 % of 1,234 links" in (folder / "card.md").read_text()
    assert AlignmentHead.load(tmp_path) is None
    (folder / "alignment.json").write_text(json.dumps({"layer": 1}))
    with pytest.raises(DragomanError, match=r"alignment\.json: damaged"):
        verify_files(folder)


RECORDS = [
    "", "[]", "{}", '{"layer": 0}', '{"layer": 1.5}', '{"layer": true}', '{"layer": "1"}', '{"layer": null}',
    '{"layer": 1, "head": 0}', '{"layer": 1, "links": -1}', '{"layer": 1, "links": null}',
    '{"layer": 1, "agreement": "0.5"}', '{"layer": 1, "agreement": NaN}', '{"layer": 1, "x": 2}', "[" * 9999,
]  # fmt: skip


@pytest.mark.parametrize("text", RECORDS, ids=range(len(RECORDS)))
def test_record_that_is_none_is_refused(tmp_path: Path, text: str):
    with new_folder(folder := tmp_path / "model") as draft:
        (draft / "alignment.json").write_text(text)
    with pytest.raises(DragomanError, match=r"alignment\.json: not an alignment record"):
        AlignmentHead.load(folder)


def test_record_that_the_manifest_does_not_list_is_not_used(tmp_path: Path):
    """Nobody vouches for it, and it may be a link."""
    with new_folder(folder := tmp_path / "model") as draft:
        (draft / "config.json").write_text("{}")
    (tmp_path / "elsewhere").write_text(AlignmentHead(1, 1).as_json())
    (folder / "alignment.json").symlink_to(tmp_path / "elsewhere")
    assert AlignmentHead.load(folder) is None
    copy_records(folder, tmp_path, ["alignment.json"])
    assert not (tmp_path / "alignment.json").exists()


# The command.


@pytest.fixture
def align(dragoman, trained: Path) -> Callable[..., Ran]:
    """Run the command, with the trained model unless another is named."""
    return lambda *words: dragoman("align", *([] if "-m" in words else ["-m", trained]), *words)


def test_command_prints_one_line_for_each_pair(align, trained: Path, pairs: list[Pair]):
    many = [*pairs[:3], ("", ""), ("The dog", ""), ("", "개"), ("x" * 5000, "y"), ("a\u2028b", "\x85 \0"), *pairs[3:5]]
    write_tsv(Path("pairs.tsv"), many)
    code, out, err = align("pairs.tsv", "--layer", 1, "--head", 2)
    assert (code, err) == (0, "pairs.tsv:7: a side has more than 1,023 tokens: not aligned\n")
    lines = out.removesuffix("\n").split("\n")
    assert len(lines) == len(many)
    assert lines[3:7] == [""] * 4
    for line, (source, target) in zip(lines[:3], many, strict=False):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert sorted(w for _, w in links) == list(range(len(target.split())))
        assert all(u < len(source.split()) for u, _ in links)
    assert lines[0] != align("pairs.tsv", "--head", 1).out.split("\n")[0]  # the control: heads differ


def test_command_shows_words_weights_and_subwords(align, trained: Path, pairs: list[Pair]):
    write_tsv(Path("pairs.tsv"), pairs[:1])
    (source, target), flags = pairs[0], ["pairs.tsv", "--layer", 1]
    plain = align(*flags).out.split()
    words_ = align(*flags, "--text").out.split()
    assert words_ == [f"{source.split()[int(u)]}→{target.split()[int(w)]}" for u, w in (x.split("-") for x in plain)]
    soft = dict(part.split(":") for part in align(*flags, "--soft").out.split())
    assert set(plain) <= set(soft)
    model, tokenizers = read_model(trained)
    ids = tokenizers.source.encode(source), tokenizers.target.encode(target)
    (tokens,) = alignment_weights(model, [ids[0]], [ids[1]], AlignmentHead(1, None))
    weights = merge_tokens(tokens.double(), words(tokenizers.target, ids[1]), words(tokenizers.source, ids[0]))
    links = {f"{u}-{w}": f"{weight:.3f}" for w, row in enumerate(weights.tolist()) for u, weight in enumerate(row)}
    assert soft == {link: weight for link, weight in links.items() if weight != "0.000"}
    threshold = align(*flags, "--threshold", 0.1).out.split()
    assert {link for link, weight in soft.items() if float(weight) > 0.1005} <= set(threshold) < set(soft)
    pieces = [tuple(map(int, link.split("-"))) for link in align(*flags, "--subwords").out.split()]
    assert sorted(t for _, t in pieces) == list(range(len(ids[1])))


def test_command_says_what_it_aligns_with_unless_it_was_told(align, trained: Path, pairs: list[Pair]):
    write_tsv(Path("pairs.tsv"), pairs[:100])
    model, (tokenizer, _) = read_model(trained)
    assert align("pairs.tsv").err == ""  # training has measured it
    for name, record in (("model", None), ("measured", AlignmentHead(1, 2, 0.5, 10))):
        with new_folder(Path(name).absolute()) as draft:
            write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# card\n")
            if record:
                record.save(draft)
    assert align("-m", "model", "pairs.tsv").err == "layer 1, mean of all heads, not measured\n"
    second = align("pairs.tsv", "--layer", 1, "--head", 2)
    assert align("-m", "measured", "pairs.tsv") == second != align("pairs.tsv", "--head", 1)
    sources, targets = (tokenizer.encode_all(list(side)) for side in zip(*pairs[:100], strict=True))
    found, measured = measure_heads(model, sources, targets), align("pairs.tsv", "--measure")
    assert (measured.code, measured.err) == (0, f"{found}; for these pairs only: the model folder is not changed\n")
    flags = ["--layer", found.layer, *(["--head", found.head] if found.head else [])]
    assert align("pairs.tsv", *flags) == (0, measured.out, "")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "give sentence pairs"),
        (["missing.tsv"], 1, "missing.tsv: no such file"),
        (["missing.tsv", "--measure"], 1, "missing.tsv: no such file"),
        (["pairs.tsv", "--layer", "2"], 2, "layer 2: the model has layers 1 to 1"),
        (["pairs.tsv", "--head", "3"], 2, "head 3: the model has heads 1 to 2"),
        (["pairs.tsv", "--measure", "--head", "1"], 2, "leave out --layer and --head"),
        (["pairs.tsv", "--soft", "--threshold", "0.5"], 2, "not both"),
        (["pairs.tsv", "--threshold", "0"], 2, "above 0"),
        (["pairs.tsv", "--threshold", "nan"], 2, "above 0"),
        (["pairs.tsv", "tag=med"], 1, "unknown tag 'med'"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(align, words: list[str], code: int, says: str):
    Path("pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    found, out, err = align(*words)
    assert (found, out) == (code, "")
    assert says in err.splitlines()[-1]
