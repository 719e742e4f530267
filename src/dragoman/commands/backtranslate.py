"""Make sentence pairs from text in the target language: `dragoman backtranslate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import (
    Model,
    OneBestSearch,
    OneBestSearchConfig,
    Synthesis,
    SynthesisOptions,
    check_seed,
    parse,
    set_threads,
)
from dragoman.config import Device, TrainingConfig
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Make sentence pairs from text in the target language, with a model that translates it into the source language.

    Rerun the same command to resume. With --shard, the process that finishes last joins the blocks. At the end, the
    command prints what to pass to `dragoman train`.

    $ dragoman backtranslate -m runs/ko-en --text news.ko --out synthetic.tsv
    $ dragoman backtranslate -m runs/ko-en --text news.ko --out synthetic.tsv --temperature 1
    $ dragoman train --train real.tsv synthetic.tsv tag=bt --dev dev.tsv
    """

    model: Model
    "model folder, run folder or hub:USER/NAME, from the target language into the source language"
    text: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE ...")]
    "text in the target language, one sentence per line; plain, .gz or .zst"
    out: Annotated[Path, tyro.conf.arg(metavar="TSV")]
    "file to write the pairs to: translation TAB line of text, or with --reverse the other way round"
    tag: str = "bt"
    "tag that training puts in front of these sources, to tell them from real ones; '' for none"
    model_tag: str = ""
    "tag to put in front of every line, if this model was trained with tags"
    model_target_tag: str = ""
    "tag that this model's translations begin with, if it was trained with such tags"
    reverse: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "write line of text TAB translation: pairs for a model in the same direction as this one"
    noise: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "drop, replace and move some words of the translations"
    max_tokens: int = 256
    "maximum length of a line in tokens; longer ones are skipped and counted"
    synthesis: Synthesis = SynthesisOptions()
    device: Device = "auto"
    "where to compute"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error"
    search: OneBestSearch = OneBestSearchConfig()


def main(arguments: list[str]) -> None:
    """Run `dragoman backtranslate`: write the pairs, and print the words that name them as a corpus for training.

    A process that does one shard prints nothing unless its shard is the last.
    """
    options = parse(Options, "backtranslate", arguments)
    if not options.text:
        raise UsageError("--text is missing: files with text in the target language")
    if options.noise and options.reverse:
        raise UsageError("--noise is for translations on the source side: leave out --reverse")
    if options.noise and options.search.temperature is not None:
        raise UsageError("choose --noise or --temperature: sampled text needs no noise")
    if not options.noise:  # which draws with it, too
        check_seed(options.search)
    from dragoman.data.spec import OF_PAIRS, CorpusSpec, refuse_unreadable, suffix_of

    if options.out.suffix != ".tsv":
        raise UsageError(f"{options.out}: the pairs are TSV: choose a name that ends in .tsv")
    for file in options.text:
        refuse_unreadable(file)
        if Path(file).exists() and not Path(file).is_file():
            raise UsageError(f"{file}: the text is read more than once, so it must be a regular file")
        if suffix_of(file) in OF_PAIRS:
            raise UsageError(f"{file}: looks like a file of pairs; --text takes plain text, one sentence per line")
    result = CorpusSpec((str(options.out),), tag=options.tag)
    shard = options.synthesis.check(options.search)
    settings = TrainingConfig(device=options.device, max_tokens=options.max_tokens)
    set_threads(options.threads, options.quiet)
    from dragoman.model_folder import fetch_model
    from dragoman.runtime.device import device_of
    from dragoman.synthesis.job import Job
    from dragoman.synthesis.progress import TextProgress
    from dragoman.synthesis.ray import synthesise_on_ray
    from dragoman.synthesis.synthesise import synthesise
    from dragoman.text.extent import model_scripts
    from dragoman.text.scripts import direction_warning

    job = Job(
        model=fetch_model(Path(options.model)),
        text=options.text,
        out=options.out,
        search=options.search,
        tag=options.model_tag,
        target_tag=options.model_target_tag,
        max_tokens=options.max_tokens,
        reverse=options.reverse,
        noise=options.search.seed if options.noise else None,
        block=options.synthesis.block,
        engine=options.synthesis.engine,
        compute_type=options.synthesis.compute_type,
    )
    progress, device = TextProgress(quiet=options.quiet), device_of(settings.device)
    texts = (text for _, text in job.texts())
    if warning := direction_warning(" and ".join(job.files), texts, *model_scripts(job.model)):
        progress.log(warning)
    record = synthesise_on_ray(job, progress) if options.synthesis.ray else synthesise(job, shard, device, progress)
    if record:
        print(" ".join(result.words()))
