"""dragoman inspect"""

import json
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dragoman.commands import Model, Search, parse
from dragoman.config import SearchConfig
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.inspection.figure import Picture
    from dragoman.inspection.inspection import Kind
    from dragoman.translation.translator import Translator

OUT = Path("attention.svg")
SAMPLED = 200  # sentence pairs
WHICH = {  # the views for which a layer or head, a kind of attention, or pieces can be chosen
    "layer": ("map",),
    "head": ("map",),
    "aggregate": ("map",),
    "kind": ("map", "grid", "heads"),
    "pieces": ("map", "grid", "occlusion"),
}


@dataclass(frozen=True)
class Options:
    """Draw which source words the model attended to for each word of its translation, and more.

    $ dragoman inspect -m runs/en-ko "The train leaves on Monday." --out attention.svg
    $ dragoman inspect -m runs/en-ko "The train leaves on Monday." --html page.html
    """

    model: Model
    "model folder or run folder"
    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")] = ""
    "the sentence to translate"
    translation: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    "inspect this translation instead of the model's own"
    tag: str = ""
    "tag to put in front of the text, for models trained with tags"
    out: Path | None = None
    "figure to draw: .svg, .png or .pdf; default: attention.svg, or none with --html or --json"
    html: Path | None = None
    "page to write, a single file: every layer and head, the search, probabilities, the effect of each source word"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print everything as JSON, with all weights, and draw nothing"
    view: Literal["map", "grid", "tree", "heads", "probabilities", "occlusion", "positions", "masks"] = "map"
    "what the figure shows (docs/inspecting.md)"
    sample: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE ...")] = ()
    "with --view heads, instead of TEXT: statistics over the first 200 of these sentence pairs that fit the model"
    kind: Literal["cross", "encoder", "decoder"] = "cross"
    "attention over the source, or self-attention"
    layer: int | None = None
    "layer, from 1; default: the last"
    head: int | None = None
    "attention head, from 1; default: the mean of all"
    aggregate: Literal["mean", "max", "rollout"] | None = None
    "combine the maps of all layers, or of --layer, into one; rollout: from the first layer up to --layer"
    pieces: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "show subwords instead of words"
    search: Search = SearchConfig()


def main(arguments: list[str]) -> None:
    options = parse(Options, "inspect", arguments)
    out = options.out or (None if options.html or options.json else OUT)
    check(options, out)
    from dragoman.inspection.figure import check_format, save, write_whole
    from dragoman.inspection.inspection import inspect
    from dragoman.translation.translator import Translator

    if out:
        check_format(out)
    translator = Translator.load(options.model, options.search)
    name = Path(options.model).absolute().name
    if options.sample:
        assert out
        save(sampled_heads(translator, options.sample, options.kind, name), out)
        print(out)
        return
    inspection = inspect(translator, options.text, options.translation, tag=options.tag, name=name)
    files = []
    if out:
        from dragoman.inspection.views import attention_map, picture

        if options.view == "map":
            which = options.kind, options.layer, options.head, options.aggregate
            drawn = attention_map(inspection, *which, pieces=options.pieces)
        else:
            drawn = picture(translator, inspection, options.view, options.kind, pieces=options.pieces)
        save(drawn, out)
        files.append(out)
    if options.html:
        from dragoman.inspection.page import page

        write_whole(options.html, page(inspection, translator.model))
        files.append(options.html)
    if options.json:
        from dragoman.inspection.record import record, weights

        print(json.dumps(record(inspection) | weights(inspection), ensure_ascii=False))
    else:
        print(inspection.target.text)
    for file in files:
        print(file, file=sys.stderr if options.json else sys.stdout)


def sampled_heads(translator: "Translator", sample: tuple[str, ...], kind: "Kind", name: str) -> "Picture":
    from dragoman import __version__
    from dragoman.data.corpus import read_corpus
    from dragoman.decoding.forced import max_positions
    from dragoman.inspection.inspection import inspect
    from dragoman.inspection.views import head_table

    most, encode = min(max_positions(translator.model) - 1, translator.max_source_tokens), translator.tokenizer.encode
    corpus = read_corpus(sample)
    short = (
        (source, target, tag)
        for (source, target), tag in zip(corpus.pairs, corpus.tags, strict=True)
        if max(len(encode(source, tag)), len(encode(target))) <= most
    )
    pairs = list(islice(short, SAMPLED))
    if not pairs:
        raise DragomanError(f"{' '.join(sample)}: no pair is short enough for the model")
    inspections = (inspect(translator, source, target, tag=tag, name=name) for source, target, tag in pairs)
    return head_table(inspections, kind, f"model {name}; pairs of {' '.join(sample)}; dragoman {__version__}")


def check(options: Options, out: Path | None) -> None:
    """Raises UsageError for flags that say nothing together."""
    if options.sample and (options.view != "heads" or not options.out or options.html or options.json):
        raise UsageError("--sample goes with --view heads and the figure's name, --out, and with nothing else to write")
    if options.sample and (options.text or options.translation or options.tag):
        raise UsageError(
            "--sample takes its sentences from files: leave out TEXT and --translation; tags: FILE tag=TAG"
        )
    if not options.sample and not options.text.strip():
        raise UsageError("there is no text to translate")
    if options.html and options.html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{options.html}: a page's name ends in .html")
    if options.head is not None and options.aggregate:
        raise UsageError("--head is one map and --aggregate makes one of many: give one of them")
    for flag, views in WHICH.items():
        given = getattr(options, flag) != getattr(Options, flag)
        if given and (options.view not in views or not out):
            figure = f"--view {options.view}" if out else "a page or JSON, which has all of them; a figure needs --out"
            raise UsageError(f"--{flag} does not go with {figure}")
    if options.view != "map" and not out:
        raise UsageError(f"--view {options.view} is for a figure: name its file with --out")
