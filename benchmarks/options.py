"""What can be measured, and the flags of each: `MEASUREMENTS` by the name after `python -m benchmarks`."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

import tyro

from dragoman.commands import Model
from dragoman.config import Device, EngineName, PresetName
from dragoman.errors import UsageError
from dragoman.runtime.threads import granted_cores

# Each is a module of this folder whose `benchmark` takes these fields and returns its text.

ServingPart = Literal["throughput", "http", "load", "overload", "stop", "soak", "beside", "pool"]
SERVING_PARTS: tuple[ServingPart, ...] = get_args(ServingPart)


@dataclass(frozen=True)
class Training:
    """Measure training in target tokens per second, for dragoman and other toolkits, each in a process of its own.

    They take turns on a whole corpus. Run nothing else on the machine at the same time.

    $ python -m benchmarks training --threads 2
    $ python -m benchmarks training --threads 2 --shapes tiny small --corpus pairs.tsv
    $ python -m benchmarks training --device cuda --shapes base big --corpus pairs.tsv
    """

    threads: int = 1
    "CPU threads"
    rounds: int = 3
    "number of turns of each toolkit after its first, which is reported separately"
    seconds: float = 20.0
    "seconds of a turn"
    shapes: Annotated[
        tuple[Literal["tiny", "small", "base", "big"], ...], tyro.conf.arg(metavar="{tiny,small,base,big} ...")
    ] = ("tiny", "small", "base")
    "sizes of the model"
    corpus: Annotated[str | None, tyro.conf.arg(metavar="TSV")] = None
    "sentence pairs to train on; default: random ones with realistic lengths"
    peers: Annotated[
        tuple[Literal["marianmt", "torch", "marian", "joeynmt", "eole"], ...],
        tyro.conf.arg(metavar="{marianmt,torch,marian,joeynmt,eole} ..."),
    ] = (
        "marianmt",
        "torch",
        "marian",
        "joeynmt",
        "eole",
    )
    "toolkits to measure against; those not installed are skipped"
    device: Device = "cpu"
    "where to train; on a GPU, only toolkits in PyTorch take part"


@dataclass(frozen=True)
class Quality:
    """Compare BLEU and chrF after the same training time: dragoman, an LSTM, and other toolkits.

    $ python -m benchmarks quality --train train.tsv --dev dev.tsv --test test.tsv --minutes 30 --threads 2
    $ python -m benchmarks quality --recipe low-resource-30k --train train.tsv --dev dev.tsv --test test.tsv \\
        --minutes 30
    $ python -m benchmarks quality --train train.tsv --dev dev.tsv --test test.tsv --minutes 20 \\
        --models dragoman marian eole --seeds 1 2 3 --peer-rates 1 0.3
    """

    train: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to learn from"
    dev: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to validate on"
    test: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to translate and score"
    minutes: float
    "minutes of training for each model"
    preset: PresetName = "small"
    "dragoman's preset"
    recipe: Annotated[str, tyro.conf.arg(metavar="NAME|TOML")] = ""
    "settings file instead of a preset; the LSTM uses its vocabulary, dropout and training"
    out: str = "runs/quality"
    "folder for the runs"
    threads: int = 1
    "CPU threads"
    models: Annotated[
        tuple[Literal["dragoman", "lstm", "marianmt", "marian", "joeynmt", "eole"], ...],
        tyro.conf.arg(metavar="{dragoman,lstm,marianmt,marian,joeynmt,eole} ..."),
    ] = ("dragoman", "lstm", "marianmt")
    "models to train, one after the other; other toolkits take subwords and settings from dragoman's run in --out"
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (1,)
    "seeds of weights, batches and dropout; every model is trained once for each"
    peer_rates: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT ...")] = (1.0,)
    "multiples of the learning rate; other toolkits are trained once with each"


@dataclass(frozen=True)
class Decoding:
    """Measure search in target tokens per second, for dragoman, Hugging Face, CTranslate2, Marian and JoeyNMT.

    $ python -m benchmarks decoding --threads 2
    $ python -m benchmarks decoding --device cuda --batches 1 32 512 --sentences 1024
    """

    threads: int = 1
    "CPU threads"
    rounds: int = 5
    "number of rounds for each toolkit"
    sentences: int = 64
    "number of sentences in each round; with batches of one, a sixteenth"
    batches: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (1, 32)
    "sentences at a time"
    device: Device = "cpu"
    "where to decode; on a GPU, only Hugging Face is measured against"


@dataclass(frozen=True)
class DecodingLength:
    """Measure milliseconds per output token, by the length of the output.

    $ python -m benchmarks decoding-length --threads 2
    """

    threads: int = 1
    "CPU threads"
    rounds: int = 5
    "number of rounds for each length"


@dataclass(frozen=True)
class Pipeline:
    """Measure translation from text to text in sentences per second, compared with search alone.

    $ python -m benchmarks pipeline -m runs/en-de --test test.tsv --threads 2
    $ python -m benchmarks pipeline -m runs/en-de --test test.tsv --engine ctranslate2
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    test: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs whose sources are translated"
    engine: EngineName = "native"
    "what searches; beside ctranslate2, CTranslate2 itself is measured"
    threads: int = 1
    "CPU threads"
    rounds: int = 5
    "number of rounds for each contender"


