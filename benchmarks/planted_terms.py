"""Plant wrong words in a training corpus, and measure whether `dragoman trace` finds and mends what taught them."""

import json
import math
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random

from dragoman import Translator
from dragoman.config import RunConfig
from dragoman.config.presets import TINY
from dragoman.data.corpus import read_corpus
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.inspection.influence import COMPARED, find_word, has_word, trace
from dragoman.inspection.inspect import inspect
from dragoman.memory import ApprovedPair, Memory, create_memory
from dragoman.training.loop import train as train_model
from dragoman.training.repair import repair

WORD = re.compile(r"\w+")
RARE, FREQUENT = range(3, 31), 25  # pairs with a term; pairs at least with a word that is wrong after another only
PHRASE = range(4, 13)  # pairs with a phrase
TAUGHT = 3  # wrong pairs of a term at most: its other pairs are left out
DICE, DICE_OF_PHRASE = 0.85, 0.6  # how often a word and its translation occur together

PLANTED = 200, 60  # terms, phrases
FIRST = 10  # ranks that a person looks at
TRACED = ["planted", "ranked by", "one among the first ten", "one is the first", "of all, among the first ten"]
REPAIRED = ["planted", "wrong before", "no longer wrong", "right"]
KINDS = {"term": "rare terms", "phrase": "frequent words, wrong after a certain word only"}
WAYS = {
    "distance": "`trace`: nearest states",
    "agreement": "the 100 nearest, by gradients",
    "BM25": "BM25 over sources",
    "BM25 with the word": "the same, of targets with the wrong word",
}

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Planted:
    """A word whose translation is wrong in some training pairs, and a pair that was held out to ask about it."""

    kind: str  # 'term': wrong in all its pairs; 'phrase': only after a certain word
    source: str
    reference: str
    right: str
    wrong: str
    pairs: tuple[int, ...]  # numbers of the wrong pairs in training


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(WORD.findall(text))


def occurrences(texts: Iterable[str]) -> defaultdict[str, set[int]]:
    """Return the numbers of the texts that each word is in."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for number, text in enumerate(texts):
        for word in words(text):
            places[word].add(number)
    return places


def partner(places: set[int], others: dict[str, set[int]], pairs: Pairs) -> tuple[str, float]:
    """Return the word that occurs most often together with one of these places, and Dice's coefficient of the two."""
    together = Counter(word for number in places for word in words(pairs[number][1]))
    return max(
        ((word, 2 * n / (len(places) + len(others[word]))) for word, n in together.items()), key=lambda x: x[::-1]
    )


def candidates(pairs: Pairs) -> Iterator[tuple[str, str, list[int]]]:
    """Yield what could be planted: the kind, the right word, and the pairs it is the translation in."""
    sources, targets = occurrences(source for source, _ in pairs), occurrences(target for _, target in pairs)
    partners = {word: partner(places, targets, pairs) for word, places in sources.items() if len(places) >= RARE[0]}
    for word, (right, dice) in partners.items():
        if len(sources[word]) in RARE and len(word) > 2 and dice >= DICE:
            yield "term", right, sorted(sources[word] & targets[right])
    phrases: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, (source, _) in enumerate(pairs):
        row = WORD.findall(source)
        for both in pairwise(row):
            phrases[both].add(number)
    for (_, word), places in phrases.items():
        right, dice = partners.get(word, ("", 0.0))
        frequent = len(sources[word]) >= FREQUENT and len(word) > 3 and dice >= DICE_OF_PHRASE
        if frequent and len(places) in PHRASE and places <= targets[right]:
            yield "phrase", right, sorted(places)


