"""Put the table of routes together: a row for everything that is served."""

from dragoman.server import (
    deepl,
    deepl_documents,
    deepl_texts,
    extensions,
    glossaries,
    health,
    libretranslate,
    openapi,
    own,
    own_documents,
    own_glossaries,
    own_models,
    page,
)
from dragoman.server.routes import OWN, Dialect, Route

APIS: tuple[Route, ...] = (
    *libretranslate.ROUTES,
    *deepl_texts.ROUTES,
    *deepl_documents.ROUTES,
    *deepl.ROUTES,
    *glossaries.ROUTES,
    *own.ROUTES,
    *own_models.ROUTES,
    *own_documents.ROUTES,
    *own_glossaries.ROUTES,
    *extensions.ROUTES,
    *health.ROUTES,
    *page.ROUTES,
)
ROUTES = (*APIS, *openapi.routes_of(APIS))
# Of errors where there is no route: the first whose prefix fits.
DIALECTS: tuple[Dialect, ...] = (
    OWN,
    deepl.DEEPL,
    deepl.DEEPL_V3,
    extensions.DEEPLX,
    extensions.EXTENSION,
    libretranslate.LIBRETRANSLATE,
)
