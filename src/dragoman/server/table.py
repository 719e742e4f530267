"""Put the table of routes together: a row for everything that is served."""

from dragoman.server import health, libretranslate
from dragoman.server.routes import OWN, Dialect, Route

ROUTES: tuple[Route, ...] = (*libretranslate.ROUTES, *health.ROUTES)
# Of errors where there is no route: the first whose prefix fits.
DIALECTS: tuple[Dialect, ...] = (OWN, libretranslate.LIBRETRANSLATE)
