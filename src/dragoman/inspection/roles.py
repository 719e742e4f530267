"""Give each role in a Transformer its colour, the same in every figure and on every page."""

import re
from functools import cache
from typing import Literal, get_args

from dragoman.inspection.page import read_web_file

Role = Literal["query", "key", "value", "mask", "residual", "norm"]
ROLES: tuple[Role, ...] = get_args(Role)
COLOUR = re.compile(r"--(\w+): (#[0-9a-f]{6});")


@cache
def role_colours(*, dark: bool = False) -> dict[Role, str]:
    """Return the colour of each role, such as '#0b62b0', on light or dark ground: those of web/roles.css."""
    light, on_dark = read_web_file("roles.css").split("@media")
    colours = dict(COLOUR.findall(on_dark if dark else light))
    return {role: colours[role] for role in ROLES}