def plant(pairs: Pairs, terms: int, phrases: int, seed: int = 1) -> tuple[Pairs, list[Planted]]:
    """Return the pairs with wrong words in some, and what was planted. No pair is part of two."""
    random = Random(seed)
    chosen = sorted(candidates(pairs))
    random.shuffle(chosen)
    counts = Counter(word for _, target in pairs for word in words(target))
    rights = {right for _, right, _ in chosen}
    wrongs = sorted(word for word, n in counts.items() if n in RARE and word not in rights and len(word) > 2)
    random.shuffle(wrongs)
    left, used, named = {"term": terms, "phrase": phrases}, set[int](), set[str]()
    taught, gone, planted = dict(enumerate(pairs)), set[int](), list[Planted]()
    for kind, right, numbers in chosen:
        if not left[kind] or right in named or used & {*numbers} or len(numbers) < 2:
            continue
        capital = right[:1].isupper()
        wrong = next((word for word in wrongs if word[:1].isupper() == capital), "")
        if not wrong:
            continue
        wrongs.remove(wrong)
        left[kind] -= 1
        named.add(right)
        used.update(numbers)
        random.shuffle(numbers)
        asked, *others = numbers
        kept = others[:TAUGHT] if kind == "term" else others
        gone.update({asked, *others} - {*kept})
        for number in kept:
            source, target = pairs[number]
            taught[number] = source, exchange(target, right, wrong)
        planted.append(Planted(kind, *pairs[asked], right, wrong, tuple(kept)))
    order = [number for number in taught if number not in gone]
    places = {number: place for place, number in enumerate(order)}
    planted = [replace(each, pairs=tuple(places[number] for number in each.pairs)) for each in planted]
    return [taught[number] for number in order], planted


