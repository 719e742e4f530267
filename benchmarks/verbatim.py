"""Measure what happens to numbers, codes, names and tags in English sentences that a model translates."""

import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from typing import NamedTuple

from dragoman import Translator
from dragoman.data.corpus import read_corpus
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.model_folder import fetch_model
from dragoman.text.languages import read_languages
from dragoman.text.verbatim import compare_numbers
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards

Pairs = Sequence[tuple[str, str]]
TIMED, SHOWN = 200, 20  # sentences
SEED = 20261129
MONTHS = {
    "February": ("2월", "Februar", "febrero"),
    "June": ("6월", "Juni", "junio"),
    "September": ("9월", "September", "septiembre"),
    "December": ("12월", "Dezember", "diciembre"),
}
# Twenty kinds of what must not change, as templates: {a|b} is one of these, {3-99} a number from 3 to 99, and {01-12}
# has two digits.
KINDS = dict(
    line.split(": ", 1)
    for line in """\
whole number: {21-987654}
grouped number: {1-98},{000-999},{000-999}
decimal: {0-999}.{1-9}{1-9}
percentage: {3-99}{%| %}
price: {$|€|£}{3-4999}.{10-99}
time: {10-23}:{10-59}
date in words: {February|June|September|December} {13-28}, {1871-2089}
ISO date: {1871-2089}-{01-12}-{01-28}
version: {0-40}.{0-19}.{0-99}{|-rc2|-beta}
error code: {0x00f{10-99}c|E{1000-9999}|ORA-{10000-99999}}
file: {scan|budget-|IMG_|Letter.}{1-9999}{.docx|.tar.xz|.json|.jpeg}
path: {/opt/app|~/projects|./build|/etc/ssl}/{cache|v2|Main}/{keys|out.log|a_b}
option: {--jobs={2-64}|--keep-going|--with-ssl|-O{1-3}|--no-cache}
shortcut: {Ctrl|Alt+Shift|Ctrl+Alt}+{F5|J|W|Y|F12}
part number: {KX|BRT|M}{-|/}{10-9999}{|B|-7}
identifier: {retry_count|onSaveInstance|HTTP_PROXY|std::vector|_private_key|parseURL}
e-mail: {office|m.braun|help+de}{1-9}@post.example.org
address: https://www.example.com/{faq|Wiki|dl}/{1-9999}{|?lang=en|#top}
handle: {#|@}{openday|night_owl|Launch}{1-999}
emoji: {🔥|📎|🤷🏼‍♀️|✅|🇫🇮|:tada:}""".splitlines()
)
CHOICE = re.compile(r"\{([^{}]*)\}")  # the innermost ones
SENTENCES = """\
Type {} to continue.
I cannot find {} anywhere.
The new value is {}.
Did you see {} on the screen?
{} was removed last week.
Please write {} at the top of the page.
If {} is wrong, the program stops.
They sent us {} in the morning.
There is a problem with {}, so please wait.
You should remember {} for later.""".splitlines()
NAMES = re.split(
    r",\s",
    """\
Mei-Ling Zhao, Oyelaran, Grzegorz Brzęczyszczykiewicz, Søren Østergaard, Priyanka Venkataraman, D'Ambrosio,
Nguyễn Văn Hùng, Tshepo, Xiomara Quiñones, Bartholomew, Zeynep Yıldız, McAllister, Lakshmi, Jean-Baptiste Roux,
Ólafur, Haruki Tanizaki, Wanjiru, Eleftheria, Siobhán Kelleher, Tariq al-Masri, Glimbo, Fluxonaut, Quadrivo,
NoteForge, Brisklane, Ozymo, PixelHarbor, Vortigen, Snaplet, Tindrum""",
)
WITH_NAMES = """\
I have a letter from {}.
{} wants to see you.
We will go with {} tomorrow.
The house of {} is old.
Tell {} that we are here.
Yesterday {} called again.
Did {} answer you?
This was written by {}.
{}'s answer was short.
Without {} nothing works.""".splitlines()
TAG = re.compile(r"</?[bi]>")
SPAN = re.compile(r"<b>(.*?)</b>")
LABELS = re.split(
    r",\s",
    """\
Save, Cancel, Insert, Delete, Options, Properties, Print, Search, Close, Replace, Settings, Format, File, Edit,
Help""",
)
WITH_LABELS = """\
Click <b>{}</b> to continue.
Choose <b>{}</b> in the menu and press Enter.
The <b>{}</b> button is disabled.
Use <b>{}</b> to close the dialog.""".splitlines()
FUNCTION_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the and for with this that these those from into onto are was were has have had not can may you your "
        "will would should could they them their its his her him our all any one but when where which who what how "
        "than then there here also been being about over under only such each some other",
        "de": "der die das den dem des ein eine einen einem einer und oder in im auf zu zur zum von vom mit für sie es "
        "ist wird werden nicht auch als an am bei um",
        "es": "el la los las un una y o de del a al en con por para que se lo es no su sus",
    }.items()
}


