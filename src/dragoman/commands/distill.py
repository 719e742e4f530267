"""Train a student on a teacher's translations: `dragoman distill`."""

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import (
    OneBestSearch,
    OneBestSearchConfig,
    Synthesis,
    SynthesisOptions,
    check_seed,
    parse,
    set_threads,
)
from dragoman.commands.train import flag_value
from dragoman.config import PresetName, RunConfig, TrainingConfig, TransformerConfig
from dragoman.config.presets import PRESETS, SMALL
from dragoman.errors import UsageError
from dragoman.storage import formats

if TYPE_CHECKING:
    from dragoman.data.spec import CorpusSpec
    from dragoman.synthesis.job import Job

# Of a student by default: at most so many encoder layers, and one decoder layer, because it runs once per output token.
ENCODER_LAYERS, DECODER_LAYERS = 6, 1


@dataclass(frozen=True)
class Options:
    """Train a small, fast student on a teacher's translations of the training sources.

    It translates the sources of --train with the teacher, trains the student, and compares the two. The student has the
    teacher's subwords and settings, but a single decoder layer and at most six encoder layers. Rerun the same command
    to resume; without --shard it translates whatever is not translated yet, then trains.

    $ dragoman distill --teacher runs/big --train train.tsv --dev dev.tsv --test test.tsv --out runs/student
    $ dragoman distill --teacher runs/big --train train.tsv --dev dev.tsv --out runs/student --shard 2/4
    """

    teacher: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    "model folder, run folder or hub:USER/NAME of the teacher"
    train: tuple[str, ...] = ()
    "corpora whose sources the teacher translates (docs/corpora.md)"
    dev: tuple[str, ...] = ()
    "sentence pairs to validate on"
    test: tuple[str, ...] = ()
    "sentence pairs to compare teacher and student on; default: those of --dev"
    out: str = ""
    "folder for the student's run and the teacher's translations"
    originals: float = 0.0
    "weight of the original pairs of --train, next to the teacher's translations; 0: do not use them"
    synthesis: Synthesis = SynthesisOptions()
    preset: PresetName = "small"
    "preset of the training settings"
    model: TransformerConfig = SMALL.model
    training: TrainingConfig = SMALL.training
    threads: int | None = None
    "the same as --training.threads, for translating and comparing, too"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object instead of a table"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error"
    search: OneBestSearch = OneBestSearchConfig()


def main(arguments: list[str]) -> None:
    """Run `dragoman distill`: translate with the teacher, train the student, print a comparison of the two.

    With --shard it ends after its shard of the translations.
    """
    options = parse(Options, "distill", arguments, defaults(arguments))
    check_seed(options.search)
    if options.threads is not None:
        options = replace(options, training=replace(options.training, threads=options.threads))
    for name in ("teacher", "train", "dev", "out"):
        if not getattr(options, name):
            raise UsageError(f"--{name} is missing: dragoman distill --help explains it")
    if not 0 <= options.originals < float("inf"):
        raise UsageError(f"--originals must be a weight, 0 or more, not {options.originals}")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("distill runs in one process: split the translation with --shard, train with dragoman train")
    from dragoman.data.corpus import read_corpus
    from dragoman.data.spec import parse_corpora

    shard = options.synthesis.check(options.search)
    corpora, test = parse_corpora(options.train), options.test or options.dev
    if options.originals and any(spec.share for spec in corpora):
        raise UsageError("--originals is a weight: use it with corpora that have weights, not share=")
    for words in () if options.synthesis.shard else (options.dev, test):
        read_corpus(words)  # what is wrong with it is reported before, not after, hours of work

    from dragoman.evaluation.compare import compare_models
    from dragoman.model_folder import fetch_model
    from dragoman.runtime.device import device_of
    from dragoman.storage.writing import replace_file
    from dragoman.synthesis.progress import TextProgress
    from dragoman.synthesis.ray import synthesise_on_ray
    from dragoman.synthesis.student import prepare_student
    from dragoman.synthesis.synthesise import synthesise
    from dragoman.training.checkpoint import checkpoints, lock_folder
    from dragoman.training.loop import open_journal, train

    out = Path(options.out)
    set_threads(options.training.threads, options.quiet)
    teacher = fetch_model(Path(options.teacher))
    check_is_smaller(options.model, teacher)
    progress, device = TextProgress(quiet=options.quiet), device_of(options.training.device)
    jobs = [translation_job(options, number, corpus, teacher) for number, corpus in enumerate(corpora, start=1)]
    make = synthesise_on_ray if options.synthesis.ray else partial(synthesise, shard=shard, device=device)
    run = student_run(options, jobs, corpora)
    records = [make(job, progress=progress) for job in jobs]
    if options.synthesis.shard or not all(records):
        return
    with lock_folder(out):  # a run that is training has read its start
        if not checkpoints(out):
            prepare_student(run, teacher)
    with open_journal(run, options.quiet) as journal:
        train(run, journal)
    names = " and ".join(spec.name for spec in parse_corpora(test))
    progress.log(f"comparing teacher and student on {names}, each in all of its engines and types")
    comparison = compare_models({"teacher": teacher, "student": out}, test, options.search)
    record = {"format": formats.OUTPUT, **comparison.as_dict(), "synthetic": records}
    replace_file(out / "students.json", json.dumps(record, ensure_ascii=False, indent=1) + "\n", shared=True)
    print(json.dumps(record, ensure_ascii=False) if options.json else comparison)


