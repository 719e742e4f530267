"""One file per command: its flags are the fields of a dataclass, and `main(arguments)` does the work. It raises
UsageError for wrong flags and DragomanError where the work fails. What several commands share is here, in `help` and in
`pairs`.

torch takes seconds to load, and `--help` must be fast, so these files import what needs torch inside `main`.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dragoman.commands.help import HelpText, refuse_unknown_flag, refuse_values, tidy
from dragoman.config import EngineName, SearchConfig
from dragoman.config.fields import Threads, check_argument
from dragoman.errors import UsageError, listed
from dragoman.storage import formats

if TYPE_CHECKING:
    from dragoman.synthesis.shard import Shard
    from dragoman.translation.translator import Translator

Model = Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="FOLDER")]
SEARCH_FIELDS = [field.name for field in fields(SearchConfig)]
SETTING = re.compile(rf"\b({'|'.join(SEARCH_FIELDS)})\b")


@dataclass(frozen=True)
class FlagSearchConfig(SearchConfig):
    """Describe a search by flags: messages name them, such as --n-best, where those of Python say n_best."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except UsageError as error:
            message = SETTING.sub(lambda name: f"--{name[0].replace('_', '-')}", str(error))
            raise UsageError(message) from None


# A setting of the search is a flag without a prefix: --beam, not --search.beam.
Search = Annotated[SearchConfig, tyro.conf.arg(name="", constructor=FlagSearchConfig)]


@dataclass(frozen=True)
class OneBestSearchConfig(FlagSearchConfig):
    """Describe the search of a command that uses one translation of each text: its help does not show --n-best."""

    n_best: tyro.conf.Suppress[int] = 1


OneBestSearch = Annotated[SearchConfig, tyro.conf.arg(name="", constructor=OneBestSearchConfig)]


def parse(options: type, command: str, arguments: list[str], default: Any = None) -> Any:
    """Return the flags of a command as an instance of the dataclass `options`.

    default: the instance that flags change; without it, the defaults of the fields. --help ends the program with exit
    code 0. Raise UsageError for a flag that does not exist, and for values that are missing or wrong.
    """
    config: Any = {"prog": f"dragoman {command}", "config": (tyro.conf.AvoidSubcommands,)}
    if default is not None:
        config["default"] = default
    shown, wrong = HelpText(sys.stdout), HelpText(sys.stderr)
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(wrong):
            return with_plain_search(tyro.cli(options, args=arguments, **config))
    except SystemExit as end:
        if end.code and is_dataclass(options):
            listing = io.StringIO()
            with contextlib.redirect_stdout(listing), contextlib.suppress(SystemExit):
                tyro.cli(options, args=["--help"], **config)
            refuse_unknown_flag(command, arguments, listing.getvalue())
        if end.code:
            refuse_values(command, arguments, wrong.getvalue())
        sys.stdout.write(tidy(shown.getvalue()))
        raise


def with_plain_search(options: Any) -> Any:
    """Return parsed flags with a SearchConfig in the place of a FlagSearchConfig, which only parsing needs."""
    search = getattr(options, "search", None)
    if not isinstance(search, FlagSearchConfig):
        return options
    return replace(options, search=SearchConfig(**{name: getattr(search, name) for name in SEARCH_FIELDS}))


def folders_first(arguments: list[str]) -> list[str]:
    """Return the arguments with the folders given by -m or --model in front, without these flags.

    For commands about models and runs themselves, whose folders need no flag: people write it there, too.
    """
    folders, others = [], []
    for argument, before in zip(arguments, ["", *arguments], strict=False):
        if before in ("-m", "--model"):
            folders.append(argument)
        elif argument.startswith("--model="):
            folders.append(argument.removeprefix("--model="))
        elif argument not in ("-m", "--model"):
            others.append(argument)
    return folders + others


def print_json(record: dict[str, Any]) -> None:
    """Print an object as a line of JSON that begins with the number of its format, see docs/formats.md."""
    print(json.dumps({"format": formats.OUTPUT, **record}, ensure_ascii=False))


def set_threads(wanted: int | None, quiet: bool = False) -> None:
    """Set how many threads PyTorch computes with: those of --threads, by default one for each core that it may use.

    Say on standard error, unless quiet, where there are fewer cores. Raise UsageError for 0 threads and far too many.
    """
    check_argument("--threads", wanted, Threads | None)
    from dragoman.runtime.waiting import use_threads

    note = use_threads(wanted)
    if note and not quiet:
        print(note, file=sys.stderr)


def no_tag_warning(model: str, translator: "Translator", tags: Iterable[str], how: str) -> str:
    """Return a sentence where a text has no tag though all sources of the model's training had one; '' else.

    Without one it may translate into any of its languages. model: its folder, as the user names it; tags: those given;
    how: to give them.
    """
    if not translator.extent.tagged or translator.tag or all(tags):
        return ""
    known = listed(translator.tokenizers.source.tags)
    return f"{model}: no tag, though every training source of the model had one ({known}): {how}"


def check_seed(search: SearchConfig) -> None:
    """Raise UsageError for a seed where nothing is sampled."""
    if search.seed != SearchConfig.seed and search.temperature is None:
        raise UsageError("--seed is for sampling: choose a --temperature, such as 1")


@dataclass(frozen=True)
class SynthesisOptions:
    """Describe how many texts are translated: in blocks, shared among processes, with which engine."""

    block: int = 1000
    "number of texts to translate and save together"
    shard: Annotated[str | None, tyro.conf.arg(metavar="K/N")] = None
    "translate one shard only: 2/4 is the second of four"
    ray: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "translate on the Ray cluster of RAY_ADDRESS, or on the cores of this machine"
    engine: EngineName = "native"
    "search engine: our own, or CTranslate2, usually the fastest on CPUs"
    compute_type: Literal["float32", "bfloat16", "int8"] = "float32"
    "data type of matmuls; on CPUs int8 is the fastest with ctranslate2; with native, bfloat16 if there is AMX"

    def check(self, search: SearchConfig) -> "Shard":
        """Return the shard of this process. Raise UsageError for flags that make no sense for synthesis."""
        from dragoman.synthesis.shard import check_synthesis, parse_shard

        shard = parse_shard(self.shard, self.ray)
        check_synthesis(self.block, search)
        return shard


Synthesis = Annotated[SynthesisOptions, tyro.conf.arg(name="")]
