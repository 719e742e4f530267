"""Say how the clients of DeepL authenticate, and how errors reach them."""

from dataclasses import replace

from dragoman.server.languages import find_language
from dragoman.server.reading import Refusal
from dragoman.server.routes import Dialect, key_after
from dragoman.server.service import Service

DEEPL = Dialect(
    prefix="/v2/",
    error=lambda refusal: {"message": refusal.message},
    read_key=key_after("deepl-auth-key"),
    schemes={"deepl": {"type": "apiKey", "in": "header", "name": "Authorization"}},
    no_key=(403, "Authorization failed: send the header Authorization: DeepL-Auth-Key KEY"),
    wrong_key=(403, "Authorization failed"),
    missing="Parameter '{}' not specified",
    trace="X-Trace-ID",
)
DEEPL_V3 = replace(DEEPL, prefix="/v3/")


def find(service: Service, field: str, code: str, served: list[str]) -> str:
    """Return the language that a code in a field means. Raise Refusal where it is not served."""
    if (language := find_language(code, served)) is None:
        raise Refusal(400, f"Value for '{field}' not supported.")
    return language
