"""dragoman inspect"""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dragoman.commands import Model, OneBestSearchConfig, check_seed, no_tag_warning, parse, print_json, set_threads
from dragoman.config.search import SearchConfig, Split
from dragoman.errors import DragomanError, UsageError
from dragoman.text.speech import Language, speaker

if TYPE_CHECKING:
    from dragoman.inspection.figure import Figure
    from dragoman.model.capture import AttentionKind
    from dragoman.translation.translator import Translator

SAMPLED = 200  # sentence pairs
# The views that each flag goes with.
VIEWS = {
    "layer": ("map", "stages", "lines"),
    "head": ("map", "stages", "lines"),
    "aggregate": ("map",),
    "kind": ("map", "grid", "heads", "stages", "lines"),
    "subwords": ("map", "grid", "occlusion", "lines"),
}


@dataclass(frozen=True)
class UnsplitSearchConfig(OneBestSearchConfig):
    """Describe the search for a text that is inspected as a whole: its help shows neither --n-best nor --split."""

    split: tyro.conf.Suppress[Split] = "none"


@dataclass(frozen=True)
class Options:
    """Show which source words the model attended to for each word of its translation, how the search went, and more.

    $ dragoman inspect -m runs/demo-en-ko "We need 27 seats next to each other, if possible." --out attention.svg
    $ dragoman inspect -m runs/demo-en-ko "We need 27 seats next to each other, if possible." --html page.html
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")] = ""
    "the sentence to translate"
    translation: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    "inspect this translation instead of the model's own"
    tag: str = ""
    "tag to put in front of the text, for models trained with tags"
    target_tag: str = ""
    "tag that the translation begins with, such as its language, for models trained with such tags; it is not shown"
    memory: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "approved pairs that the model remembers (docs/memory.md), for --view memory, --html and --json"
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "figure to draw: .svg, .png or .pdf; default: VIEW.svg, such as map.svg, or none with a page or --json"
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "page to write, a single file: every layer and head, the search, probabilities, the effect of each source word"
    model_page: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "page to learn from, a single file: the model runs in it and can be changed; --translation is what its film teaches"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print everything as JSON, with all weights"
    view: Literal[
        "map",
        "grid",
        "tree",
        "heads",
        "probabilities",
        "occlusion",
        "positions",
        "masks",
        "stages",
        "lines",
        "words",
        "memory",
    ] = "map"
    "what the figure shows (docs/inspecting.md)"
    sample: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")] = ()
    "with --view heads, instead of TEXT: statistics over the first 200 of these sentence pairs that fit the model"
    kind: Literal["cross", "encoder", "decoder"] = "cross"
    "cross: attention over the source; encoder, decoder: self-attention"
    layer: int | None = None
    "layer, from 1; default: the last"
    head: int | None = None
    "attention head, from 1; default: the mean of all; with --view stages, the first; with --view lines, all"
    aggregate: Literal["mean", "max", "rollout"] | None = None
    "combine the maps of all layers, or of --layer, into one; rollout: from the first layer up to --layer"
    subwords: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "show subwords instead of words"
    language: Language = "en"
    "language of the figure; pages have both"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    search: Annotated[SearchConfig, tyro.conf.arg(name="", constructor=UnsplitSearchConfig)] = UnsplitSearchConfig()


def main(arguments: list[str]) -> None:
    """Run `dragoman inspect`: print the translation or JSON, write the figure and the page, and print their names."""
    options = parse(Options, "inspect", arguments)
    pages = options.html, options.model_page
    out = options.out or (None if any(pages) or options.json else Path(f"{options.view}.svg"))
    check_options(options, out)
    set_threads(options.threads)
    from dragoman.inspection import CATALOGUE
    from dragoman.inspection.figure import check_format, save
    from dragoman.inspection.inspect import inspect
    from dragoman.storage.output import require_no_folder
    from dragoman.storage.writing import replace_file
    from dragoman.translation.translator import Translator

    if out:
        check_format(out)
    for page in filter(None, pages):
        require_no_folder(page)
    say = speaker(options.language, CATALOGUE)
    translator = Translator.load(options.model, options.search, memory=options.memory, target_tag=options.target_tag)
    name = Path(options.model).absolute().name
    if options.sample:
        assert out
        save(head_table_of_pairs(translator, options.sample, options.kind, name), out, say)
        print(out)
        return
    if warning := no_tag_warning(options.model, translator, [options.tag], "choose it with --tag"):
        print(warning, file=sys.stderr)
    inspection = inspect(translator, options.text, options.translation, tag=options.tag, name=name)
    files = []
    if out:
        from dragoman.inspection.views import view_figure

        chosen = options.view, options.kind, options.layer, options.head, options.aggregate
        save(view_figure(translator, inspection, *chosen, subwords=options.subwords), out, say)
        files.append(out)
    if options.html:
        from dragoman.inspection.page import inspection_page
        from dragoman.training.weights import untrained_model

        untrained = untrained_model(Path(options.model), translator.tokenizers)
        page = inspection_page(inspection, translator, untrained)
        replace_file(options.html, page.encode(errors="replace"), shared=True)
        files.append(options.html)
    if options.model_page:
        from dragoman.inspection.model_page import model_page, show_model

        shown = show_model(translator, inspection)
        replace_file(options.model_page, model_page(shown).encode(errors="replace"), shared=True)
        files.append(options.model_page)
    if options.json:
        from dragoman.inspection.export import as_dict, weights_as_dict
        from dragoman.inspection.origins import origins_as_dicts, word_origins

        memory = {"memory": origins_as_dicts(word_origins(translator, inspection))} if options.memory else {}
        print_json(as_dict(inspection) | weights_as_dict(inspection) | memory)
    else:
        print(inspection.target.text)
    for file in files:
        print(file, file=sys.stderr if options.json else sys.stdout)


def head_table_of_pairs(
    translator: "Translator", sample: tuple[str, ...], kind: "AttentionKind", name: str
) -> "Figure":
    """Return the table of head statistics over the first SAMPLED pairs that are short enough for the model.

    sample: the words that name the corpora; kind: whose heads; name: the model's, for the caption. Raise DragomanError
    where no pair is short enough.
    """
    from dragoman.data.corpus import read_corpus
    from dragoman.decoding.forced import max_positions
    from dragoman.inspection.inspect import inspect
    from dragoman.inspection.views import head_table
    from dragoman.version import __version__

    max_length = min(max_positions(translator.model) - 1, translator.max_source_tokens)
    tokenizers = translator.tokenizers
    corpus = read_corpus(sample)
    fitting = (
        (source, target, tag, target_tag)
        for (source, target), tag, target_tag in zip(corpus.pairs, corpus.tags, corpus.target_tags, strict=True)
        if max(
            len(tokenizers.source.encode(source, tag or translator.tag)),
            len(tokenizers.target.tag_ids(target_tag or translator.target_tag) + tokenizers.target.encode(target)),
        )
        <= max_length
    )
    pairs = list(islice(fitting, SAMPLED))
    if not pairs:
        raise DragomanError(f"{' '.join(sample)}: no pair is short enough for the model")
    inspections = (
        inspect(translator.replace(target_tag=target_tag or None), source, target, tag=tag, name=name)
        for source, target, tag, target_tag in pairs
    )
    return head_table(inspections, kind, f"model {name}; pairs of {' '.join(sample)}; dragoman {__version__}")


def check_options(options: Options, out: Path | None) -> None:
    """Raise UsageError for flags that do not go together; `out` is the figure to draw, None for none."""
    check_seed(options.search)
    pages = [page for page in (options.html, options.model_page) if page]
    if options.sample and (options.view != "heads" or not options.out or pages or options.json):
        raise UsageError("--sample needs --view heads and --out, without a page or --json")
    if options.sample and (options.text or options.translation or options.tag or options.target_tag):
        raise UsageError(
            "--sample takes sentences and tags from files (FILE tag=TAG): leave out TEXT, --translation, --tag and "
            "--target-tag"
        )
    if not options.sample and not options.text.strip():
        raise UsageError("there is no text to translate")
    for page in pages:
        if page.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{page}: the name of a page must end in .html")
    if options.head is not None and options.aggregate:
        raise UsageError("give --head or --aggregate, not both: --aggregate combines all heads")
    for flag, views in VIEWS.items():
        given = getattr(options, flag) != getattr(Options, flag)
        if given and (options.view not in views or not out):
            figure = (
                f"--view {options.view}" if out else "a page or JSON, which contain everything; for a figure, add --out"
            )
            raise UsageError(f"--{flag} cannot be used with {figure}")
    if options.view == "memory" and not options.memory:
        raise UsageError("--view memory needs --memory, a folder made by dragoman remember")
    if options.view != "map" and not out:
        raise UsageError(f"--view {options.view} draws a figure: name its file with --out")