@dataclass(frozen=True)
class Memory:
    """Measure the memory of training on artificial corpora, and the time to tokenise them and to plan an epoch.

    $ python -m benchmarks memory --pairs 500000
    """

    threads: int = 1
    "CPU threads"
    pairs: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (500_000, 1_000_000, 5_000_000)
    "corpus sizes in pairs, one run each"
    steps: int = 20
    "training steps in each run"


@dataclass(frozen=True)
class Serving:
    """Measure `dragoman serve` with clients in other processes.

    Throughput is compared with CTranslate2 called one request at a time, behind gunicorn. Run nothing else at the same
    time.

    $ python -m benchmarks serving -m runs/en-de --test test.tsv
    $ python -m benchmarks serving -m runs/en-de --test test.tsv --parts overload stop
    """

    model: Model
    "model folder, run folder or hub:USER/NAME; CTranslate2 is measured if it supports the model"
    test: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs whose sources are translated"
    parts: Annotated[tuple[ServingPart, ...], tyro.conf.arg(metavar="{" + ",".join(SERVING_PARTS) + "} ...")] = (
        SERVING_PARTS
    )
    "what to measure"
    threads: int = 1
    "CPU threads of the native engine"
    rounds: int = 3
    "number of turns of each contender"
    seconds: float = 5.0
    "seconds of a turn"
    minutes: float = 5.0
    "minutes of steady load"
    requests: int = 10_000
    "requests of the soak"


@dataclass(frozen=True)
class Verbatim:
    """Count the numbers, codes, names and tags that a model from English loses, with and without safeguards.

    $ python -m benchmarks verbatim -m runs/en-de --test test.tsv
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    test: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs whose sources, in English, are translated with something in them that must come back"
    threads: int = 1
    "CPU threads"
    rounds: int = 3
    "number of turns with and without safeguards where time is measured"


@dataclass(frozen=True)
class Confidence:
    """Measure how far the confidence in translations can be trusted, also where a model is lost, and its cost.

    $ python -m benchmarks confidence -m runs/en-de --test test.tsv --other verses.tsv
    """

    model: Model
    "model folder with a record of confidence, run folder or hub:USER/NAME"
    test: Annotated[str, tyro.conf.arg(metavar="CORPUS")]
    "sentence pairs that took no part in training"
    other: Annotated[str, tyro.conf.arg(metavar="CORPUS")]
    "pairs of another domain; only their sources are used"
    threads: int = 1
    "CPU threads"
    rounds: int = 5
    "number of turns with and without the record where time is measured"


@dataclass(frozen=True)
class PlantedTerms:
    """Plant wrong words in training pairs, and count how often `dragoman trace` finds the pairs that taught a word.

    Then all of them are corrected, and the model is repaired. A folder that is there already is used again.

    $ python -m benchmarks planted-terms --train train.tsv --dev dev.tsv --test test.tsv --minutes 5
    """

    train: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to learn from"
    dev: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to validate on"
    test: Annotated[str, tyro.conf.arg(metavar="TSV")]
    "sentence pairs to translate and score"
    out: str = "runs/planted-terms"
    "folder for the corpus, the runs and the memory"
    minutes: float = 5.0
    "minutes of training"
    repair_minutes: float = 1.0
    "minutes of the repair"
    threads: int = 1
    "CPU threads"


@dataclass(frozen=True)
class Remembering:
    """Measure what a memory of approved pairs gains in a new domain, what it leaves alone, and what it costs.

    $ python -m benchmarks remembering -m runs/general --pairs new.train.tsv --test new.test.tsv --other old.test.tsv
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    pairs: Annotated[str, tyro.conf.arg(metavar="CORPUS")]
    "pairs of the new domain, which the model was not trained on, in the order of their documents"
    test: Annotated[str, tyro.conf.arg(metavar="CORPUS")]
    "other pairs of the new domain"
    other: Annotated[str, tyro.conf.arg(metavar="CORPUS")]
    "pairs of the model's own domain, or of a third one, which the memory should leave alone"
    sizes: tuple[int, ...] = (500, 2_000, 12_000)
    "numbers of pairs that memories have"
    sentences: int = 200
    "number of sentences of each test"
    documents: int = 3
    "number of documents of 300 sentences that are translated and corrected, sentence by sentence"
    threads: int = 1
    "CPU threads"
    rounds: int = 3
    "number of turns with and without the memory where time is measured"