def defaults(arguments: list[str]) -> Options:
    """Return the options before flags change them: a faster form of the teacher's model, and the preset's training.

    Both are named by flags in `arguments`; without a teacher, or with a recurrent one, the model is that of the preset
    small. Raise UsageError for an unknown preset, DragomanError for a damaged teacher.
    """
    name = flag_value(arguments, "--preset") or "small"
    if name not in PRESETS:
        raise UsageError(f"no preset '{name}'; choose from {', '.join(PRESETS)}")
    start = Options(preset=name, training=PRESETS[name].training)
    if teacher := flag_value(arguments, "--teacher"):
        from dragoman.model_folder import read_config

        config = read_config(Path(teacher))
        if isinstance(config, TransformerConfig):
            start = replace(start, model=config)
    layers = min(start.model.encoder_layers, ENCODER_LAYERS)
    model = replace(start.model, encoder_layers=layers, decoder_layers=DECODER_LAYERS)
    if model.positions == "rotary-across":  # a student is for speed, and CTranslate2 has no such attention
        model = replace(model, positions="rotary")
    return replace(start, model=model)


def check_is_smaller(student: TransformerConfig, teacher: Path) -> None:
    """Raise UsageError where a student would have more weights than the model in the folder `teacher`."""
    from dragoman.data.tokenizers import Tokenizers
    from dragoman.model import outline, parameter_count
    from dragoman.model_folder import read_config

    tokenizers = Tokenizers.load(teacher)
    student_size, teacher_size = (
        parameter_count(outline(config, len(tokenizers.source), tokenizers.target_vocabulary))
        for config in (student, read_config(teacher))
    )
    if student_size > teacher_size:
        raise UsageError(
            f"the student would have {student_size:,} weights, more than the {teacher_size:,} of its teacher: "
            "--model.encoder-layers, --model.decoder-layers, --model.d-model and --model.feed-forward.d-ff make it "
            "smaller"
        )


def translation_job(options: Options, number: int, spec: "CorpusSpec", teacher: Path) -> "Job":
    """Return the job that translates the corpus `spec`, number `number` in --train, with the model in `teacher`."""
    from dragoman.synthesis.job import Job

    return Job(
        model=teacher,
        text=spec,
        out=Path(options.out) / "synthetic" / f"{number}.tsv",
        search=options.search,
        tag=spec.tag,
        target_tag=spec.target_tag,
        max_tokens=options.training.max_tokens,
        block=options.synthesis.block,
        engine=options.synthesis.engine,
        compute_type=options.synthesis.compute_type,
    )


def student_run(options: Options, jobs: list["Job"], specs: tuple["CorpusSpec", ...]) -> RunConfig:
    """Return the training of the student: on the teacher's translations, and on the original pairs if wanted.

    It starts from the model folder `start` in --out, which `prepare_student` writes. jobs and specs: the translations
    and the corpora that they are of, in the same order.
    """
    corpora = [replace(spec, files=(str(job.out),), columns=None) for job, spec in zip(jobs, specs, strict=True)]
    if options.originals:
        corpora += [replace(spec, weight=spec.weight * options.originals) for spec in specs]
    return RunConfig(
        preset=options.preset,
        train=tuple(word for spec in corpora for word in spec.words()),
        dev=options.dev,
        init_from=str(Path(options.out) / "start"),
        out=options.out,
        model=options.model,
        training=options.training,
    )
