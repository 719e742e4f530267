"""The strings of a program as messages: the plurals of the target language are made, and each sentence is a text.

A format yields the entries of a file; `entry_passages` makes the passages of all formats.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Label,
    Message,
    Passage,
    Skipped,
    Span,
    has_letter,
    replace_lines,
    skipped_lines,
    translatable_lines,
)
from dragoman.documents.encoding import Encoding
from dragoman.documents.icu import COMPLEX, MAX_SENTENCES, Argument, Choice, Sentence, hoist, parse, quote, write
from dragoman.errors import UsageError
from dragoman.text.accelerators import convention, find
from dragoman.text.plurals import Numbers, as_number, numbers_of, sources_of

SHOWN = 20  # keys that a message names
COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
LAST_LINE = re.compile(r"\A.*?(?=\r?\n[^\n]*\Z)", re.DOTALL)  # what is before it
# What stands for the number in plural forms: of printf, of Qt, in the braces of Python, i18next, Ruby and others.
NUMBER = re.compile(
    r"""%(?:\d{1,2}\$|\(\w{1,40}\))?[-+0',]{0,3}(?:[hlqjzt]{0,2}[diu]|[s@]) | %L?[1n](?!\w)
    | %arg\b | %?\{(?:\d{0,2}|n|num|count|number)\} | \{\{\s?(?:n|num|count|number)\s?\}\}""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Entry:
    """A string of a file: its key, its text without escapes, where it is written, and how a text is written there.

    `place`: a number for the keys that this key is below.
    """

    key: str
    text: str
    start: int
    end: int
    write: Callable[[str], str]
    place: int = 0


@dataclass(frozen=True)
class Form:
    """A plural form in a file: where all of it begins and ends, where the name of its category is, and its string."""

    start: int
    end: int
    category: Span
    entry: Entry


@dataclass(frozen=True)
class Plural:
    """A string in several plural forms, in the order of the file; 'selectordinal' if they are for 1st, 2nd, 3rd.

    `between`: what is between two forms, where the file has but one.
    """

    key: str
    forms: tuple[Form, ...]
    kind: str = "plural"
    between: str = "\n"

    @property
    def start(self) -> int:
        """Where its first form begins."""
        return self.forms[0].start

    @property
    def place(self) -> int:
        """That of its strings; see `Entry`."""
        return self.forms[0].entry.place


@dataclass(frozen=True)
class Wording:
    """A sentence of a message as texts to translate: with a number said in the place of its sign, and with the sign.

    The words around a number have the right form. The sign is what is left where a translation loses the number.
    """

    sentence: Sentence
    number: float | None = None
    sign: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts, the best first."""
        parts = [part if isinstance(part, str) else part.sign for part in self.sentence]
        if self.number is None:
            return ("".join(parts),)
        number = f"{self.number:g}"
        return "".join(number if part == self.sign else part for part in parts), "".join(parts)

    def write(self, by_line: Mapping[str, str], quote: Callable[[str], str]) -> str:
        """Return the sentence with its lines translated, and its arguments as a message has them.

        quote: writes words so that nothing in them is an argument. Raise ValueError where an argument is lost.
        """
        arguments = [part for part in self.sentence if isinstance(part, Argument)]
        wanted, originals = Counter(part.sign for part in arguments), {part.sign: part.original for part in arguments}
        signs = re.compile("|".join(map(re.escape, sorted(wanted, key=len, reverse=True))) or "(?!)")
        texts = [replace_lines(text, [by_line[line] for line in translatable_lines(text)]) for text in self.texts]
        if self.number is not None:
            texts[0] = as_number(texts[0], self.number, self.sign) or ""
        for text in texts:
            if Counter(signs.findall(text)) == wanted:
                words = map(quote, signs.split(text))
                return next(words) + "".join(originals[sign] + next(words) for sign in signs.findall(text))
        raise ValueError(f"its arguments, {', '.join(wanted)}, are not all in '{texts[-1]}'")


Sources = dict[str, tuple[str, float | None]]  # by its name, what a branch is made of, and the number said in it
Tree = Choice | Wording  # of which the branches of a choice are such trees


def worded(
    tree: Choice | Sentence,
    config: DocumentConfig,
    numbers: Mapping[str, float] | None = None,
    by_category: Numbers | None = None,
) -> Tree:
    """Return a message with the plural categories of the target language, each made of the source's that says the same.

    numbers: what each argument with that name is said as. by_category: categories to make instead, and numbers of each.
    Branches for one value, such as '=0', stay as they are.
    """
    numbers = numbers or {}
    if not isinstance(tree, Choice):
        spoken = [part for part in tree if isinstance(part, Argument) and part.name in numbers and part.is_plain]
        fitting = [part for part in spoken if has_place(tree, part.name, numbers[part.name])]
        return Wording(tree, numbers[fitting[0].name], fitting[0].sign) if fitting else Wording(tree)
    branches = {
        name: worded(tree.branches[form], config, numbers if number is None else {**numbers, tree.number: number})
        for name, (form, number) in sources(tree, config, by_category).items()
    }
    return replace(tree, branches=branches)


def sources(tree: Choice, config: DocumentConfig, by_category: Numbers | None = None) -> Sources:
    """Return the branches of a translation: of which branch of the source each is made, and of which number it is said.

    by_category: see `worded`. The number is None where the choice is no plural.
    """
    if not tree.is_plural:
        return {name: (name, None) for name in tree.branches}
    ordinal = tree.kind == "selectordinal"
    by_category = by_category or (numbers_of(config.target, ordinal) if config.target else {})
    exact: Sources = {name: (name, float(name[1:]) - tree.offset) for name in tree.branches if name.startswith("=")}
    forms = [name for name in tree.branches if name not in exact]

    def fits(form: str, number: float) -> int:
        """Return 2 where the number can be said in a form, and 1 where the form has an argument for it."""
        return max(
            2 * has_place(sentence, tree.number, number) or int(has_argument(sentence, tree.number))
            for sentence in sentences(tree.branches[form])
        )

    if by_category:
        return {**exact, **sources_of(forms, config.source, by_category, fits, ordinal)}
    in_source = numbers_of(config.source, ordinal)
    return {**exact, **{form: (form, in_source.get(form, in_source["other"])[0]) for form in forms}}


def size(tree: Choice | Sentence, config: DocumentConfig) -> int:
    """Return how many sentences a message may have in the target language, at most."""
    if not isinstance(tree, Choice):
        return 1
    largest = max(size(branch, config) for branch in tree.branches.values())
    added = len(numbers_of(config.target, tree.kind == "selectordinal")) if tree.is_plural and config.target else 0
    return largest * (len(tree.branches) + added)


def has_argument(sentence: Sentence, name: str) -> bool:
    """Return whether a sentence has an argument with that name, in any format."""
    return any(isinstance(part, Argument) and part.name == name for part in sentence)


def has_place(sentence: Sentence, name: str, number: float) -> bool:
    """Return whether a number can be said in a sentence for the argument with that name, and be found there again."""
    signs = [part.sign for part in sentence if isinstance(part, Argument) and part.name == name and part.is_plain]
    if len(signs) != 1:
        return False
    said, text = Wording(sentence, number, signs[0]).texts
    return as_number(said, number, signs[0]) == text


def sentences(tree: "Tree | Sentence") -> Iterator[Any]:
    """Yield the sentences of a message, or their wordings."""
    if isinstance(tree, Choice):
        yield from chain.from_iterable(map(sentences, tree.branches.values()))
    else:
        yield tree


class Phrase:
    """What a string says: its lines to translate, and how it is written with their translations."""

    def __init__(self, tree: Tree, quote: Callable[[str], str], quote_in_plural: Callable[[str], str] | None = None):
        """Take the wordings, and how words are quoted that might be taken for more, also in a branch of a plural."""
        self.tree, self.quote, self.quote_in_plural = tree, quote, quote_in_plural or quote
        texts = chain.from_iterable(wording.texts for wording in sentences(tree))
        self.texts = tuple(dict.fromkeys(chain.from_iterable(map(translatable_lines, texts))))

    def translated(self, translations: Sequence[str]) -> Choice | str:
        """Return the string with the translations of its texts. Raise ValueError where one has lost an argument."""
        by_line = dict(zip(self.texts, translations, strict=True))

        def written(tree: Tree, quote: Callable[[str], str]) -> Choice | str:
            if isinstance(tree, Wording):
                return tree.write(by_line, quote)
            quote = self.quote_in_plural if tree.is_plural else self.quote
            return replace(tree, branches={name: written(branch, quote) for name, branch in tree.branches.items()})

        return written(self.tree, self.quote)


def phrase_of(text: str, config: DocumentConfig, icu: bool, tags: Sequence[str] = ()) -> Phrase:
    """Return what a text says. Raise ValueError where it is not in MessageFormat, although it should be.

    icu: whether it is in MessageFormat; tags: in it, that each sentence must keep.
    """
    if not icu:
        return Phrase(Wording([text]), str)
    tree = with_tags(hoist(parse(text)), tags)
    if size(tree, config) > MAX_SENTENCES:
        raise ValueError(f"its plural forms make more than {MAX_SENTENCES} sentences")
    return Phrase(worded(tree, config), quote, partial(quote, in_plural=True))


def with_tags(tree: Choice | Sentence, tags: Sequence[str]) -> Choice | Sentence:
    """Return a message in which tags are arguments of its sentences."""
    if not tags:
        return tree
    if isinstance(tree, Choice):
        return replace(tree, branches={name: with_tags(branch, tags) for name, branch in tree.branches.items()})
    pattern = re.compile(f"({'|'.join(map(re.escape, dict.fromkeys(tags)))})")
    sentence: list[str | Argument] = []
    for part in tree:
        if isinstance(part, Argument):
            sentence.append(part)
        else:
            sentence += [Argument(piece) if piece in tags else piece for piece in pattern.split(part)]
    return sentence


def missing_keys(keys: Iterable[str], config: DocumentConfig) -> list[Skipped]:
    """Return what to say of the keys of `config` that are not among those of a file.

    Raise UsageError where none of them is, naming those that there are.
    """
    known = dict.fromkeys(keys)  # in order
    missing = [key for key in config.keys if key not in known]
    if missing and len(missing) == len(config.keys):
        raise UsageError(f"no text under the key '{missing[0]}'; {describe_keys(missing[0], [*filter(None, known)])}")
    return [Skipped(0, f"no text under the key '{key}'") for key in missing]


def describe_keys(key: str, known: Sequence[str]) -> str:
    """Return which of the known keys is most like `key`, and which ones there are, for a message."""
    if not known:
        return "no key in the document has a text"
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"{hint}texts are under {', '.join(known[:SHOWN])}{', ...' if len(known) > SHOWN else ''}"


def catalogue(
    original: str,
    encoding: Encoding,
    entries: Iterable[Entry | Plural],
    config: DocumentConfig,
    reasons: list[tuple[int, str]],
    labels: Iterable[Label] = (),
    icu: bool = False,
) -> Document:
    """Return the document of a program's strings; see `entry_passages`. Raise UsageError where no key is wanted.

    reasons: why texts at these offsets are left alone, to which `entries` may add.
    """
    entries = list(entries)
    skipped = [*skipped_lines(original, sorted(reasons)), *missing_keys([entry.key for entry in entries], config)]
    passages = entry_passages(original, entries, config, skipped, icu)
    messages = entry_messages(original, entries, icu)
    return Document(original, encoding, [*passages, *labels], skipped, messages=messages)


def entry_messages(original: str, entries: Sequence[Entry | Plural], icu: bool) -> Iterator[Message]:
    """Yield what entries say. A message with branches, or one that is not valid, has no forms."""
    icu = icu or in_message_format(entries)
    for entry in entries:
        forms: dict[str, str] = {}
        if isinstance(entry, Plural):
            forms = {original[slice(*form.category)]: form.entry.text for form in entry.forms}
        else:
            with suppress(ValueError):
                tree = phrase_of(entry.text, DocumentConfig(), icu).tree
                forms = {"other": tree.texts[-1]} if isinstance(tree, Wording) else {}
        yield Message((entry.key, entry.place), entry.start, forms)


def in_message_format(entries: Iterable[Entry | Plural]) -> bool:
    """Return whether one of the texts can be nothing else than ICU MessageFormat."""
    return any(isinstance(entry, Entry) and COMPLEX.search(entry.text) for entry in entries)


def entry_passages(
    original: str, entries: Iterable[Entry | Plural], config: DocumentConfig, skipped: list[Skipped], icu: bool = False
) -> list[Passage]:
    """Return a passage for each entry with words whose key is wanted, and add to `skipped` what is left alone, and why.

    icu: whether all texts are in ICU MessageFormat; else they are if one of them can be nothing else.
    """
    entries = [entry for entry in entries if not config.keys or entry.key in config.keys]
    icu = icu or in_message_format(entries)
    passages: list[Passage] = []
    reasons: list[tuple[int, str]] = []
    for entry in entries:
        try:
            if isinstance(entry, Plural):
                passages += plural_passage(original, entry, config)
            elif (phrase := phrase_of(entry.text, config, icu)).texts:
                passages.append(Passage(entry.start, entry.end, phrase.texts, partial(render_entry, entry, phrase)))
        except ValueError as error:
            reasons.append((entry.start, f"'{entry.key}' is no message in ICU MessageFormat: {error}"))
    skipped += skipped_lines(original, sorted(reasons))
    return find_accelerators(passages)


def find_accelerators(passages: Iterable[Passage]) -> list[Passage]:
    """Return the passages of a program's messages; those with an accelerator have it apart from their text."""
    passages = list(passages)
    marker = convention(passage.texts[0] for passage in passages if len(passage.texts) == 1)
    found_in = ((passage, find(passage.texts[0], marker) if len(passage.texts) == 1 else None) for passage in passages)
    return [
        replace(passage, texts=(accelerator.text,), accelerator=accelerator)
        if accelerator and has_letter(accelerator.text)
        else passage
        for passage, accelerator in found_in
    ]


def render_entry(entry: Entry, phrase: Phrase, translations: Sequence[str]) -> Content:
    """Yield an entry with the translations of its phrase."""
    yield entry.write(write(phrase.translated(translations)))


def plural_passage(original: str, plural: Plural, config: DocumentConfig) -> Iterator[Passage]:
    """Yield the passage of a string in plural forms, from the first form to the last, if it has words."""
    by_category = {original[slice(*form.category)]: form for form in plural.forms}
    zero = "zero" if "zero" in numbers_of(config.target) else "=0"  # which programs take for 0 in any language
    branches = {
        zero if category == "zero" else category: with_signs(form.entry.text) for category, form in by_category.items()
    }
    tree = Choice("n", plural.kind, branches)
    phrase = Phrase(worded(tree, config), str)
    if phrase.texts:
        start, end = plural.forms[0].start, plural.forms[-1].end
        forms = {
            "zero" if name == "=0" else name: by_category["zero" if form == "=0" else form]
            for name, (form, _) in sources(tree, config).items()
        }
        yield Passage(start, end, phrase.texts, partial(render_plural, original, plural, forms, phrase))


def with_signs(text: str) -> Sentence:
    """Return a plural form as a sentence, in which what stands for the number is an argument."""
    parts: list[str | Argument] = []
    at = 0
    for match in NUMBER.finditer(text):
        parts += [text[at : match.start()], Argument(match[0], "n")]
        at = match.end()
    return [*parts, text[at:]]


def render_plural(
    original: str, plural: Plural, forms: Mapping[str, Form], phrase: Phrase, translations: Sequence[str]
) -> Content:
    """Yield the plural forms of the translation; forms: which form of the source each category is written as.

    What is before a form, such as a comment, stays there; forms that are new have no comments.
    """
    before = {after: original[form.end : after.start] for form, after in pairwise(plural.forms)}
    between = [plural.between, *before.values()][-1]
    if between.strip(", \t\r\n"):
        between = LAST_LINE.sub("", between)
    translated = phrase.translated(translations)
    assert isinstance(translated, Choice)
    for number, ((name, form), text) in enumerate(zip(forms.items(), translated.branches.values(), strict=True)):
        is_new = original[slice(*form.category)] != name
        if number:
            yield between if is_new else before.get(form, between)
        head = original[form.start : form.category.start]
        yield (COMMENT.sub("", head) if is_new else head) + name
        yield original[form.category.end : form.entry.start] + form.entry.write(text)
        yield original[form.entry.end : form.end]
