"""Put the table of routes together: a row for everything that is served."""

from dragoman.server import deepl, deepl_documents, deepl_texts, glossaries, health, libretranslate, own
from dragoman.server.routes import OWN, Dialect, Route

ROUTES: tuple[Route, ...] = (
    *libretranslate.ROUTES,
    *deepl_texts.ROUTES,
    *deepl_documents.ROUTES,
    *deepl.ROUTES,
    *glossaries.ROUTES,
    *own.ROUTES,
    *health.ROUTES,
)
# Of errors where there is no route: the first whose prefix fits.
DIALECTS: tuple[Dialect, ...] = (OWN, deepl.DEEPL, deepl.DEEPL_V3, libretranslate.LIBRETRANSLATE)
