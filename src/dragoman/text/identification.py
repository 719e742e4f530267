"""Tell how likely a text is in each language, by py3langid, where it is installed."""

import importlib.util
import re
from functools import cache
from typing import Any

NO_LANGUAGE = re.compile(r"[\d_%{}<>]+")
LOOKED_AT = 2000  # characters of a text


@cache
def identifier() -> Any:
    """Return the model of py3langid, None where it is not installed."""
    if importlib.util.find_spec("py3langid") is None:
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=False)


def log_likelihoods(text: str) -> dict[str, float]:
    """Return how likely a text is in each language, in nats; {} without py3langid."""
    model = identifier()
    return dict(model.rank(NO_LANGUAGE.sub("", text[:LOOKED_AT]))) if model else {}


def most_probable(text: str) -> str:
    """Return the most probable language of a text, '' without py3langid."""
    scores = log_likelihoods(text)
    return max(scores, key=lambda language: scores[language]) if scores else ""
