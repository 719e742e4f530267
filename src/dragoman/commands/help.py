"""Show the flags of a command as users read them, and suggest the nearest one for an unknown flag."""

import difflib
import io
import os
import re
import shlex
import shutil
import textwrap
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import NoReturn, TextIO

from dragoman.commands.habits import HABITS, NEEDLESS
from dragoman.config.fields import check_choice
from dragoman.errors import UsageError

COLOUR = r"\x1b\[[\d;]*m"
GAP = "\0"  # a space in the place of something removed, so that the boxes stay whole
# What tyro says of flags without a default, with colours and line ends in it: "(default: None)", "(default: '')".
NO_DEFAULT = re.compile(rf"\(default:((?:{COLOUR}|[\s│])*)(None|''|)\)")
# How it names the values of a flag without a default: "{None}|INT", "{None,tiny,small}".
NONE = re.compile(r"\{None(?:\}\||(,))([^\s\]\x1b]+)")
# What it says of wrong flags, without the box around it.
NO_NUMBER = re.compile(r"Error parsing (\S+): .*(?:literal for (int)\(\) with base 10|string to float): ('.*?')")
ALTERNATIVES = re.compile(r"does not match choices \('(?!None)(.*?)',?\)")
NO_CHOICE = re.compile(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\) ?\.")
NO_VALUE = re.compile(r"Missing value for argument '(.*)'\.")
MISSING = re.compile(r"Missing from .*?: (.*\(required\))")
# Its name, and what it is.
ONE_MISSING = re.compile(r"(-\S+ (?:\{[^}]*\}|[^\s,]+)|\S+)(?:, --\S+ \S+)?(?: \.\.\.)? (.*?) \(required\)")
NO_COMMAND = re.compile(r"Expected one of \{(.*)\}\.")
EXTRA = re.compile(r"Unrecognized options: (.*)")
BOX_LINE = re.compile(r"[│|] ?(.*?) *[│|]")
RULE = re.compile(r"[─-]{5,}")
# Corpora and folders among the settings of a run, which have the type of any string.
CORPORA = re.compile(rf"(--(?:train|dev|test)(?:{COLOUR}| )+)\[STR \[STR \.\.\.\]\]")
FOLDERS = re.compile(rf"(--(?:out|init-from)(?:{COLOUR}| )+)STR   ")
FLAG = re.compile(r"(?:^|, )(--?[a-z][a-z0-9.-]*)")


class HelpText(io.StringIO):
    """Capture what tyro prints, with the colours and the boxes that it would have on the stream `screen`."""

    def __init__(self, screen: TextIO):
        super().__init__()
        self.screen = screen

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.screen.encoding

    def isatty(self) -> bool:
        return self.screen.isatty()


def tidy(text: str) -> str:
    """Return what tyro printed in words for users: without None, and with the names of corpora, folders and numbers."""
    text = NO_DEFAULT.sub(lambda match: f"{GAP * 9}{match[1]}{GAP * (len(match[2]) + 1)}", text)
    text = re.sub("\n{3,}", "\n\n", text)
    lines = [tidy_line(line) for line in text.split("\n") if not is_emptied(line)]
    return "\n".join(lines).replace(GAP, " ")


def is_emptied(line: str) -> bool:
    """Return whether a line of a box has nothing left in it."""
    return GAP in line and not re.sub(rf"{COLOUR}|[\s│{GAP}]", "", line)


def tidy_line(line: str) -> str:
    """Return a line of help, or of a message, with the values of flags as users know them: INT for {None}|INT.

    A line of a box keeps its width; any other one, but a command to copy, is wrapped at the width of the terminal.
    """
    if "│" not in line and not line.startswith("$"):
        return textwrap.fill(NONE.sub(without_none, line), shutil.get_terminal_size().columns)
    line = NONE.sub(lambda match: without_none(match).ljust(len(match[0])), line)
    return FOLDERS.sub(r"\1FOLDER", CORPORA.sub(r"\1CORPUS ...     ", line))


