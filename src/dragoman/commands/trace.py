"""dragoman trace"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import Model, OneBestSearch, check_seed, parse, print_json, set_threads
from dragoman.config.search import SearchConfig
from dragoman.errors import DragomanError, UsageError, plural

if TYPE_CHECKING:
    from dragoman.inspection.influence import TracedPair
    from dragoman.memory import Memory
    from dragoman.translation.translator import Translator

LEAST_BLEU = -0.2  # what a repair may cost


@dataclass(frozen=True)
class Options:
    """Show the training pairs that taught a model a word of its translation, those with the nearest states first.

    The memory is one over the training corpus: dragoman remember -m MODEL --training --out MEMORY. A line holds the
    distance of the pair's states, how far its gradient agrees, where the pair is, its source and its target.

    Correct the targets in the file of --out, or delete them to drop a pair. --repair then fine-tunes a copy of the
    model for a minute, and says whether the word has changed and what it cost in BLEU (docs/memory.md).

    $ dragoman trace -m runs/mine --memory memories/training "The bank was steep." Bank --out suspects.tsv
    $ dragoman trace -m runs/mine --memory memories/training "The bank was steep." Bank --repair suspects.tsv \\
        --run runs/mended
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    memory: Annotated[Path, tyro.conf.arg(metavar="MEMORY")]
    "memory over the training corpus, made by dragoman remember --training"
    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")] = ""
    "the sentence that was translated"
    word: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")] = ""
    "a word of its translation"
    translation: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    "trace a word of this translation instead of the model's own"
    tag: str = ""
    "tag to put in front of the text, for models trained with tags"
    target_tag: str = ""
    "tag that the translation begins with, such as its language, for models trained with such tags"
    count: int = 10
    "number of pairs"
    out: Annotated[Path | None, tyro.conf.arg(metavar="TSV")] = None
    "file to write the pairs to, for their correction: number, source, target, origin"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object with everything"
    repair: Annotated[Path | None, tyro.conf.arg(metavar="TSV")] = None
    "instead of tracing: fine-tune on the pairs of this file of --out whose targets were corrected, without the deleted"
    run: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "with --repair: folder of the new run"
    minutes: float = 1.0
    "with --repair: how long to fine-tune"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error, not even progress"
    search: OneBestSearch = SearchConfig()


def main(arguments: list[str]) -> None:
    """Run `dragoman trace`: print the pairs behind a word, or repair the model and print what became of the word."""
    options = parse(Options, "trace", arguments)
    check_seed(options.search)
    if not (options.text.strip() and options.word.strip()):
        raise UsageError('give a text and a word of its translation: dragoman trace ... "TEXT" WORD')
    if options.count < 1:
        raise UsageError("--count must be at least 1")
    if bool(options.repair) != bool(options.run):
        raise UsageError("--repair needs --run, the folder of the new run, and the other way round")
    if options.repair and (options.out or options.translation):
        raise UsageError("--repair is not for --out and --translation: trace first, then repair")
    if options.minutes <= 0:
        raise UsageError("--minutes must be above 0")
    set_threads(options.threads, options.quiet)
    from dragoman.memory import Memory
    from dragoman.model_folder import fetch_model
    from dragoman.translation.translator import Translator

    folder = fetch_model(Path(options.model))
    translator = Translator.load(folder, options.search, threads=options.threads, target_tag=options.target_tag)
    memory = Memory(options.memory, folder, translator.model, translator.tokenizers)
    if options.repair:
        show_repair(options, folder, translator, memory)
    else:
        show_pairs(options, translator, memory)


def show_pairs(options: Options, translator: "Translator", memory: "Memory") -> None:
    """Print the pairs behind the word, and write them for their correction."""
    from dragoman.inspection.influence import find_word, trace
    from dragoman.inspection.inspect import inspect
    from dragoman.training.repair import write_suspects

    inspection = inspect(translator, options.text, options.translation, tag=options.tag)
    word = find_word(inspection, options.word)
    pairs = trace(memory, inspection, word, options.count)
    if options.out:
        write_suspects(options.out, [(each.number, each.pair) for each in pairs])
    if options.json:
        record = {"source": options.text, "translation": inspection.target.text, "word": word.label}
        print_json(record | {"pairs": [asdict(each) for each in pairs]})
        return
    if not options.quiet:
        print(f"{inspection.target.text}\ndistance\tagreement\torigin\tsource\ttarget", file=sys.stderr)
    for each in pairs:
        print(as_text(each))
    if options.out:
        print(options.out)


def as_text(traced: "TracedPair") -> str:
    """Return a pair as a line: its distance, the agreement of its gradient, origin, source and target."""
    agreement = "" if traced.agreement is None else f"{traced.agreement:.3g}"
    pair = traced.pair
    texts = (" ".join(text.split()) for text in (pair.origin, pair.source, pair.target))
    return "\t".join([f"{traced.distance:.3g}", agreement, *texts])


def show_repair(options: Options, folder: Path, translator: "Translator", memory: "Memory") -> None:
    """Repair the model, and print what became of the word and of BLEU.

    Raise DragomanError where the word is still there, or BLEU is lower than it may be.
    """
    from dragoman.inspection.influence import has_word
    from dragoman.training.journal import Journal, RunConsole
    from dragoman.training.repair import read_corrections, repair
    from dragoman.translation.translator import Translator

    assert options.repair
    assert options.run
    corrections = read_corrections(options.repair, memory)
    with Journal(options.run, RunConsole(), options.quiet) as journal:
        result = repair(
            folder, memory, corrections, options.run, options.minutes, threads=options.threads, journal=journal
        )
    repaired = Translator.load(result.model, options.search, threads=options.threads, target_tag=options.target_tag)
    before, after = (each.translate(options.text, options.tag).text for each in (translator, repaired))
    record = {"before": before, "after": after, "bleu_before": result.bleu_before, "bleu": result.bleu}
    if options.json:
        print_json(record | {"model": str(result.model), "corrected": result.corrected, "dropped": result.dropped})
    else:
        print(f"{plural(result.corrected, 'pair')} corrected, {result.dropped:,} dropped")
        print(f"before  {before}\nafter   {after}")
        print(f"BLEU of dev pairs {result.bleu_before:.1f} before, {result.bleu:.1f} after\n{result.model}")
    if has_word(after, options.word):
        raise DragomanError(f"'{options.word}' is still in the translation: correct more pairs, or raise --minutes")
    if result.bleu - result.bleu_before < LEAST_BLEU:
        raise DragomanError("the word is gone, but BLEU fell: try fewer --minutes")
