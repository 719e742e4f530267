"""Keep translations within so many characters, as buttons and columns need: choose among those that a search finds."""

from collections.abc import Sequence
from dataclasses import replace

from dragoman.translation.translation import Translation
from dragoman.translation.translator import Translator

BEAMS = 12  # of the searches for shorter translations


def within_limits(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[Translation],
    limits: Sequence[int],
    tags: Sequence[str],
) -> list[Translation]:
    """Return the translations, and in place of those that are too long the best that fit.

    limits: for each how many characters it may have, 0 for any number; tags: of the texts. A shorter one is looked for
    in wider searches, with the length penalty and without. One that stays too long is flagged.
    """
    fitting = list(translations)
    for index, (text, translation, limit, tag) in enumerate(zip(texts, translations, limits, tags, strict=True)):
        if not too_long(translation.output, limit):
            continue
        for alpha in (translator.search.length_penalty, 0.0):
            search = replace(translator.search, length_penalty=alpha, temperature=None, beam_groups=1)
            best = translator.replace(search=search).translate(text, tag, beam=BEAMS, n_best=BEAMS)
            chosen = next(
                (each for each in (best, *best.alternatives) if len(each.output) <= limit and each.output), None
            )
            if chosen:
                fitting[index] = replace(chosen, alternatives=())
                break
        else:
            fitting[index] = replace(translation, flags=(*translation.flags, too_long(translation.output, limit)))
    return fitting


def too_long(translation: str, limit: int) -> str:
    """Return the flag of a translation that has more characters than it may have, '' of others."""
    return f"{len(translation)} characters instead of {limit}" if len(translation) > limit > 0 else ""


def is_unsure(translation: Translation, limit: int, mark: str) -> bool:
    """Return whether a translation enters a document only with its mark for a review, or not at all if it has none.

    It does if it is too long or was left out; with a mark also if it repeats itself or has lost something.
    """
    is_faulty = any(flag == "loop" or flag.startswith("lost ") for flag in translation.flags)
    return translation.left_out or bool(too_long(translation.output, limit)) or (bool(mark) and is_faulty)
