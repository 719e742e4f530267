"""The command line: one verb, one file in `commands/`, loaded when it is called."""

import io
import os
import sys
from importlib import import_module

from dragoman import __version__
from dragoman.errors import DragomanError, UsageError

COMMANDS = {
    "demo": "learn a phrasebook in a few minutes, translate, draw: everything, end to end",
    "check": "what is wrong with sentence pairs, and where",
    "train": "learn to translate from your sentence pairs",
    "translate": "translate lines of text with a model",
    "plot": "draw the curves of training runs",
    "average": "one model from the mean weights of several checkpoints",
    "evaluate": "BLEU and chrF of a model on a test set",
    "score": "how probable a model finds given translations",
    "align": "which source word goes with which target word",
    "info": "what a model or a preset consists of, and what it costs",
    "inspect": "draw what the model looked at while it translated",
    "lab": "experiments on the claims of the paper and the notes: figures, tables, one report",
    "insight": "how a model learned: gradients, updates, attention over its checkpoints",
    "distill": "a small, fast student that learns from a model's translations",
    "backtranslate": "sentence pairs from text in the target language alone",
    "benchmark": "measure speed, beside other toolkits where they are installed",
}

USAGE = f"""dragoman {__version__}: train your own translator, look inside it, put it to work.

usage: dragoman COMMAND ...

{chr(10).join(f"  {name:<13} {purpose}" for name, purpose in COMMANDS.items())}

  dragoman COMMAND --help tells more. A first walk: dragoman demo
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0: done; 1: the work failed; 2: the request was wrong; 130: stopped by Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Translations are UTF-8, whatever the locale; names of files may be anything.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        run(arguments)
        sys.stdout.flush()
    except DragomanError as error:
        print(f"dragoman: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("dragoman: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"dragoman: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def run(arguments: list[str]) -> None:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("-h", "--help", "help"):
        print(USAGE, end="")
    elif name in ("--version", "version"):
        print(f"dragoman {__version__}")
    elif name in COMMANDS:
        import_module(f"dragoman.commands.{name}").main(rest)
    else:
        raise UsageError(f"no command '{name}'; there are {', '.join(COMMANDS)}")
