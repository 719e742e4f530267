"""Other words for a place of a translation, held against all the outputs that there are."""

import copy
import itertools
import math
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from conftest import tiny_transformer

from dragoman.config import SearchConfig
from dragoman.data.tokenizer import BOS, EOS, RESERVED, Tokenizer
from dragoman.errors import UsageError
from dragoman.model import build
from dragoman.translation.alternatives import most_for_others
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.translation import Alternative
from dragoman.translation.translator import Translator

PIECES = [" ", "a", "b", ".", " a", " b", " ab"]
MERGES = [(" ", "a"), (" ", "b"), (" a", "b")]
IDS = range(len(RESERVED), len(RESERVED) + len(PIECES))
EXTRA = 1  # tokens, EOS included, of an output behind its beginning, beside the one of the source
LONGEST = 5  # tokens of an output
TEXT = "The dog sees 2 red cats."


@pytest.fixture(scope="module")
def toy() -> Translator:
    """A translator with seven pieces, whose search is so wide that it misses nothing."""
    tokenizer = Tokenizer({piece: id for id, piece in enumerate([*RESERVED, *PIECES])}, MERGES)
    torch.manual_seed(3)
    model = build(tiny_transformer(share="none", output_bias=True), len(tokenizer)).eval()
    with torch.no_grad():
        model.output.weight *= 3
        model.output.bias[: len(RESERVED)] = -1e4
        model.output.bias[EOS] = 1.0
    search = SearchConfig(beam=len(PIECES) ** 3, length_penalty=0.0, extra_length=EXTRA)
    return Translator(model, tokenizer, search, NO_SAFEGUARDS)


class Outputs(NamedTuple):
    """All outputs for the source "a"."""

    log_p: dict[tuple[int, ...], list[float]]  # of each token, and of EOS where one fits
    ends: dict[tuple[int, ...], float]  # how probable it is that a word ends behind these tokens


@pytest.fixture(scope="module")
def outputs(toy: Translator) -> Outputs:
    targets = list(itertools.product(IDS, repeat=LONGEST))
    with torch.inference_mode():
        source = torch.tensor([[*toy.tokenizers.source.encode("a"), EOS]] * len(targets))
        logits = toy.model(source, torch.tensor([[BOS, *target] for target in targets]))
    found, ends = {}, {}
    for target, rows in zip(targets, logits.log_softmax(-1), strict=True):
        log_p = rows[:LONGEST].gather(1, torch.tensor(target)[:, None])[:, 0].tolist()
        found[target] = log_p
        for length in range(LONGEST):
            found[target[:length]] = [*log_p[:length], float(rows[length, EOS])]
        for length in range(1, LONGEST + 1):
            ending = [EOS, *(id for id in IDS if PIECES[id - IDS[0]][0] in " .")]
            ends[target[:length]] = float(rows[length, ending].exp().sum())
    return Outputs(found, ends)


def spell(tokens: tuple[int, ...]) -> str:
    return "".join(PIECES[id - IDS[0]] for id in tokens)


def enumerated(toy: Translator, outputs: Outputs, prefix: str, *, whole: bool = True) -> list[tuple[str, float, str]]:
    """Words, their probabilities and what follows, of the two best of all outputs behind each start.

    whole: whether all pieces of a word count, and its end, not the first piece alone.
    """
    before, _, stem = prefix.rpartition(" ")
    head = tuple(toy.tokenizers.source.encode(before)) if before else ()
    cut = (*head, *toy.tokenizers.source.encode(stem)) if stem else head
    starts = {cut} if stem else set()
    for length in range(len(head), len(cut) + 1):
        for id in IDS:
            fits = spell((*cut[:length], id))[len(spell(head)) :].startswith(f" {stem}")
            if fits and (length < len(cut) or not stem or PIECES[id - IDS[0]][0] != " "):
                starts.add((*cut[:length], id))
    found: dict[str, tuple[float, float, str]] = {}
    for start in starts:
        room = len(start) + 1 + EXTRA
        costs = sorted(  # without EOS where there is no room for it
            (-sum(log_p[:room]), tokens)
            for tokens, log_p in outputs.log_p.items()
            if tokens[: len(start)] == start and len(tokens) <= room
        )
        for cost, tokens in costs[:2]:
            text, place = spell(tokens), len(before.split())
            if len(text.split()) <= place:
                continue
            word = text.split()[place]
            label = word.rstrip(".") or word
            end = text.index(label, len(spell(head))) + len(label)
            own = [n for n in range(len(head), len(tokens)) if len(spell(tokens[:n])) < end]
            log_p = [outputs.log_p[tokens][position] for position in own]
            p = math.exp(sum(log_p)) * outputs.ends[tokens[: own[-1] + 1]] if whole else math.exp(log_p[0])
            best, least, follows = found.get(label, (0.0, math.inf, ""))
            found[label] = (max(p, best), min(cost, least), text[1:] if cost < least else follows)
    return sorted(((word, p, text) for word, (p, _, text) in found.items()), key=lambda one: -one[1])


def as_rows(found: list[Alternative]) -> list[tuple[str, float, str]]:
    return [(one.word, one.probability, one.translation.text) for one in found]


