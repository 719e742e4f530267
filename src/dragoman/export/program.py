"""Run the program in the README of an export, and prove that it translates as the model does."""

import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.data.batches import Ids
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import plural
from dragoman.export.target import Exported, Target
from dragoman.interop.transformers.engine import TransformersEngine
from dragoman.interop.verification import TOLERANCE, Mismatch, narrowest_choice

PROGRAM = re.compile(r"^```python\n(.+?)^```$", re.DOTALL | re.MULTILINE)
TEXTS = 8  # that are translated
BLANK = ["", " \t"]

Translate = Callable[[list[str]], list[str]]


def check_program(
    target: Target, exported: Exported, folder: Path, compute_type: str, usage: str, sources: Sequence[Ids]
) -> str:
    """Return in words how far the program in a README translates as the model does; '' where it has no program.

    folder: what was exported; usage: the README's part with the program; sources: the texts of some of them are
    translated. The other side is the folder as it was opened to be compared with the model; for transformers, whose
    engine has no length penalty, the model itself. Raise Mismatch where a translation is another one, though the model
    had no two continuations within TOLERANCE.
    """
    program = PROGRAM.search(usage)
    if program is None:
        return ""
    copy: Engine = target.open(folder, exported, compute_type)
    engine = TorchEngine(exported.model) if isinstance(copy, TransformersEngine) else copy
    texts, others = texts_of(exported, sources), 0
    with target.quiet():
        translate = run_program(program[1], folder)
        if translate(BLANK) != ["", ""]:
            raise Mismatch("its program translates blank text")
        for text in texts:
            expected, decided = search(target, exported, engine, text)
            (translation,) = translate([f" {text}\n"])
            if comparable(translation) != comparable(expected):
                if decided() > TOLERANCE:
                    raise Mismatch(f"its program translates {text!r} as {translation!r}, not as {expected!r}")
                others += 1
    line = f"the program above: the same translations of {len(texts) - others} of {plural(len(texts), 'text')}"
    if others:
        line += f"; for {others}, the model itself finds two continuations within {TOLERANCE:g} nats"
    return line


def run_program(code: str, folder: Path) -> Translate:
    """Return the function `translate` of a program that lies in a folder, where it is only as long as it is read."""
    file = folder / "translate.py"
    file.write_text(code, encoding="utf-8")
    try:
        return runpy.run_path(str(file))["translate"]
    finally:
        file.unlink()


def texts_of(exported: Exported, sources: Sequence[Ids]) -> list[str]:
    """Return the texts of the first sources, without those that may name a special word, or are cut into too many."""
    tokenizer, longest = exported.tokenizers.source, exported.model.config.max_positions
    texts = dict.fromkeys(tokenizer.decode(ids).strip() for ids in sources[: 4 * TEXTS])
    named = [text for text in texts if text and not {"<", ">"} & {*text}]
    front = len(tokenizer.tag_ids(exported.tags.source))
    ids = tokenizer.encode_sources(named)
    return [text for text, of_text in zip(named, ids, strict=True) if not longest or front + len(of_text) < longest][
        :TEXTS
    ]


def search(target: Target, exported: Exported, engine: Engine, text: str) -> tuple[str, Callable[[], float]]:
    """Return the translation of a text by the search of a target, and what `narrowest_choice` says of it."""
    source, tags = exported.tokenizers.source, exported.tags
    (ids,) = source.encode_sources([text])
    ids, tag = [*source.tag_ids(tags.source), *ids], exported.tokenizers.target.tag_ids(tags.target)
    given = Constraints(tag=tuple(tag))
    ((best,),) = engine.search([ids], target.search, [given])
    translation = exported.tokenizers.target.decode(best.tokens[len(tag) :])
    return translation, lambda: narrowest_choice(exported.model, ids, target.search, given)


def comparable(text: str) -> str:
    """Return a text without outer space, and without U+FFFD, of which two libraries show different numbers."""
    return text.replace("\ufffd", "").strip()