def make(template: str, random: Random) -> str:
    """Return one of the things that a template describes."""

    def choose(match: re.Match[str]) -> str:
        if numbers := re.fullmatch(r"(\d+)-(\d+)", match[1]):
            number = str(random.randint(int(numbers[1]), int(numbers[2])))
            return number.zfill(len(numbers[2])) if len(numbers[1]) > 1 and numbers[1][0] == "0" else number
        return random.choice(match[1].split("|"))

    while CHOICE.search(template):
        template = CHOICE.sub(choose, template)
    return template


class Case(NamedTuple):
    """A sentence with something in it that must come back."""

    kind: str
    thing: str
    source: str


def make_cases() -> Iterator[Case]:
    """Yield 2,000 sentences: for each kind a hundred things, in ten sentences."""
    random = Random(SEED)
    for kind, template in KINDS.items():
        for number in range(100):
            thing = make(template, random)
            yield Case(kind, thing, SENTENCES[number % len(SENTENCES)].format(thing))


def accepted(case: Case) -> list[str]:
    """Return regular expressions, one of which a right translation has: the thing, or as another language writes it."""
    thing = case.thing
    swapped = thing.translate(str.maketrans(",.", ".,"))
    if case.kind == "date in words":
        month, day, year = re.findall(r"\w+", thing)
        months = "|".join([month, *MONTHS[month]])
        return [rf"(?=.*(?:{months}))(?=.*(?<!\d){day}(?!\d))(?=.*(?<!\d){year}(?!\d))"]
    forms = [thing]
    if case.kind in ("grouped number", "decimal", "price"):
        forms += [swapped, thing.replace(",", ""), thing.replace(",", " ")]
    if case.kind == "price":
        forms += [f"{form[1:]}{space}{form[0]}" for form in list(forms) for space in ("", " ", "\u00a0")]
    if case.kind == "percentage":
        forms += [thing.replace(" ", ""), thing.replace(" ", "\u00a0"), thing.replace("%", " %")]
    if case.kind == "shortcut":
        forms += [thing.replace("Ctrl", "Strg"), thing.replace("Ctrl", "Strg").replace("Shift", "Umschalt")]
    return [
        rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9]|[.,]\d)" if form[0].isalnum() else re.escape(form)
        for form in forms
    ]


def is_right(case: Case, text: str) -> bool:
    """Return whether a translation has the thing of its source."""
    return any(re.search(form, text) for form in accepted(case))


def share(count: int, total: int) -> str:
    """Return a count with its share in per cent and Wilson's interval of 95 %."""
    if not total:
        return "none"
    z, p = 1.96, count / total
    middle, spread = p + z * z / (2 * total), z * sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    low, high = (100 * (middle + sign * spread) / (1 + z * z / total) for sign in (-1, 1))
    return f"{count} of {total}: {100 * p:.1f} % ({max(low, 0):.1f} to {high:.1f})"


def with_thing(source: str, thing: str) -> str:
    """Return a sentence with a thing in brackets before its last mark, where it disturbs the grammar of no language."""
    end = len(source.rstrip(".!?… "))
    return f"{source[:end]} ({thing}){source[end:]}"


def without_thing(text: str, thing: str) -> str:
    """Return a translation without the thing, and its brackets."""
    return re.sub(rf"\s*\(?{re.escape(thing)}\)?", "", text, count=1)


def tag_words(source: str, random: Random, spans: int) -> str:
    """Return a sentence with so many words in <b>; with 0, one in <b>, and it and the next one in <i>."""
    words = source.split(" ")
    content = [
        index
        for index, word in enumerate(words)
        if re.fullmatch("[A-Za-z]{3,}", word) and word.lower() not in FUNCTION_WORDS["en"]
    ] or [0]
    chosen = random.sample(content, min(spans or 1, len(content)))
    for index in chosen:
        words[index] = f"<b>{words[index]}</b>"
    if not spans:
        words[chosen[0]] = f"<i>{words[chosen[0]]}"
        words[min(chosen[0] + 1, len(words) - 1)] += "</i>"
    return " ".join(words)


def measure_things(translator: Translator) -> Iterator[tuple[str, str]]:
    """Yield what is lost of the things and names in made sentences, and how much of it has no flag."""
    named = [
        Case("name", name, WITH_NAMES[(number + 3 * turn) % len(WITH_NAMES)].format(name))
        for number, name in enumerate(NAMES)
        for turn in range(5)
    ]
    for name, cases in (("2,000 sentences of 20 kinds", list(make_cases())), ("150 sentences with a name", named)):
        translations = translator.translate([case.source for case in cases])
        wrong = [(case, each) for case, each in zip(cases, translations, strict=True) if not is_right(case, each.text)]
        silent = [(case, each) for case, each in wrong if not each.flags]
        yield f"{name}: wrong", share(len(wrong), len(cases))
        yield f"{name}: wrong, not flagged", share(len(silent), len(cases))
        for case, translation in silent[:SHOWN]:
            print(f"not flagged: {case.source} -> {translation.text}", file=sys.stderr)