@pytest.mark.parametrize("prefix", ["", "b ", "a", "ab", "b a", "ab b", "a. "])
def test_words_are_those_of_all_outputs(toy: Translator, outputs: Outputs, prefix: str):
    found, expected = as_rows(toy.alternatives("a", prefix, count=50)), enumerated(toy, outputs, prefix)
    assert [(word, text) for word, _, text in found] == [(word, text) for word, _, text in expected]
    probabilities = [p for _, p, _ in expected]
    assert [p for _, p, _ in found] == pytest.approx(probabilities, rel=1e-4)
    assert len(found) > 1
    assert all(text.startswith(prefix.strip()) for _, _, text in found)
    first = [p for _, p, _ in enumerated(toy, outputs, prefix, whole=False)]
    assert sorted(first) != pytest.approx(sorted(probabilities), rel=1e-2)  # the control: one piece is not the word
    fewer = as_rows(toy.alternatives("a", prefix, count=2))
    assert [(word, text) for word, _, text in fewer] == [(word, text) for word, _, text in found[:2]]
    assert [p for _, p, _ in fewer] == pytest.approx([p for _, p, _ in found[:2]], rel=1e-5)


@pytest.mark.parametrize("text", ["b", "ab", "b b."])
def test_most_for_others_is_an_upper_bound(toy: Translator, text: str):
    model = copy.deepcopy(toy.model)
    with torch.no_grad():
        model.output.bias[[IDS[PIECES.index(" b")], IDS[PIECES.index("a")]]] += torch.tensor([6.0, 2.0])  # "b", or "ba"
    longer = Translator(model, toy.tokenizers, toy.search, NO_SAFEGUARDS)
    target, words = toy.tokenizers.target.encode(text), text.replace(".", "").split()
    most = most_for_others(model, toy.tokenizers.target, toy.tokenizers.source.encode("a"), target)
    for place, (word, limit) in enumerate(zip(words, most, strict=True)):
        found = longer.alternatives("a", "".join(f"{before} " for before in text.split()[:place]), count=50)
        assert max(one.probability for one in found if one.word != word) <= limit + 1e-6
        assert limit < 1


@pytest.mark.parametrize("engine", ["native", "ctranslate2"])
def test_alternatives_are_the_same_with_both_engines(trained: Path, engine: str):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")
    search = SearchConfig(beam=2, extra_length=3)
    translator, native = Translator.load(trained, search, engine=engine), Translator.load(trained, search)  # type: ignore[arg-type]
    best = native.translate(TEXT)
    words = best.text.split()
    for place in range(len(words)):
        prefix = "".join(f"{word} " for word in words[:place])
        found = translator.alternatives(TEXT, prefix, count=4)
        expected = native.alternatives(TEXT, prefix, count=4)
        assert [one.word for one in found] == [one.word for one in expected]
        assert [one.probability for one in found] == pytest.approx([one.probability for one in expected], rel=1e-3)
        assert words[place].rstrip(".") in [one.word for one in found]
        for one in found:
            assert one.translation.text.startswith(prefix + one.word)
    scores = native.annotator.word_scores([best.segments], tokens=[best.tokens])[0]
    others = native.annotator.others([best.segments], tokens=[best.tokens])[0]
    for place, (word, log_p) in enumerate(scores[:-1]):
        found = native.alternatives(TEXT, "".join(f"{word} " for word in words[:place]), count=50)
        (own,) = [one.probability for one in found if one.word == word.rstrip(".")]
        assert own == pytest.approx(math.exp(log_p), rel=0.3)  # as `score` has it, but that the word ends, too
        assert max(one.probability for one in found if one.word != word.rstrip(".")) <= others[place] + 1e-6


def test_safeguards_hold_behind_a_chosen_word(trained: Path):
    search = SearchConfig(beam=2, extra_length=3)
    translator = Translator.load(trained, search)
    found = [one.translation.text for one in translator.alternatives(TEXT, count=2)]
    verb = found[0].split()[-1].rstrip(".")
    forbidding = translator.replace(safeguards=Safeguards(forbidden=(verb,)))
    assert all(verb in text for text in found)  # the control
    assert not any(verb in one.translation.text for one in forbidding.alternatives(TEXT, count=2))
    whole = translator.alternatives(f"- {TEXT} The man.", count=2)
    rest = translator.translate("The man.").text
    assert [one.translation.text for one in whole] == [f"- {text} {rest}" for text in found]


def test_text_without_words_has_none_and_wrong_arguments_are_explained(trained: Path):
    translator = Translator.load(trained, SearchConfig(beam=2, extra_length=3))
    assert (
        translator.alternatives("") == translator.alternatives("42") == translator.alternatives("<b>1</b>", "x") == []
    )
    long = "개 " * 60  # more than an output may have behind what it begins with
    assert all(word.translation.text.startswith(long) for word in translator.alternatives(TEXT, long))
    with pytest.raises(UsageError, match="the translation may begin with at most"):
        translator.alternatives(TEXT, "x " * 2000)
    with pytest.raises(UsageError, match="count"):
        translator.alternatives(TEXT, count=0)
    with pytest.raises(UsageError, match="text"):
        translator.alternatives([TEXT])  # type: ignore[arg-type]
