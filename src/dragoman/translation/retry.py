"""Search again for segments whose first translation is faulty: more carefully, and with placeholders taken out.

"The {name} sees %s." is translated as "The sees.", and its placeholders are restored beside the translations of their
neighbours, so that each comes back exactly once.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer
from dragoman.text import placeholders
from dragoman.text.glossary import TermMatch
from dragoman.translation.annotate import Annotator
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.segments import Segment

CAREFUL_BEAM, CAREFUL_NGRAM = 4, 3
BETWEEN = re.compile(r"[\s()\[\]:;,.–—-]*")  # placeholders of a label
LABEL_END = re.compile(r"(?:\s?[)\]:;,.!?…–—-])+\s+")


def careful_search(search: SearchConfig) -> SearchConfig:
    """Return the settings of the second search: a plain beam search that repeats no n-gram and finds nothing empty.

    It has at least CAREFUL_BEAM beams, and as many translations as `search` if there are beams for them; what else
    `search` sets stays.
    """
    beam = max(search.beam, CAREFUL_BEAM)
    return replace(
        search,
        beam=beam,
        beam_groups=1,
        diversity_penalty=SearchConfig.diversity_penalty,
        n_best=min(search.n_best, beam),
        min_length=max(search.min_length, 1),
        no_repeat_ngram=search.no_repeat_ngram or CAREFUL_NGRAM,
        temperature=None,
        top_k=None,
        top_p=1.0,
    )


@dataclass(frozen=True)
class Retry:
    """A segment that is translated a second time."""

    segment: Segment
    label: str  # placeholders that it begins with, with the marks after them: "%s: "; they stay as they are
    bare: Segment  # what follows the label, without its placeholders
    removed: Sequence[placeholders.Removed]

    @property
    def has_words(self) -> bool:
        """Return whether the bare segment has anything to translate besides punctuation."""
        return any(map(str.isalnum, self.bare.text))


def prepare_retries(segments: Sequence[Segment], tokenizer: SideTokenizer, safeguards: Safeguards) -> Iterator[Retry]:
    """Yield a Retry for each segment; placeholders are removed from the bare one if the safeguards say so."""
    labels = [
        find_label(segment.text, safeguards.numbers) if safeguards.placeholders and not segment.prefix else ""
        for segment in segments
    ]
    texts = [segment.text[len(label) :] for segment, label in zip(segments, labels, strict=True)]
    bare = [placeholders.remove(text, safeguards.numbers) if safeguards.placeholders else (text, []) for text in texts]
    bare = [with_plain_spaces(text, removed, tokenizer) for text, removed in bare]
    ids = tokenizer.encode_sources([text for text, _ in bare])
    for segment, label, (text, removed), bare_ids in zip(segments, labels, bare, ids, strict=True):
        terms = segment.terms
        if text != segment.text and terms:
            terms = move_terms(terms, safeguards.find_terms(text))
        yield Retry(segment, label, replace(segment, text=text, ids=bare_ids, terms=terms), removed)


def with_plain_spaces(
    text: str, removed: Sequence[placeholders.Removed], tokenizer: SideTokenizer
) -> tuple[str, list[placeholders.Removed]]:
    """Return a text without its placeholders with the spaces that the model reads, and where they stood in it."""
    moved = [replace(item, offset=len(tokenizer.plain_spaces(text[: item.offset]))) for item in removed]
    return tokenizer.plain_spaces(text), moved


def find_label(text: str, numbers: bool) -> str:
    """Return the placeholders that a text begins with and the marks and the space behind them, such as "%s: ".

    Without them, ": file not found" would be left, which is no sentence. '' where a word follows without a mark.
    """
    label = ""
    position = 0
    for placeholder in placeholders.find(text, numbers):
        if not BETWEEN.fullmatch(text, position, placeholder.start):
            break
        position = placeholder.end
        if end := LABEL_END.match(text, position):
            label = text[: end.end()]
    return label


def move_terms(terms: Sequence[TermMatch], in_bare: Sequence[TermMatch]) -> tuple[TermMatch, ...]:
    """Return the terms of a segment with the positions that they have in the bare one, whose terms are `in_bare`.

    Without positions where these are other terms.
    """
    if [term.targets for term in terms] == [term.targets for term in in_bare]:
        return tuple(in_bare)
    return tuple(replace(term, start=0, end=0) for term in terms)


def copy_segment(retry: Retry, annotator: Annotator, safeguards: Safeguards) -> str:
    """Return the translation of a segment without words: the segment itself, after its prefix if it has one.

    A segment that begins with its prefix has it already.
    """
    if retry.segment.text.strip().startswith(retry.segment.prefix):
        return retry.segment.text
    return restore_placeholders(retry, f"{retry.segment.prefix} {retry.bare.text}", [], annotator, safeguards).strip()


def restore_placeholders(retry: Retry, text: str, tokens: Ids, annotator: Annotator, safeguards: Safeguards) -> str:
    """Return `text`, the translation of the bare segment, with the placeholders of the original and no others.

    tokens: those of the translation, for its alignment. The prefix stays as it is, and a placeholder in it counts as
    restored. Without the safeguard `placeholders` the text is returned as it is.
    """
    if not safeguards.placeholders:
        return text
    start = len(retry.bare.prefix) if text.startswith(retry.bare.prefix) else 0
    words = text[start:].lstrip()
    prefix = text[: len(text) - len(words)]
    in_prefix = Counter(placeholder.text for placeholder in placeholders.find(prefix, safeguards.numbers))
    missing = []
    for placeholder in retry.removed:
        if in_prefix[placeholder.text]:
            in_prefix[placeholder.text] -= 1
        else:
            missing.append(placeholder)
    links = None
    if placeholders.find(words, safeguards.numbers):  # invented ones; without them the alignment no longer fits
        words = placeholders.remove(words, safeguards.numbers)[0]
    elif missing and (all_links := annotator.character_links(retry.bare.ids, tokens, retry.bare.tag_ids)):
        links = [(source, target - len(prefix)) for source, target in all_links if target >= len(prefix)]
    return prefix + retry.label + placeholders.restore(words, retry.bare.text, missing, links, safeguards.numbers)
