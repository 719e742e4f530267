"""Compare models, runs and corpora with their checksums: `dragoman verify`."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse, print_json
from dragoman.errors import DragomanError, UsageError


@dataclass(frozen=True)
class Options:
    """Compare models, runs and corpora with the checksums that were written with them, one line for each.

    Exit code 1 if something is damaged, or of a newer format than this version can read, otherwise 0. Files in a model
    folder that its manifest does not list are named; nothing uses them.

    $ dragoman verify runs/en-ko
    $ dragoman verify downloads/model --json
    $ dragoman verify runs/en-ko/data/train.arrow
    """

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER|FILE ...")]
    "model folders, run folders, folders with several of them; tokenised corpora; pairs of backtranslate and distill"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman verify`: print a line for each thing, or an object for all.

    Raise DragomanError where one is damaged or there are none, so that the exit code is 1.
    """
    options = parse(Options, "verify", arguments)
    if not options.paths:
        raise UsageError("give a folder: dragoman verify runs/mine")
    from dragoman.console import escape_controls
    from dragoman.model_folder import fetch_model
    from dragoman.storage.hub import is_on_hub
    from dragoman.training.integrity import Finding, verify

    findings: list[Finding] = []
    for path in options.paths:
        if is_on_hub(path):
            path = fetch_model(path)
        if not path.exists():
            raise DragomanError(f"{path}: no such file or folder")
        damaged = False
        for finding in verify(path):
            damaged = True
            findings.append(finding)
            if not options.json:
                print(escape_controls(str(finding)), flush=True)
        if not damaged:
            raise DragomanError(f"{path}: contains no checksums written by dragoman")
    failed = [finding for finding in findings if finding.state not in ("ok", "unlisted")]
    if options.json:
        print_json(
            {"ok": not failed, "findings": [{**asdict(finding), "path": str(finding.path)} for finding in findings]}
        )
    if failed:
        sys.stdout.flush()
        raise DragomanError(f"{len(failed)} of {len(findings)} cannot be used")