def without_none(match: re.Match[str]) -> str:
    return f"{'{' if match[1] else ''}{match[2]}"


def refuse_values(command: str, arguments: Sequence[str], shown: str) -> NoReturn:
    """Raise UsageError with a sentence for what is wrong with the flags of a command.

    arguments: what follows the command; shown: what tyro printed about it: a box with a title, the reason, a rule, and
    hints.
    """
    lines = re.sub(COLOUR, "", shown).strip().splitlines()
    inside = (match[1].strip() for line in lines if (match := BOX_LINE.fullmatch(line)))
    reason = " ".join(takewhile(lambda line: not RULE.fullmatch(line), inside))
    see = f"see dragoman {command} --help"
    if match := NO_NUMBER.search(reason):
        number = f"a {'whole ' if match[2] else ''}number"
        others = "".join(f" or {other}" for other in ALTERNATIVES.findall(reason))
        raise UsageError(f"{match[1]} must be {number}{others}, not {match[3]}; {see}")
    if match := NO_CHOICE.search(reason):
        check_choice(match[2], match[1], sorted({*re.findall("'(.*?)'", match[3])} - {"None"}))
    if match := NO_VALUE.search(reason):
        raise UsageError(f"{match[1]} needs a value; {see}")
    if match := MISSING.search(reason):
        missing = {name.replace(", ", ","): what for name, what in ONE_MISSING.findall(match[1])}  # a box wraps {a,b}
        folder = next((argument for argument in arguments if os.path.isdir(argument)), None)  # noqa: PTH112, as texts may be long
        if "-m FOLDER" in missing and folder:
            raise UsageError(f"{command} needs -m in front of its model folder: -m {shlex.quote(folder)}; {see}")
        *first, last = missing
        names = f"{', '.join(first)} and {last}" if first else f"{last} ({missing[last]})"
        raise UsageError(f"{command} needs {names}; {see}")
    if match := NO_COMMAND.search(reason):
        raise UsageError(f"{command} needs one of {match[1]}; {see}")
    if match := EXTRA.search(reason):
        raise UsageError(f"{command} does not take '{match[1]}'; {see}")
    raise UsageError(f"{reason or shown}; {see}")


def refuse_unknown_flag(command: str, arguments: Sequence[str], shown: str) -> None:
    """Raise UsageError for the first of the arguments that is a flag, but not one of the command; name the nearest.

    shown: the help of the command.
    """
    flags = {flag for line in shown.splitlines() for flag in FLAG.findall(line[2:])}
    for argument in arguments:
        flag = argument.partition("=")[0]
        if re.match(r"--?[a-zA-Z]", flag) and flag.replace("_", "-") not in flags:
            near = nearest(flag, flags)
            hint = f"did you mean {near}?" if near else f"see dragoman {command} --help"
            hint = NEEDLESS.get((command, flag.lstrip("-").replace("_", "-")), hint)
            raise UsageError(f"{command} has no flag {flag}; {hint}")


def nearest(flag: str, flags: Collection[str]) -> str | None:
    """Return the flag that `flag` stands for in other toolkits, or that ends with its words, or the one most like it.

    All with or without the section of a setting. It may also be a misspelt one of other toolkits. None where nothing is
    like it.
    """
    words = flag.lstrip("-").replace("_", "-")
    if meant := [known for known in HABITS.get(words.rpartition(".")[2], ()) if known in flags]:
        return meant[0]
    ending = f"-{words}".replace(".", "-")
    if same := [known for known in sorted(flags, key=len) if known.replace(".", "-").endswith(ending)]:
        return same[0]
    by_name = defaultdict(list)
    for known in sorted(flags, key=len):
        by_name[known.rpartition(".")[2].lstrip("-")].append(known)
    name = words.rpartition(".")[2]
    if not (near := difflib.get_close_matches(name, [*by_name, *(HABITS.keys() - {name})], n=1)):
        return None
    if near[0] in by_name:
        return difflib.get_close_matches(flag, by_name[near[0]], n=1, cutoff=0)[0]
    return next((known for known in HABITS[near[0]] if known in flags), None)