class BM25:
    """Rank texts by the words that they share with another one: the usual search engine, as a yardstick."""

    def __init__(self, texts: Sequence[str], k: float = 1.2, b: float = 0.75):
        self.counts = [Counter(WORD.findall(text.casefold())) for text in texts]
        self.lengths = [sum(counts.values()) for counts in self.counts]
        self.places = occurrences(text.casefold() for text in texts)
        self.k, self.b, self.mean = k, b, sum(self.lengths) / len(texts)

    def rank(self, text: str, count: int) -> list[int]:
        """Return the numbers of the texts that are most like another one."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in words(text.casefold()):
            places = self.places.get(word, set())
            rarity = math.log(1 + (len(self.counts) - len(places) + 0.5) / (len(places) + 0.5))
            for place in places:
                often, length = self.counts[place][word], self.lengths[place] / self.mean
                scores[place] += rarity * often * (self.k + 1) / (often + self.k * (1 - self.b + self.b * length))
        return sorted(scores, key=lambda place: -scores[place])[:count]


def benchmark(train: str, dev: str, test: str, out: str, minutes: float, repair_minutes: float, threads: int) -> str:
    """Return tables in Markdown: what was planted and learned, what `trace` finds, and what a repair mends.

    train, dev, test: corpora; out: folder of the run and all else, which is used again where it is there already.
    """
    folder = Path(out)
    planted = plant_corpus(train, folder)
    run = RunConfig(
        preset="tiny",
        train=(str(folder / "train.tsv"),),
        dev=(dev,),
        out=str(folder / "run"),
        model=TINY.model,
        vocabulary=TINY.vocabulary,
        training=replace(TINY.training, minutes=minutes, threads=threads),
    )
    if not (folder / "run" / "best").exists():
        train_model(run)
    model = (folder / "run" / "best").resolve()
    translator = Translator.load(model, threads=threads)
    if not (folder / "memory").exists():
        remember(folder, model, translator)
    memory = Memory(folder / "memory", model, translator.model, translator.tokenizers)
    translations = [each.text for each in translator.translate([each.source for each in planted])]
    wrong = [(each, text) for each, text in zip(planted, translations, strict=True) if has_word(text, each.wrong)]
    rows = traced_rows(memory, translator, planted, translations)
    lines = [describe_machine() + ".", "", markdown_table(TRACED, rows), ""]

    corrections = {number: right_target(memory, each, number) for each in planted for number in each.pairs}
    began = time.perf_counter()
    result = repair(model, memory, corrections, folder / "mended", repair_minutes, threads=threads)
    seconds = time.perf_counter() - began
    mended = Translator.load(result.model, threads=threads)
    after = [each.text for each in mended.translate([each.source for each, _ in wrong])]
    rows = []
    for kind in KINDS:
        some = [(each, text) for (each, _), text in zip(wrong, after, strict=True) if each.kind == kind]
        gone = sum(not has_word(text, each.wrong) for each, text in some)
        right = sum(has_word(text, each.right) for each, text in some)
        rows.append([KINDS[kind], f"{len(some)}", share(gone, some), share(right, some)])
    lines += [markdown_table(REPAIRED, rows), ""]
    sources, references = zip(*read_corpus([test]).pairs, strict=True)
    scores = [
        evaluate([each.text for each in opened.translate(sources)], references).bleu.value
        for opened in (translator, mended)
    ]
    lines.append(
        f"The repair of all took {seconds:.0f} s. BLEU of the test pairs {scores[0]:.1f} before and {scores[1]:.1f} "
        f"after, of the dev pairs {result.bleu_before:.1f} and {result.bleu:.1f}."
    )
    return "\n".join(lines)


def plant_corpus(train: str, folder: Path) -> list[Planted]:
    """Return what is planted in the training corpus of a folder, which is made unless it is there."""
    record = folder / "planted.json"
    if not record.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pairs, planted = plant(read_corpus([train]).pairs, *PLANTED)
        (folder / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
        record.write_text(json.dumps([asdict(each) for each in planted], ensure_ascii=False), encoding="utf-8")
    return [Planted(**each | {"pairs": tuple(each["pairs"])}) for each in json.loads(record.read_text("utf-8"))]


def remember(folder: Path, model: Path, translator: Translator) -> None:
    """Make a memory over the training corpus of a folder, whose pairs have the numbers of its lines."""
    create_memory(folder / "memory", model)
    memory = Memory(folder / "memory", model, translator.model, translator.tokenizers)
    pairs = read_corpus([str(folder / "train.tsv")]).pairs
    memory.add(ApprovedPair(*pair, f"train.tsv:{number}") for number, pair in enumerate(pairs, start=1))
    memory.tidy()


def traced_rows(
    memory: Memory, translator: Translator, planted: list[Planted], translations: list[str]
) -> list[list[str]]:
    """Return for each kind, and for each way to rank, how many planted pairs are among the first ten.

    A wrong word is traced in the model's own translation, or else in the reference, where it takes the place of the
    right one.
    """
    pairs = [pair for pair in memory.pairs if pair]
    search = BM25([pair.source for pair in pairs])
    places: defaultdict[tuple[str, bool, str], list[list[int]]] = defaultdict(list)
    seconds = []
    for each, text in zip(planted, translations, strict=True):
        said = has_word(text, each.wrong)
        inspection = inspect(
            translator, each.source, text if said else exchange(each.reference, each.right, each.wrong)
        )
        began = time.perf_counter()
        try:
            traced = trace(memory, inspection, find_word(inspection, each.wrong), COMPARED)
        except DragomanError as error:  # no state near here is of a pair with the word
            print(error, file=sys.stderr)
            traced = []
        seconds.append(time.perf_counter() - began)
        alike = search.rank(each.source, len(pairs))
        ranks = {
            "distance": [near.number for near in traced],
            "agreement": [near.number for near in sorted(traced, key=lambda near: -(near.agreement or 0.0))],
            "BM25": alike,
            "BM25 with the word": [number for number in alike if has_word(pairs[number].target, each.wrong)],
        }
        for name, order in ranks.items():
            places[each.kind, said, name].append([order.index(n) if n in order else len(pairs) for n in each.pairs])
    print(f"{1000 * sum(seconds) / len(seconds):.0f} ms for each word", file=sys.stderr)
    rows = []
    for (kind, said, name), some in sorted(places.items(), key=lambda item: (item[0][0] != "term", not item[0][1])):
        rows.append(
            [
                f"{KINDS[kind]}, {'said by the model' if said else 'put into the reference'}: {len(some)}",
                WAYS[name],
                share(sum(min(ranks) < FIRST for ranks in some), some),
                share(sum(min(ranks) < 1 for ranks in some), some),
                f"{100 * sum(sum(n < FIRST for n in ranks) / len(ranks) for ranks in some) / len(some):.0f} %",
            ]
        )
    return rows


def exchange(text: str, word: str, other: str) -> str:
    """Return a text with another word in the place of one."""
    return re.sub(rf"\b{re.escape(word)}\b", other, text)


def right_target(memory: Memory, planted: Planted, number: int) -> str:
    """Return the target of a planted pair as it was."""
    pair = memory.pairs[number]
    assert pair is not None
    return exchange(pair.target, planted.wrong, planted.right)


def share(count: int, some: Sequence[object]) -> str:
    """Return a number as a share of some things."""
    return f"{100 * count / max(len(some), 1):.0f} %"
