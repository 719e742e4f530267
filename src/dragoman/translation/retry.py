"""Search again for segments whose first translation is faulty: more carefully, and with placeholders taken out.

"The {name} sees %s." is translated as "The sees.", and its placeholders are restored beside the translations of their
neighbours, so that each comes back exactly once.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer
from dragoman.text import verbatim
from dragoman.text.glossary import TermMatch
from dragoman.text.known_words import replace_copies
from dragoman.text.verbatim.detect import Placeholder
from dragoman.text.verbatim.kinds import EXACT, Kinds
from dragoman.translation.annotate import Annotator
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.segments import Segment

Links = list[tuple[int, int]]  # pairs of a character of a source and the one that translates it, by index
EXACT_KINDS: Kinds = frozenset(EXACT)
CAREFUL_BEAM, CAREFUL_NGRAM = 4, 3
BETWEEN = re.compile(r"[\s()\[\]:;,.–—-]*")  # placeholders of a label
MAX_WORDS_IN_TAGS = 16  # each costs a pass of the model; attention is good enough to find the place of many
WORD_REST = re.compile(r"\w*")
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
    removed: Sequence[verbatim.Removed]
    stand_ins: Sequence[verbatim.StandIn] = ()  # numbers of the bare one, with those that they stand for
    other_names: Mapping[str, str] = field(default_factory=dict)  # in the bare one, with those that they stand for
    is_first: bool = False  # the first search for the segment, with nothing but its tags taken out

    @property
    def needs_links(self) -> bool:
        """Return whether there may be anything to put back: a placeholder, or a number that is lost."""
        return bool(self.removed) or any(map(str.isdecimal, self.bare.text))

    @property
    def has_words(self) -> bool:
        """Return whether the bare segment has anything to translate besides punctuation."""
        return any(map(str.isalnum, self.bare.text))


def prepare_retries(
    segments: Sequence[Segment],
    tokenizer: SideTokenizer,
    safeguards: Safeguards,
    outputs: Sequence[str] | None = None,
    copied: Sequence[str] = (),
) -> Iterator[Retry]:
    """Yield a Retry for each segment; placeholders are removed from the bare one if the safeguards say so.

    outputs: the first translations; numbers that they have lost are others in the bare segment. copied: names that the
    model copies, which stand there for others.
    """
    labels = [
        find_label(segment.text, safeguards.kinds) if safeguards.placeholders and not segment.prefix else ""
        for segment in segments
    ]
    texts = [segment.text[len(label) :] for segment, label in zip(segments, labels, strict=True)]
    stand_ins: list[list[verbatim.StandIn]] = [[] for _ in texts]
    if outputs and safeguards.placeholders:
        for row, (segment, output) in enumerate(zip(segments, outputs, strict=True)):
            lost, _ = verbatim.compare_numbers(segment.text, output, segment.prefix)
            texts[row], stand_ins[row] = verbatim.with_stand_ins(texts[row], lost)
    others: list[dict[str, str]] = [{} for _ in texts]
    if safeguards.placeholders and copied:
        for row, text in enumerate(texts):
            texts[row], others[row] = with_other_names(text, safeguards.find_names(text), copied)
    bare = [verbatim.remove(text, safeguards.source_kinds) if safeguards.placeholders else (text, []) for text in texts]
    bare = [with_plain_spaces(text, removed, tokenizer) for text, removed in bare]
    ids = tokenizer.encode_sources([text for text, _ in bare])
    for row, (segment, label, (text, removed), bare_ids) in enumerate(zip(segments, labels, bare, ids, strict=True)):
        terms = segment.terms
        if text != segment.text and terms:
            terms = move_terms(terms, safeguards.find_terms(text))
        plain = replace(segment, text=text, ids=bare_ids, terms=terms)
        yield Retry(segment, label, plain, removed, stand_ins[row], others[row])


def with_other_names(text: str, names: Sequence[Placeholder], copied: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a text with names that are copied in the place of its `names`, and these with those they stand for.

    The last names stay where too few are copied.
    """
    free = [name for name in copied if name not in text]
    others = dict(zip(dict.fromkeys(name.text for name in names), free, strict=False))
    for name in reversed(names):
        text = text[: name.start] + others.get(name.text, name.text) + text[name.end :]
    return text, {other: name for name, other in others.items()}


def without_tags(segment: Segment, tokenizer: SideTokenizer, safeguards: Safeguards) -> Retry:
    """Return a segment with a bare one that has no tags, but whatever else is to stay."""
    text, removed = with_plain_spaces(*verbatim.remove(segment.text, verbatim.TAGS), tokenizer)
    (ids,) = tokenizer.encode_sources([text])
    terms = move_terms(segment.terms, safeguards.find_terms(text)) if segment.terms else ()
    return Retry(segment, "", replace(segment, text=text, ids=ids, terms=terms), removed, is_first=True)


