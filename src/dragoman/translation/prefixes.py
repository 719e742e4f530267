"""Continue translations that are begun: divide a prefix among the segments of a text, and find the next words."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from dragoman.config import SearchConfig
from dragoman.data.tokenizers import SideTokenizer
from dragoman.errors import UsageError
from dragoman.text.segmentation import split_sentences
from dragoman.translation.alternatives import find_words, likely_starts, next_word_start
from dragoman.translation.segment_search import SegmentSearch
from dragoman.translation.segments import Segment, join_candidates
from dragoman.translation.translation import Alternative

# A prefix has fewer subwords than EXTRA and LONGER for each of its source: more is no translation, and takes its time.
EXTRA, LONGER = 500, 10


def begin_segments(
    segments: Sequence[Segment], prefix: str, segment_search: SegmentSearch, max_tokens: int
) -> list[Segment]:
    """Return the segments of a text whose translation begins with `prefix`, divided among those with words.

    All but the one in which the prefix ends are given as a whole. The pieces of a sentence of more than `max_tokens`
    tokens are not told apart in its translation: the first one has all of the prefix. Raise UsageError where it is
    longer than the outputs of the model.
    """
    tokenizers = segment_search.tokenizers
    places = [index for index, segment in enumerate(segments) if segment.has_words] or [0]
    text = "".join(segment.text + segment.space for segment in segments)
    whole = has_long_sentence(text, tokenizers.source, max_tokens)
    parts = [prefix] if whole else divide_prefix(prefix.lstrip(), [segments[place].text for place in places])
    begun, places = list(segments), places[: len(parts)]
    for place, part in zip(places, map(str.rstrip, parts), strict=True):
        part_ids = tokenizers.target.encode(part) if part else []
        begun[place] = replace(begun[place], prefix=part, prefix_ids=part_ids, given=True)
    last = begun[places[-1]]
    longest = min(segment_search.engine.max_positions or sys.maxsize, EXTRA + LONGER * len(last.source_ids))
    if (given := len(last.target_tag_ids) + len(last.prefix_ids)) >= longest:
        raise UsageError(f"the translation may begin with at most {longest - 1:,} subwords, not with {given:,}")
    # The next token begins a word, and brings a space; a term may take the place of any word, so none is given.
    if parts[-1] != last.prefix and last.prefix_ids and not last.terms:
        start = next_word_start(
            segment_search.model,
            tokenizers.target,
            segment_search.read(last).source_ids,
            last.prefix_ids,
            last.target_tag_ids,
            {tokens[0] for tokens in segment_search.forbidden if len(tokens) == 1},
        )
        last = replace(last, prefix_ids=last.prefix_ids + start)
    begun[places[-1]] = replace(last, given=False)
    return begun


def divide_prefix(prefix: str, texts: Sequence[str]) -> list[str]:
    """Return the parts of a prefix that begin the translations of the first texts: as many sentences as each text has.

    The last part is all that is left, or '' where a sentence is complete. Joined, the parts are the prefix.
    """
    *complete, last = split_sentences(f"{prefix}X")  # a sentence ends where another one begins
    sentences = [*complete, last[:-1]]
    parts = []
    for text in texts[:-1]:
        count = len(split_sentences(text))
        if len(sentences) <= count:
            break
        parts.append("".join(sentences[:count]))
        sentences = sentences[count:]
    return [*parts, "".join(sentences)]


def has_long_sentence(text: str, tokenizer: SideTokenizer, max_tokens: int) -> bool:
    """Return whether a sentence of a text has more than `max_tokens` tokens."""
    return any(len(tokenizer.encode(sentence)) > max_tokens for sentence in split_sentences(text))


def next_words(
    segments: Sequence[Segment], prefix: str, segment_search: SegmentSearch, search: SearchConfig, count: int
) -> list[Alternative]:
    """Return the words that may come next where the translation of a text begins with `prefix`, likeliest first.

    segments: those of the text, begun with the prefix; at most `count` words are returned. See `alternatives`.
    """
    unfinished = (
        index for index, segment in enumerate(segments) if segment.has_words and not (segment.markup or segment.given)
    )
    if (place := next(unfinished, None)) is None:
        return []
    segment, model, tokenizer = segments[place], segment_search.model, segment_search.tokenizers.target
    source_ids = segment_search.read(segment).source_ids
    prefix = segment.prefix and segment.prefix + prefix[len(prefix.rstrip()) :]
    starts = likely_starts(model, tokenizer, source_ids, prefix, 2 * count, target_tag=segment.target_tag_ids)
    if not prefix or prefix[-1].isspace():  # no word is begun that must stay
        forbidden = {tuple(tokens) for tokens in segment_search.forbidden}
        lengths = {len(tokens) for tokens in forbidden}
        starts = [start for start in starts if not any(tuple(start.tokens[-n:]) in forbidden for n in lengths)]
    begun = [replace(segment, prefix=tokenizer.decode(start.tokens), prefix_ids=start.tokens) for start in starts]
    others = [*segments[:place], *segments[place + 1 :]]
    results = segment_search.translate([*begun, *others], replace(search, n_best=min(2, search.beam)))
    candidates = [candidate for result in results[: len(begun)] for candidate in result.candidates]
    candidates.sort(key=lambda candidate: (candidate.badness, -candidate.hypothesis.score))
    outputs = [candidate.hypothesis.tokens for candidate in candidates]
    best_others = [result.candidates[0] for result in results[len(begun) :]]
    return [
        Alternative(
            word.word,
            word.probability,
            join_candidates(segments, [*best_others[:place], candidates[word.output], *best_others[place:]]),
        )
        for word in find_words(model, tokenizer, source_ids, prefix, outputs, count)
    ]
