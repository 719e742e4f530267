"""Put the table of routes together: a row for everything that is served."""

from dragoman.server import health, libretranslate, own
from dragoman.server.routes import OWN, Dialect, Route

ROUTES: tuple[Route, ...] = (*libretranslate.ROUTES, *own.ROUTES, *health.ROUTES)
# Of errors where there is no route: the first whose prefix fits.
DIALECTS: tuple[Dialect, ...] = (OWN, libretranslate.LIBRETRANSLATE)