def with_plain_spaces(
    text: str, removed: Sequence[verbatim.Removed], tokenizer: SideTokenizer
) -> tuple[str, list[verbatim.Removed]]:
    """Return a text without its placeholders with the spaces that the model reads, and where they stood in it."""
    moved = [replace(item, offset=len(tokenizer.plain_spaces(text[: item.offset]))) for item in removed]
    return tokenizer.plain_spaces(text), moved


def find_label(text: str, kinds: Kinds) -> str:
    """Return the placeholders that a text begins with and the marks and the space behind them, such as "%s: ".

    Without them, ": file not found" would be left, which is no sentence. '' where a word follows without a mark.
    """
    label = ""
    position = 0
    for placeholder in verbatim.find(text, kinds):
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


def words_in_tags(retry: Retry) -> list[int]:
    """Return where the words of the bare segment begin that stand between a tag and its closing one."""
    pairs = verbatim.tag_pairs([item.tag for item in retry.removed]).items()
    spans = [(retry.removed[opening].offset, retry.removed[closing].offset) for opening, closing in pairs]
    starts = [match.start() for match in re.finditer(r"\S+", retry.bare.text)]
    return [start for start in starts if any(first <= start < last for first, last in spans)]


def find_links(retries: Sequence[Retry], tokens: Sequence[Ids], annotator: Annotator) -> list[Links | None]:
    """Return for each segment the links of the bare one and of its translation, see `Annotator.character_links`.

    Those of words in tags are found by leaving the words out, where these are few. tokens: those of the translations.
    """
    bare = [retry.bare for retry in retries]
    of_segments = annotator.character_links([each.ids for each in bare], tokens, [each.tag_ids for each in bare])
    for row, (retry, links) in enumerate(zip(retries, of_segments, strict=True)):
        starts = words_in_tags(retry)
        if links and 0 < len(starts) <= MAX_WORDS_IN_TAGS:
            others = [link for link in links if link[0] not in starts]
            by_loss = annotator.links_by_loss(retry.bare.ids, tokens[row], retry.bare.tag_ids, starts)
            of_segments[row] = others + by_loss
    return of_segments


def copy_segment(retry: Retry, safeguards: Safeguards) -> str:
    """Return the translation of a segment without words: the segment itself, after its prefix if it has one.

    A segment that begins with its prefix has it already.
    """
    if retry.segment.text.strip().startswith(retry.segment.prefix):
        return retry.segment.text
    return restore_placeholders(retry, f"{retry.segment.prefix} {retry.bare.text}", None, safeguards).strip()


def restore_placeholders(retry: Retry, text: str, links: Links | None, safeguards: Safeguards) -> str:
    """Return `text`, the translation of the bare segment, with the placeholders of the original and no others.

    links: see `find_links`; None where there are none. The prefix stays as it is, and a placeholder in it counts as
    restored. Without the safeguard `placeholders` the text is returned as it is.
    """
    if not safeguards.placeholders:
        return text
    names = "|".join(re.escape(placeholder.text) for placeholder in retry.removed if placeholder.kind == "name")
    kinds = safeguards.kinds | ({verbatim.find_matches(rf"(?<!\w)(?:{names})(?!\w)")} if names else set())
    start = len(retry.bare.prefix) if text.startswith(retry.bare.prefix) else 0
    if text[:start][-1:].isalnum():  # its last word may be longer
        start = WORD_REST.match(text, start).end()  # type: ignore[union-attr]
    words = text[start:].lstrip()
    prefix = text[: len(text) - len(words)]
    in_prefix = Counter(placeholder.text for placeholder in verbatim.find(prefix, kinds))
    missing = []
    for placeholder in retry.removed:
        if in_prefix[placeholder.text]:
            in_prefix[placeholder.text] -= 1
        else:
            missing.append(placeholder)
    kept = Counter(placeholder.text for placeholder in verbatim.find(retry.bare.text, EXACT_KINDS))
    if Counter(placeholder.text for placeholder in verbatim.find(words, EXACT_KINDS)) - kept:  # some are invented
        words, links = verbatim.remove(words, EXACT_KINDS)[0], None  # without them no alignment fits
    wrong: Sequence[verbatim.StandIn] = ()
    if not retry.is_first:  # a second search may find what is better than a number put in
        lacking, wrong = verbatim.mend_numbers(retry.bare.text, words, prefix)
        missing = sorted([*missing, *lacking], key=lambda item: item.offset)
    if links:
        links = [(source, target - len(prefix)) for source, target in links if target >= len(prefix)]
    words = verbatim.restore(words, retry.bare.text, missing, links, kinds)
    for name, original in retry.other_names.items():
        words = replace_copies(words, name, original)
    for stand_ins in (wrong, retry.stand_ins):
        words = verbatim.replace_stand_ins(words, stand_ins)
    return prefix + retry.label + words
