"""Measure what a glossary does to translations: how many terms are met, where they stand, and what the rest is like.

    python -m benchmarks glossary-quality MODEL TERMS PAIRS [PAIRS ...]

TERMS, such as benchmarks/glossary_terms.en-es.tsv, has three columns: a source word, the word that the references have
for it, and another word, the term, which takes its place in a copy of the references. The first 300 pairs are used
that have one to three of the source words, each of them once, and in the reference the words for them, once each. They
are translated without a glossary, with one of the terms, and with an ordinary one, of the words that the references
have.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from time import perf_counter

SENTENCES, MOST = 300, 3
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Term:
    """A line of TERMS: a source word, the word that references have for it, and the one to use instead."""

    source: str
    usual: str
    target: str


@dataclass(frozen=True)
class Case:
    """A sentence, its reference, and the terms that are in it."""

    source: str
    reference: str
    terms: tuple[Term, ...]

    @property
    def exchanged(self) -> str:
        """The reference with the terms in the place of its own words."""
        text = self.reference
        for term in self.terms:
            text = exchange(text, term)
        return text


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return WORD.findall(text.lower())


def exchange(text: str, term: Term) -> str:
    """Return the text with the term for each of its own word, with a capital where that had one."""

    def other(match: re.Match[str]) -> str:
        return term.target[0].upper() + term.target[1:] if match[0][0].isupper() else term.target

    return re.sub(rf"\b{re.escape(term.usual)}\b", other, text, flags=re.IGNORECASE)


def select(terms: Sequence[Term], files: Sequence[str]) -> list[Case]:
    """Return the first SENTENCES pairs that have one to MOST terms, each of them once and with its word once."""
    cases = []
    for line in (line for file in files for line in Path(file).read_text(encoding="utf-8").split("\n")):
        source, tab, reference = line.partition("\t")
        there = [term for term in terms if term.source.lower() in words(source)]
        once = all(words(source).count(t.source.lower()) == words(reference).count(t.usual.lower()) == 1 for t in there)
        once = once and all(term.source in WORD.findall(source) for term in there)  # in the case of the list
        fresh = not any(t.target.lower() in words(reference) for t in there)
        if tab and 1 <= len(there) <= MOST and once and fresh:
            cases.append(Case(source, reference, tuple(there)))
    return cases[:SENTENCES]


def translate(model: str, cases: Sequence[Case], glossary: str = "") -> tuple[list[str], float]:
    """Return the translations with a glossary, and the seconds it took. Raise CalledProcessError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        lines, terms = Path(folder) / "lines.txt", Path(folder) / "terms.tsv"
        lines.write_text("".join(f"{case.source}\n" for case in cases), encoding="utf-8")
        terms.write_text(glossary, encoding="utf-8")
        command = [sys.executable, "-m", "dragoman", "translate", "-m", model, "-i", str(lines), "--quiet"]
        start = perf_counter()
        command += ["--glossary", str(terms)] * bool(glossary)
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        return ran.stdout.removesuffix("\n").split("\n"), perf_counter() - start


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return the BLEU of the outputs."""
    from sacrebleu import corpus_bleu

    return corpus_bleu(list(outputs), [list(references)]).score


def place(plain: str, output: str, term: Term) -> bool | None:
    """Return whether the term stands in the output where its own word stood in the plain translation.

    That is so if the longest common parts of the two, one with the term in the place of the word, have the term in
    common. None where the plain translation has the word not at all, or several times.
    """
    before, after = words(exchange(plain, term)), words(output)
    if before.count(term.target.lower()) != 1:
        return None
    at = before.index(term.target.lower())
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return any(block.a <= at < block.a + block.size for block in blocks)


def report(name: str, cases: Sequence[Case], plain: Sequence[str], outputs: Sequence[str]) -> None:
    """Print a row of the table: terms met, in place and beside their own word; BLEU against exchanged references."""
    triples = zip(cases, plain, outputs, strict=True)
    pairs = [(term, before, after) for case, before, after in triples for term in case.terms]
    met = [term.target.lower() in words(after) for term, _, after in pairs]
    repeated = [term.usual.lower() in words(after) for term, _, after in pairs]
    places = [place(before, after, term) for term, before, after in pairs]
    known = [placed for placed in places if placed is not None]
    both = [m and r for m, r in zip(met, repeated, strict=True)]
    print(
        f"{name:10} terms met {share(met)}, in place {share(known)}, met beside own word {share(both)}, "
        f"BLEU {bleu(outputs, [case.exchanged for case in cases]):.1f}",
        flush=True,
    )


def share(values: Sequence[bool]) -> str:
    """Return how many of the values are true, and in percent."""
    return f"{sum(values)} of {len(values)} ({100 * sum(values) / max(len(values), 1):.0f} %)"


def main() -> None:
    model, file, *pairs = sys.argv[1:]
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    terms = [Term(*line.split("\t")) for line in lines]
    cases = select(terms, pairs)
    print(f"{len(cases)} sentences with {sum(len(case.terms) for case in cases)} terms")
    plain, seconds = translate(model, cases)
    report("plain", cases, plain, plain)
    outputs, with_terms = translate(model, cases, "".join(f"{term.source}\t{term.target}\n" for term in terms))
    report("glossary", cases, plain, outputs)
    print(f"seconds: plain {seconds:.1f}, with the glossary {with_terms:.1f}")
    ordinary, _ = translate(model, cases, "".join(f"{term.source}\t{term.usual}\n" for term in terms))
    references = [case.reference for case in cases]
    have = [all(t.usual.lower() in words(text) for t in case.terms) for case, text in zip(cases, plain, strict=True)]
    changed = sum(text != other for text, other, has in zip(plain, ordinary, have, strict=True) if has)
    print(f"ordinary terms: {sum(have)} plain translations have them all; {changed} of these changed; ", end="")
    print(f"BLEU {bleu(plain, references):.1f} without and {bleu(ordinary, references):.1f} with the glossary")


if __name__ == "__main__":
    main()
