"""Measure in which form a glossary puts its terms into German, and what it costs: number, compounds, negation.

    python -m benchmarks term-forms MODEL TERMS PAIRS [PAIRS ...]

TERMS, such as benchmarks/term_forms.en-de.tsv, has three columns: a source word in the singular, the stems that German
has for it, with commas between them, and the term, a singular and a plural with "|" between them. The first 577 pairs
whose source has one of the words, and that are below 300 characters, are translated without the terms and with them.
What counts as half of a compound is read off the letters: a replaced word with one of the stems and more letters than
an ending has, which the translation with the term no longer has.
"""

import re
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks.glossary_quality import share
from dragoman import Safeguards, Translation, Translator
from dragoman.text.glossary import Glossary, parse_entry

SENTENCES, LONGEST = 577, 300
NEGATION = re.compile(r"\b(?:nicht|kein\w*|nie|niemals|ohne|weder)\b", re.IGNORECASE)
ENDING = "(?:s|es|e|en|n|er|ern|ns)?"
REPORTS = ("terms_met", "terms_in_compounds", "terms_refused", "terms_missed")


class Term(NamedTuple):
    """A line of TERMS."""

    source: str
    stems: list[str]
    forms: list[str]


def select(terms: Sequence[Term], files: Sequence[str]) -> list[str]:
    """Return the first SENTENCES sources that have one of the terms, each once."""
    has_term = re.compile(rf"\b(?:{'|'.join(term.source for term in terms)})\b", re.IGNORECASE)
    lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
    sources = dict.fromkeys(line.split("\t")[0] for line in dict.fromkeys(lines))
    return [source for source in sources if has_term.search(source) and len(source) < LONGEST][:SENTENCES]


def plurals(term: Term, text: str) -> list[bool]:
    """Return of each form of a term in a text whether it is the plural; none where the term has one form."""
    forms = [form.lower() for form in term.forms]
    if len(forms) == 1:
        return []
    return [forms.index(word) == 1 for word in re.findall(r"\w+", text.lower()) if word in forms]


def lost_halves(terms: Sequence[Term], before: str, after: str) -> list[bool]:
    """Return of each word that was replaced by one of the terms whether it was a compound whose other half is lost."""
    words, others = re.findall(r"\w+|\S", before), re.findall(r"\w+|\S", after)
    lost: list[bool] = []
    for kind, start, end, first, last in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        written = " ".join(others[first:last]).lower()
        for word in words[start:end] if kind != "equal" else ():
            for term in terms:
                stems = [stem.lower() for stem in term.stems if stem.lower() in word.lower()]
                if stems and any(form.lower() in written for form in term.forms):
                    whole = any(re.fullmatch(stem + ENDING, word, re.IGNORECASE) for stem in stems)
                    kept = any(
                        word.lower().split(stem)[0][:4] in written for stem in stems if word.lower().find(stem) > 3
                    )
                    lost.append(not whole and not kept)
                    break
    return lost


def translate(translator: Translator, sources: Sequence[str]) -> tuple[list[Translation], float]:
    """Return the translations and the seconds they took."""
    start = perf_counter()
    return translator.translate(sources), perf_counter() - start


def main() -> None:
    model, file, *pairs = sys.argv[1:]
    columns = [line.split("\t") for line in Path(file).read_text(encoding="utf-8").splitlines()]
    terms = {source: Term(source, stems.split(","), forms.split("|")) for source, stems, forms in columns}
    sources = select(list(terms.values()), pairs)
    glossary = Glossary([parse_entry(f"{term.source}\t{'|'.join(term.forms)}", 1) for term in terms.values()])
    translator = Translator.load(model)
    plain, seconds = translate(translator, sources)
    outputs, with_terms = translate(translator.replace(safeguards=Safeguards(glossary=glossary)), sources)
    counts = [sum(len(getattr(output, report)) for output in outputs) for report in REPORTS]
    print(f"{len(sources)} sentences, {sum(counts)} terms")
    print("met {}, in compounds {}, refused {}, missed {}".format(*counts))
    in_plural: list[bool] = []
    halves: list[bool] = []
    for before, after in zip(plain, outputs, strict=True):
        met = [terms[source.lower()] for source in dict.fromkeys(after.terms_met)]
        in_plural += [plural for term in met for plural in plurals(term, after.text)]
        halves += lost_halves(met, before.text, after.text)
    fewer = sum(
        len(NEGATION.findall(after.text)) < len(NEGATION.findall(before.text))
        for before, after in zip(plain, outputs, strict=True)
    )
    print(f"in the plural {share(in_plural)}; half of a compound lost {share(halves)}; negation lost {fewer}")
    print(f"seconds: plain {seconds:.1f}, with the glossary {with_terms:.1f}")


if __name__ == "__main__":
    main()
