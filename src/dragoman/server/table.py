"""Put the table of routes together: a row for everything that is served."""

from dragoman.server import extensions, health, libretranslate, openapi, page
from dragoman.server.deepl import dialect
from dragoman.server.deepl import documents as deepl_documents
from dragoman.server.deepl import glossaries as deepl_glossaries
from dragoman.server.deepl import languages as deepl_languages
from dragoman.server.deepl import memories as deepl_memories
from dragoman.server.deepl import texts as deepl_texts
from dragoman.server.own import documents as own_documents
from dragoman.server.own import glossaries as own_glossaries
from dragoman.server.own import inspection as own_inspection
from dragoman.server.own import memories as own_memories
from dragoman.server.own import models as own_models
from dragoman.server.own import runs as own_runs
from dragoman.server.own import steering as own_steering
from dragoman.server.own import texts as own_texts
from dragoman.server.routes import OWN, Dialect, Route

APIS: tuple[Route, ...] = (
    *libretranslate.ROUTES,
    *deepl_texts.ROUTES,
    *deepl_documents.ROUTES,
    *deepl_languages.ROUTES,
    *deepl_glossaries.ROUTES,
    *deepl_memories.ROUTES,
    *own_texts.ROUTES,
    *own_steering.ROUTES,
    *own_models.ROUTES,
    *own_inspection.ROUTES,
    *own_documents.ROUTES,
    *own_runs.ROUTES,
    *own_glossaries.ROUTES,
    *own_memories.ROUTES,
    *extensions.ROUTES,
    *health.ROUTES,
    *page.ROUTES,
)
ROUTES = (*APIS, *openapi.routes_of(APIS))
# Of errors where there is no route: the first whose prefix fits.
DIALECTS: tuple[Dialect, ...] = (
    OWN,
    dialect.DEEPL,
    dialect.DEEPL_V3,
    extensions.DEEPLX,
    extensions.EXTENSION,
    libretranslate.LIBRETRANSLATE,
)