@dataclass(frozen=True)
class Cleaning:
    """Count the planted faults that `dragoman check` drops, of 28 kinds, and the good pairs that it loses.

    $ python -m benchmarks cleaning --data ../shared/data
    """

    data: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    "folder of the corpora, NAME.train.tsv; en-es-bible, en-de-mpl and en-ko-mpl must be in it"
    corpora: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ("en-de-mpl", "en-ko-mpl")
    "corpora in which faults are planted"
    faults: int = 5000
    "number of faults in each"
    seed: int = 2026
    "seed of what is planted, and where"
    learn: float = 0
    "minutes of check --learn, whose models judge the pairs as well; 0: rules alone"


Cleaner = Literal["dirty", "rules", "learn", "weights", "oracle"]


@dataclass(frozen=True)
class Noise:
    """Measure what cleaning is worth: BLEU after training on pairs some of which are faults, by how they are cleaned.

    All trainings have as many steps. The oracle drops exactly the faults.

    $ python -m benchmarks noise --data ../shared/data --share 0.2 --seeds 1 2 3
    """

    data: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    "folder of the corpora, NAME.train.tsv, as for `cleaning`; the pairs of NAME.dev.tsv and NAME.test.tsv are scored"
    corpus: str = "en-de-mpl"
    "corpus in which faults are planted"
    share: float = 0.2
    "share of the pairs that are made faults, of the kinds of `cleaning`"
    cleaners: Annotated[tuple[Cleaner, ...], tyro.conf.arg(metavar="{dirty,rules,learn,weights,oracle} ...")] = (
        get_args(Cleaner)
    )
    "what is done with the faults"
    seeds: tuple[int, ...] = (1,)
    "seeds of training"
    steps: int = 3000
    "updates of each training, of the preset `tiny`"
    minutes: float = 10
    "minutes that the models of check --learn learn"


@dataclass(frozen=True)
class Wishes:
    """Measure what `dragoman wish` is worth: BLEU after training with the pairs that it chooses, and with others.

    The first pairs of the corpus are known; the others are what somebody could have translated.

    $ python -m benchmarks wishes --data ../shared/data --seeds 1 2 3
    """

    data: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    "folder of the corpus, NAME.train.tsv; the pairs of NAME.dev.tsv and NAME.test.tsv are scored"
    corpus: str = "en-de-mpl"
    "corpus whose pairs are known or chosen"
    known: int = 3400
    "pairs that are known, from the beginning"
    count: int = 2000
    "pairs that are added"
    seeds: tuple[int, ...] = (1,)
    "seeds of training, and of what is drawn by chance"
    steps: int = 3000
    "updates of each training, of the preset `tiny`"


MEASUREMENTS = {
    "training": Training,
    "quality": Quality,
    "decoding": Decoding,
    "decoding-length": DecodingLength,
    "pipeline": Pipeline,
    "memory": Memory,
    "serving": Serving,
    "verbatim": Verbatim,
    "confidence": Confidence,
    "planted-terms": PlantedTerms,
    "remembering": Remembering,
    "cleaning": Cleaning,
    "noise": Noise,
    "wishes": Wishes,
}


def check(options: Any) -> dict[str, Any]:
    """Return the fields of the options by name. Raise UsageError where one of them has no sensible value."""
    by_name = asdict(options)
    for name, value in by_name.items():
        flag, values = f"--{name.replace('_', '-')}", value if isinstance(value, tuple) else (value,)
        if not values and name != "peers":
            raise UsageError(f"{flag} needs a value")
        if name not in ("seeds", "learn") and any(
            isinstance(number, int | float) and not number > 0 for number in values
        ):
            raise UsageError(f"{flag} must be above 0")
    if by_name.get("threads", 1) > (cores := granted_cores()):
        raise UsageError(f"--threads must be at most {cores}: this process may use no more cores")
    return by_name
