"""dragoman serve"""

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.config import read_toml, update
from dragoman.config.serve import ServeConfig
from dragoman.errors import DragomanError, UsageError

NEEDED = ("starlette", "uvicorn", "h11", "msgspec", "python_multipart", "prometheus_client", "babel")
Texts = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True)
class FlagServeConfig(ServeConfig):
    """Describe a server by flags, of which some can be given several times."""

    model: Annotated[Texts, tyro.conf.arg(aliases=["-m"], metavar="[PAIR=]FOLDER[:TAG]")] = ()
    host_name: Annotated[Texts, tyro.conf.arg(metavar="NAME")] = ()
    allow_origin: Annotated[Texts, tyro.conf.arg(metavar="ORIGIN")] = ()
    keep: Annotated[Texts, tyro.conf.arg(metavar="REGEX")] = ()
    proxy: Annotated[Texts, tyro.conf.arg(metavar="ADDRESS")] = ()
    memory: Annotated[Texts, tyro.conf.arg(metavar="[PAIR=]FOLDER")] = ()
    open: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False


@dataclass(frozen=True)
class Options:
    """Serve translations over HTTP, to the clients of LibreTranslate and DeepL and to your own programs.

    Settings come from CONFIG.toml, then from flags. docs/serving.md explains them, and how to set up clients.

    $ dragoman serve -m runs/demo-en-ko
    $ dragoman serve -m en-de=runs/de -m de-en=runs/back --port 8080
    $ dragoman serve --api-keys keys.json --new-key weblate
    $ dragoman serve serve.toml --host 0.0.0.0 --api-keys keys.json
    """

    config: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[CONFIG.toml]")] = None
    "a file with any of these settings"
    serve: Annotated[FlagServeConfig, tyro.conf.arg(name="")] = field(default_factory=FlagServeConfig)
    new_key: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    "add a key to the file of --api-keys, print the key, and exit"


def main(arguments: list[str]) -> None:
    """Run `dragoman serve`: serve until SIGTERM or Ctrl-C, or make a key. Raise DragomanError without its extra."""
    start = Options()
    if arguments and not arguments[0].startswith("-"):
        file = Path(arguments[0])
        if file.suffix != ".toml":
            raise UsageError(f"{file}: settings are in a file whose name ends in .toml; models need -m")
        start = Options(file, update(FlagServeConfig(), read_toml(file), str(file)))
    options = parse(Options, "serve", arguments, start)
    if options.config != start.config:
        raise UsageError(f"the settings file must come first: dragoman serve {options.config} ...")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DragomanError(f"the server needs {', '.join(missing)}: pip install 'dragoman[serve]'")
    if options.new_key is not None:
        if not options.serve.api_keys:
            raise UsageError("--new-key needs the key file: --api-keys FILE")
        from dragoman.server.keys import add_key

        print(add_key(Path(options.serve.api_keys), options.new_key))
        print("restart a running server to use it", file=sys.stderr)
        return
    if options.serve.processes > 1:
        from dragoman.server.processes import supervise

        supervise(options.serve)
    else:
        from dragoman.server.run import serve

        serve(options.serve)