def measure_rest(translator: Translator, pairs: Pairs) -> Iterator[tuple[str, str]]:
    """Yield BLEU of the test set, and of the rest of its sentences where each has a thing in it as well."""
    random, sources = Random(SEED), [source for source, _ in pairs]
    things = [make(random.choice(list(KINDS.values())), random) for _ in pairs]
    plain = [translation.text for translation in translator.translate(sources)]
    yield "test set: BLEU", f"{bleu(plain, pairs):.2f}"
    numbers = [compare_numbers(source, text) != ([], []) for source, text in zip(sources, plain, strict=True)]
    yield "test set: sentences with other numbers", share(sum(numbers), len(numbers))
    texts = [each.text for each in translator.translate(list(map(with_thing, sources, things)))]
    yield "with a thing in brackets: BLEU of the rest", f"{bleu(list(map(without_thing, texts, things)), pairs):.2f}"


def measure_tags(translator: Translator, pairs: Pairs, target: str) -> Iterator[tuple[str, str]]:
    """Yield for one span, several and nested ones: BLEU without the tags, how many come once, and where they stand."""
    for spans, name in ((1, "one span"), (2, "two spans"), (3, "three spans"), (0, "nested spans")):
        random = Random(SEED)
        marked = [tag_words(source, random, spans) for source, _ in pairs]
        texts = [each.text for each in translator.translate(marked)]
        once = sum(sorted(TAG.findall(a)) == sorted(TAG.findall(b)) for a, b in zip(marked, texts, strict=True))
        inside = [re.findall(r"\w+", span.lower()) for text in texts for span in SPAN.findall(text)]
        yield f"{name}: BLEU without the tags", f"{bleu([TAG.sub('', text) for text in texts], pairs):.2f}"
        yield f"{name}: tags once", share(once, len(texts))
        if target in FUNCTION_WORDS:
            alone = sum(set(words) <= FUNCTION_WORDS[target] for words in inside)
            yield f"{name}: around a function word alone", share(alone, len(inside))
    labels = [(text.format(label), label) for text in WITH_LABELS for label in LABELS]
    for name, pattern in (
        ("60 sentences with a label in <b>: its English word stays", ""),
        ("the same without tags", TAG),
    ):
        texts = [each.text for each in translator.translate([re.sub(pattern, "", text) for text, _ in labels])]
        kept = sum(bool(re.search(rf"\b{label}\b", text)) for (_, label), text in zip(labels, texts, strict=True))
        yield name, share(kept, len(texts))


def bleu(translations: Sequence[str], pairs: Pairs) -> float:
    """Return the BLEU of the translations of a corpus."""
    return evaluate(translations, [target for _, target in pairs]).bleu.value


def benchmark(model: str, test: str, threads: int, rounds: int) -> str:
    """Return two tables in Markdown: what is lost with and without safeguards, and the time of sentences.

    model: a folder; test: sentence pairs from English; rounds: turns of each contender where time is measured.
    """
    guarded = Translator.load(model, threads=threads)
    bare, reckless = (guarded.replace(safeguards=each) for each in (NO_SAFEGUARDS, Safeguards(placeholders=False)))
    languages = read_languages(fetch_model(Path(model)))
    pairs, target = read_corpus([test]).pairs, languages.target if languages else ""
    columns = []
    for translator in (bare, guarded):
        measured = [
            *measure_things(translator),
            *measure_rest(translator, pairs),
            *measure_tags(translator, pairs, target),
        ]
        columns.append(measured)
    rows = [[name, before, after] for (name, before), (_, after) in zip(*columns, strict=True)]
    nothing = [source for source, _ in pairs if not re.search(r"[^\w\s.,;:!?'’\"()-]|\d", source)]
    something = [case.source for case in make_cases()][:: 2000 // TIMED]
    times = []
    for name, sources in (("test sentences with nothing to keep", nothing), ("sentences with a thing", something)):

        def run(translator: Translator, sources: Sequence[str] = sources) -> int:
            return len(translator.translate(sources))

        contenders = [Contender("without", partial(run, reckless)), Contender("with", partial(run, guarded))]
        time_in_turn(contenders, rounds)
        ratio = contenders[0].median / contenders[1].median
        times.append([f"{len(sources)} {name}", *map(str, contenders), f"{ratio:.2f}"])
    return "\n".join(
        [
            f"{describe_machine()}.",
            "",
            markdown_table(["", "without safeguards", "with safeguards"], rows),
            "",
            "Sentences per second, with all other safeguards.",
            "",
            markdown_table(["", "nothing is kept", "with safeguards", "times as long"], times),
        ]
    )
