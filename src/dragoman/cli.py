"""Run the command line: each verb is a file in `commands/`, loaded when it is called."""

import io
import json
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dragoman.errors import DragomanError, UsageError, is_out_of_memory
from dragoman.version import __version__

COMMANDS = {
    "demo": "train a phrasebook translator in a few minutes, translate with it, draw its attention",
    "check": "find what is wrong with sentence pairs, and where",
    "split": "split sentence pairs into train, dev and test without near duplicates between them",
    "wish": "choose the sentences whose translations would teach most",
    "forecast": "say what twice the sentence pairs would bring",
    "train": "train a translator on your sentence pairs",
    "translate": "translate text or documents with a model",
    "serve": "serve translations over HTTP, to the clients of LibreTranslate and DeepL",
    "plot": "draw the curves of training runs",
    "verify": "check that models, runs and corpora are intact",
    "average": "average the weights of several checkpoints into one model",
    "remember": "remember approved pairs, which a model uses at once",
    "calibrate": "measure what a model does with names, and how it aligns words",
    "evaluate": "measure BLEU and chrF of a model on a test set",
    "score": "show how probable a model finds the translations that you give it",
    "align": "show which target word translates which source word",
    "info": "show what a model or a preset consists of, and what it costs",
    "inspect": "draw what a model attended to while it translated",
    "trace": "show which training pairs taught a model a word, and repair it",
    "lab": "run experiments on claims about Transformers: figures, tables, one report",
    "insight": "show how a model learned: gradients, updates, attention over its checkpoints",
    "import": "make a model of Hugging Face, Marian or fairseq one of ours",
    "distill": "train a small, fast student on a model's translations",
    "backtranslate": "make sentence pairs from text in the target language",
    "export": "write a model for CTranslate2, as ONNX or as a web page, and prove that it is right",
    "upload": "put a model on the Hugging Face Hub, where it is opened by its name",
    "benchmark": "find the fastest engine and data type for a model on this machine",
}

# Modules of commands that other packages have; those of all others are in `commands/`.
ELSEWHERE = {"lab": "dragoman_lab.command"}

USAGE = f"""dragoman {__version__}: train your own translator, look inside it, put it to work.

usage: dragoman COMMAND ...

{chr(10).join(f"  {name:<13} {purpose}" for name, purpose in COMMANDS.items())}

  dragoman COMMAND --help explains a command. To see everything at work: dragoman demo
  Exit codes: 0 done, 1 the work failed, 2 the request was wrong, 130 stopped by Ctrl-C
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Return 0: done; 1: the work failed; 2: the request was wrong; 130: stopped by Ctrl-C.

    arguments: those after the name of the program, by default of the command line. Errors are printed on standard error
    as one sentence; other exceptions than the expected ones are raised.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Translations are UTF-8, whatever the locale; names of files may be anything.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.platform == "win32":
        print("dragoman: needs Linux or macOS; on Windows, use the Windows Subsystem for Linux (WSL)", file=sys.stderr)
        return 1
    try:
        run(arguments)
        sys.stdout.flush()
    except DragomanError as error:
        from dragoman.console import escape_controls

        sentence = f"dragoman: {escape_controls(' '.join(str(error).split()))}"
        print(sentence, file=sys.stderr)
        tell_torchrun(sentence)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("dragoman: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output is gone
        pass
    except OSError as error:
        name = error.filename or ("standard output" if drop_unwritten() else "a file or standard output")
        print(f"dragoman: {name}: {describe_os_error(error)}", file=sys.stderr)
        return 1
    except BaseException as error:  # a library in Rust panics with one that is no Exception
        if not is_out_of_memory(error):
            raise
        print("dragoman: not enough memory", file=sys.stderr)
        return 1
    finally:
        drop_unwritten()
    return 0


def tell_torchrun(sentence: str) -> None:
    """Leave why this process ended in the file that torchrun has named, if it has: its own report ends with it."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        details = {"py_callstack": sentence, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(
                json.dumps({"message": {"message": sentence, "extraInfo": details}}), encoding="utf-8"
            )


def describe_os_error(error: OSError) -> str:
    """Return the reason of an error of the system, without its number, in words of a sentence about a path."""
    if isinstance(error, FileExistsError):  # what making a folder raises
        return "this is a file, and a folder is needed: choose another name"
    if isinstance(error, NotADirectoryError):
        return "part of this path is a file, not a folder"
    return error.strerror or str(error)


def open_closed_streams() -> None:
    """Open the output streams that the caller has closed (`>&-`), which Python leaves out.

    Whoever writes to standard output gets an OSError; what is written on standard error is lost. With PYTHONUNBUFFERED,
    standard output is opened with a buffer for each line: a line that is written in part only would look complete.
    """
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = os.fdopen(1, "w")
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", buffering=1, closefd=False)
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")


def drop_unwritten() -> bool:
    """Return whether standard output cannot be written. What waits for it is dropped; Python would complain at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def command_module(name: str) -> ModuleType:
    """Return the module of a command of `COMMANDS`. Raise DragomanError where it is in a package that is missing."""
    path = ELSEWHERE.get(name, f"dragoman.commands.{name}")
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if (package := path.partition(".")[0]) != error.name:
            raise
        raise DragomanError(f"'dragoman {name}' needs the package {package}, which is not installed") from None


def run(arguments: list[str]) -> None:
    """Run the command that the first argument names. Raise UsageError where there is none of that name."""
    name, arguments = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name == "help" and arguments[:1] and arguments[0] in COMMANDS:
        name, arguments = arguments[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(USAGE, end="")
    elif name in ("--version", "version"):
        print(f"dragoman {__version__}")
    elif name in COMMANDS:
        command_module(name).main(arguments)
    else:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        way = f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command '{name}'; {way}")
