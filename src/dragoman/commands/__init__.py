"""One file per verb: its flags are the fields of a dataclass, `main(arguments)` does the work.

torch takes seconds to load and `--help` must not, so these files import what needs torch inside `main`.
"""

from typing import Annotated, Any

import tyro

from dragoman.config import SearchConfig
from dragoman.errors import UsageError

Model = Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="FOLDER")]
Search = Annotated[SearchConfig, tyro.conf.arg(name="")]  # its flags stand beside the others: --beam, not --search.beam


def parse(options: type, command: str, arguments: list[str], default: Any = None) -> Any:
    """Return the flags of a command as an instance of `options`. Wrong flags end the program with exit code 2."""
    given = {} if default is None else {"default": default}
    return tyro.cli(options, prog=f"dragoman {command}", args=arguments, config=(tyro.conf.AvoidSubcommands,), **given)


def check_compute(engine: str, compute_type: str) -> None:
    """Raise UsageError for a data type that only CTranslate2 computes in."""
    if compute_type != "float32" and engine == "native":
        raise UsageError(f"--compute-type {compute_type} needs --engine ctranslate2")
