"""Train with toolkits in processes of their own, which are suspended while others have their turn.

`dragoman` is ours. MarianMT and torch.nn.Transformer run as a plain script would run them. Marian, JoeyNMT and Eole are
programs with an environment of their own beside ours (`make peers`). All train the same model on the same ids, in
batches of their own, and print how many target tokens they have processed.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.task import TrainingTask
from dragoman.errors import DragomanError
from dragoman.training.optimizer import paper_rate

PEERS = Path(sys.prefix) / "peers"
LIMIT = 600.0  # seconds, beyond those of its turn, that an update may take
NEVER = 1_000_000  # updates
TEXTS, TRANSLATIONS = "texts", "translations"  # files of made-up words, a text on each line
BEAM, SENTENCES, MAX_OUTPUT = 4, 32, 178  # of a search: its width, texts at a time, and tokens of a translation
# What dragoman sets for itself. A plain script has none of these.
OUR_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


@dataclass(frozen=True)
class Program:
    """A toolkit: what writes its files into a folder and returns its commands, and what reads its log.

    Commands run in the folder. SIGTERM lets the first save its weights there and end; the second reads TEXTS and writes
    TRANSLATIONS, by beam search that divides scores by length, as `length_penalty=1.0` does in MarianMT.
    """

    settings: Callable[[TrainingTask, Path], list[str]]  # to train
    translation: Callable[[TrainingTask, Path], list[str]]  # to translate, after that
    ready: str  # pattern of the line before the first update
    tokens: str  # pattern of a line with the target tokens since the last such line
    bfloat16: bool = False  # whether it can train in it


def marian_flags(task: TrainingTask, folder: Path) -> dict[str, Any]:
    """Return the flags that describe the task's model to Marian, and write its vocabulary into the folder."""
    words = {"</s>": 0, "<unk>": 1, **{word: number for number, word in enumerate(task.vocabulary_words(), start=2)}}
    (folder / "words.json").write_text(json.dumps(words), encoding="ascii")
    model = task.model
    return {
        "type": "transformer",
        "vocabs": ["words.json", "words.json"],
        "dim-emb": model.d_model,
        "enc-depth": model.encoder_layers,
        "dec-depth": model.decoder_layers,
        "transformer-heads": model.attention.heads,
        "transformer-dim-ffn": model.feed_forward.d_ff,
        "transformer-ffn-activation": "relu",
        "tied-embeddings-all": [],
    }


def as_arguments(flags: dict[str, Any]) -> list[str]:
    """Return flags and their values, several in a list, as arguments of a command."""
    values = ([f"--{name}", *map(str, v if isinstance(v, list) else [v])] for name, v in flags.items())
    return [word for flag in values for word in flag]


def prepare_marian(task: TrainingTask, folder: Path) -> list[str]:
    """Write the vocabulary for Marian into `folder`; return the command that trains with it, without a path.

    It must run in `folder`, where `TrainingTask.write` puts the sentences.
    """
    flags = marian_flags(task, folder) | {
        "model": "model.npz",
        "train-sets": ["text.source", "text.target"],
        "tempdir": ".",
        "transformer-dropout": task.model.dropout,
        "mini-batch": 1000,
        "mini-batch-words": task.batch_tokens,
        "mini-batch-round-up": "false",
        "maxi-batch": 1000,
        "maxi-batch-sort": "trg",
        "max-length": 1000,
        "optimizer-params": [0.9, 0.98, 1e-9],
        "learn-rate": task.rate,
        "label-smoothing": task.smoothing,
        "clip-norm": task.clip,
        "cpu-threads": task.threads,
        "sync-sgd": [],
        "disp-freq": "1u",
        "save-freq": f"{NEVER}u",
        "after": f"{NEVER}u",
    }
    if task.warmup:
        flags |= {"lr-warmup": task.warmup, "lr-decay-inv-sqrt": task.warmup}
        flags |= {"normalize-gradient": []}  # by the number of tokens, as ours, before it is clipped
    if task.ema:
        flags |= {"exponential-smoothing": 1 - task.ema}
    if task.seed:
        flags |= {"seed": task.seed}
    return ["pymarian", "train", *as_arguments(flags)]


def translate_with_marian(task: TrainingTask, folder: Path) -> list[str]:
    """Return the command that translates with Marian.

    The weights that it has saved are the average, where it has one. It has no MAX_OUTPUT: an output may be three times
    as long as the longest source of its batch, as is usual for Marian.
    """
    flags = {
        "models": "model.npz",
        "vocabs": ["words.json", "words.json"],
        "input": TEXTS,
        "output": TRANSLATIONS,
        "beam-size": BEAM,
        "normalize": 1,
        "mini-batch": SENTENCES,
        "maxi-batch": 100,
        "maxi-batch-sort": "src",
        "cpu-threads": task.threads,
    }
    return ["pymarian", "decode", *as_arguments(flags)]


# JoeyNMT logs the tokens of an epoch alone, and saves its weights when it is interrupted.
JOEYNMT = """
import signal
from joeynmt import __main__, training

train_step, ended = training.TrainManager._train_step, []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))

def counted(self, batch):
    if ended:
        raise KeyboardInterrupt  # here, and not in the middle of an update
    result = train_step(self, batch)
    print("tokens", int(batch.ntokens), flush=True)
    return result

training.TrainManager._train_step = counted
__main__.main()
"""


def prepare_joeynmt(task: TrainingTask, folder: Path) -> list[str]:
    """Write vocabulary and settings for JoeyNMT into `folder`; return the command that trains with it, without a path.

    It must run in `folder`, where `TrainingTask.write` puts the sentences. JoeyNMT does not sort by length: shuffled
    batches would be mostly padding, so it needs the groups of `TrainingTask.in_groups`, in their order.
    """
    model = task.model
    words = ["<unk>", "<pad>", "<s>", "</s>", *task.vocabulary_words()]
    (folder / "words.joeynmt").write_text("".join(f"{word}\n" for word in words), encoding="ascii")
    side = {"level": "word", "voc_file": "words.joeynmt", "max_length": 1000, "min_length": 1}

    def stack(layers: int) -> dict[str, Any]:
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": model.attention.heads,
            "hidden_size": model.d_model,
            "ff_size": model.feed_forward.d_ff,
            "dropout": model.dropout,
            "layer_norm": "post",
            "embeddings": {"embedding_dim": model.d_model, "scale": True, "dropout": model.dropout},
        }

    settings = {
        "name": "benchmark",
        "model_dir": "run",
        "use_cuda": False,
        "data": {
            "train": "text",
            "dev": "dev",
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
        },
        "testing": {"beam_size": 1, "eval_metrics": []},
        "training": {
            "batch_size": task.batch_tokens,
            "batch_type": "token",
            "shuffle": False,
            "normalization": "tokens",
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "learning_rate": task.rate,
            "learning_rate_min": 0.0,
            "learning_rate_warmup": task.warmup or 100,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": task.clip or None,
            "label_smoothing": task.smoothing,
            "epochs": NEVER,
            "logging_freq": NEVER,
            "validation_freq": NEVER,
        },
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack(model.encoder_layers),
            "decoder": stack(model.decoder_layers),
        },
    }
    if task.seed:
        settings |= {"random_seed": task.seed}
    (folder / "joeynmt.yaml").write_text(json.dumps(settings), encoding="ascii")  # JSON is YAML
    return ["python", "-c", JOEYNMT, "train", "joeynmt.yaml", "--skip-test"]


# Where it writes to a file, JoeyNMT 2.3.0 looks for n_best among the wrong settings.
JOEYNMT_TRANSLATE = """
from joeynmt import __main__, config

config.BaseConfig.n_best = 1
__main__.main()
"""


def translate_with_joeynmt(task: TrainingTask, folder: Path) -> list[str]:
    """Write the settings for translating with JoeyNMT into `folder`; return the command.

    It has no moving average of its weights, and divides scores by (5 + length) / 6, the nearest to length that it has.
    """
    settings = json.loads((folder / "joeynmt.yaml").read_text(encoding="ascii"))
    settings["testing"] |= {
        "load_model": "run/latest.ckpt",
        "beam_size": BEAM,
        "beam_alpha": 1.0,
        "batch_size": SENTENCES,
        "batch_type": "sentence",
        "max_output_length": MAX_OUTPUT,
        "generate_unk": False,
    }
    (folder / "translate.yaml").write_text(json.dumps(settings), encoding="ascii")
    return ["python", "-c", JOEYNMT_TRANSLATE, "translate", "translate.yaml", "--output-path", TRANSLATIONS]


# Eole saves its weights after its last batch.
EOLE = """
import itertools, signal
from eole import trainer
from eole.bin.main import main

accum_batches, ended = trainer.Trainer._accum_batches, []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))

def until_ended(self, batches):
    return itertools.takewhile(lambda _: not ended, accum_batches(self, batches))

trainer.Trainer._accum_batches = until_ended
main()
"""


def prepare_eole(task: TrainingTask, folder: Path) -> list[str]:
    """Write the settings for Eole into `folder`; return the command that trains with it, without a path.

    It must run in `folder`, where `TrainingTask.write` puts the sentences and the vocabulary.
    """
    model = task.model
    settings: dict[str, Any] = {
        "save_data": "data",
        "overwrite": True,
        "share_vocab": True,
        "src_vocab": "words",
        "src_vocab_size": task.vocabulary,
        "tgt_vocab_size": task.vocabulary,
        "report_every": 1,
        "data": {"corpus": {"path_src": "text.source", "path_tgt": "text.target", "transforms": []}},
        "transforms": [],
        "model": {
            "architecture": "transformer",
            "hidden_size": model.d_model,
            "layers": model.encoder_layers,
            "heads": model.attention.heads,
            "transformer_ff": model.feed_forward.d_ff,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"position_encoding_type": "SinusoidalInterleaved", "word_vec_size": model.d_model},
        },
        "training": {
            "model_path": "model",
            "world_size": 1,
            "gpu_ranks": [],
            "batch_type": "tokens",
            "batch_size": task.batch_tokens,
            "bucket_size": len(task.sources),
            "num_workers": 0,
            "compute_dtype": "bf16" if task.precision == "bfloat16" else "fp32",
            "train_steps": NEVER,
            "save_checkpoint_steps": NEVER,
            "valid_steps": NEVER,
            "log_attention_entropy": False,
            "optim": "adamw",
            "adam_beta2": 0.98,
            "learning_rate": task.rate,
            "max_grad_norm": task.clip,
            "label_smoothing": task.smoothing,
            "dropout": [model.dropout],
            "attention_dropout": [0.0],
            "normalization": "tokens",
            "param_init_method": "xavier_uniform",
        },
    }
    training = settings["training"]
    if task.warmup:
        peak = paper_rate(task.warmup, model.d_model, task.warmup)  # of Eole's schedule, before it multiplies
        training |= {"decay_method": "noam", "warmup_steps": task.warmup, "learning_rate": task.rate / peak}
    if task.ema:
        training |= {"average_decay": 1 - task.ema}
    if task.seed:
        settings |= {"seed": task.seed}
    (folder / "eole.yaml").write_text(json.dumps(settings), encoding="ascii")
    return ["python", "-c", EOLE, "train", "-c", "eole.yaml"]


def translate_with_eole(task: TrainingTask, folder: Path) -> list[str]:
    """Write the settings for translating with Eole into `folder`; return the command.

    The weights that it has saved are the average, where it has one.
    """
    (model,) = (folder / "model").glob("step_*")
    settings = {
        "model_path": str(model),
        "src": TEXTS,
        "output": TRANSLATIONS,
        "beam_size": BEAM,
        "length_penalty": "avg",
        "max_length": MAX_OUTPUT,
        "max_length_ratio": 0,  # no limit
        "ban_unk_token": True,
        "batch_type": "sents",
        "batch_size": SENTENCES,
        "world_size": 1,
        "gpu_ranks": [],
        "compute_dtype": "fp32",
    }
    (folder / "predict.yaml").write_text(json.dumps(settings), encoding="ascii")
    return ["eole", "predict", "-c", "predict.yaml"]


TOKENS = r"^tokens (\d+)$"
PROGRAMS = {
    "marian": Program(prepare_marian, translate_with_marian, "Training started", r"Cost \S+ \* ([\d,]+) @"),
    "joeynmt": Program(prepare_joeynmt, translate_with_joeynmt, "EPOCH 1$", TOKENS),
    "eole": Program(prepare_eole, translate_with_eole, "Starting training on", r"bsz: *\d+/ *(\d+)/", bfloat16=True),
}
PYTORCH = ("marianmt", "torch")
KINDS: dict[str, dict[str, tuple[str, ...]]] = {  # of attention, by device, for each of PYTORCH
    "cpu": {"marianmt": ("sdpa", "eager", "sdpa in float32"), "torch": ("flash", "math")},
    "cuda": {"marianmt": ("sdpa",), "torch": ("default",)},
}


def find_command(name: str, command: str) -> str:
    """Return the path of a command, such as 'python', of the toolkit `name`.

    Raise DragomanError where it is not installed.
    """
    if not (file := PEERS / name / "bin" / command).exists():
        raise DragomanError("`make peers` installs it")
    return str(file)


def command_of(name: str, kind: str, task: TrainingTask, folder: Path) -> list[str]:
    """Return the command that trains on `task`, which is in `folder`, and write there what it needs.

    name: 'dragoman', one of PYTORCH, or a key of PROGRAMS; kind: of attention, for PYTORCH. Raise DragomanError where
    the program is not installed.
    """
    if name in PROGRAMS:
        command, *arguments = PROGRAMS[name].settings(task, folder)
        return [find_command(name, command), *arguments]
    if name in PYTORCH:
        return plain_command("pytorch", name, kind, str(folder))
    return [sys.executable, "-m", "benchmarks.dragoman_trainer", str(folder)]


def plain_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `main` of a module of this folder as a plain script runs.

    PyTorch is imported first, so that OpenMP has read the environment before dragoman changes it.
    """
    program = f"import torch; from benchmarks.peers.{module} import main; main()"
    return [sys.executable, "-c", program, *arguments]


def environment_of(name: str, threads: int) -> dict[str, str]:
    """Return the environment variables of a trainer: those of this process, for others than us without ours."""
    others = {variable: value for variable, value in os.environ.items() if variable not in OUR_VARIABLES}
    environment = dict(os.environ) if name == "dragoman" else others
    return environment | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads)}


class TrainerProcess:
    """A process that trains, and is suspended while others have their turn."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], folder: Path | None = None):
        self.name, program = name, PROGRAMS.get(name)
        self.updates = 0  # that it has printed
        self.ready, self.tokens = map(re.compile, (program.ready, program.tokens) if program else ("^ready$", TOKENS))
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,  # in our session: the kernel ends stopped processes of a group whose parent is gone
        )

    def advance(self, seconds: float) -> int:
        """Let it train for `seconds` and to the end of an update, then suspend it; return the target tokens.

        Raise DragomanError as `run_until` does.
        """
        end, done = time.monotonic() + seconds, 0

        def is_over(line: str) -> bool:
            nonlocal done
            if match := self.tokens.search(line):
                done += int(match[1].replace(",", ""))
                self.updates += 1
            return bool(match) and time.monotonic() >= end

        self.run_until(is_over, seconds + LIMIT)
        return done

    def run_until(self, is_over: Callable[[str], object], seconds: float) -> None:
        """Let it run until it prints a line for which `is_over` is true, then suspend it.

        Raise DragomanError, with the last line, where it ends, or takes longer than `seconds`.
        """
        assert self.process.stdout
        last = ""
        alarm = threading.Timer(seconds, self.signal, [signal.SIGKILL])
        alarm.start()
        self.signal(signal.SIGCONT)
        try:
            for line in self.process.stdout:
                last = line.strip() or last
                if is_over(line.rstrip("\n")):
                    self.signal(signal.SIGSTOP)
                    return
        finally:
            alarm.cancel()
        killed = self.process.wait() == -signal.SIGKILL
        reason = f"was killed (it may take {seconds:.0f} s)" if killed else "ended"
        raise DragomanError(f"{self.name} {reason}: {last[:200]}")

    def save_and_end(self) -> None:
        """Let it save its weights, which SIGTERM makes it do, and end.

        Raise DragomanError, with the last line, where it fails, and where that takes longer than LIMIT.
        """
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        try:
            printed, _ = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            raise DragomanError(f"{self.name} does not end") from error
        if self.process.returncode not in (0, 128 + signal.SIGTERM):  # the second is Marian's, once it has saved
            raise DragomanError(f"{self.name} does not save its weights: {last_line(printed)}")

    def peak_memory(self) -> int:
        """Return the most bytes that it and its children have held, added up; 0 where the system does not say."""
        peak = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.getpgid(int(status.parent.name)) == self.process.pid:
                    held = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE)
                    peak += 1024 * int(held[1]) if held else 0
        return peak

    def signal(self, number: int) -> None:
        """Send a signal to the process and its children; nothing happens where they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def last_line(printed: str) -> str:
    """Return the beginning of the last line that a process has printed, '' where there is none."""
    return "".join(printed.strip().splitlines()[-1:])[:200]


@contextlib.contextmanager
def start_trainer(name: str, kind: str, task: TrainingTask, folder: Path) -> Iterator[TrainerProcess]:
    """Yield a process that is suspended just before its first update, and end it afterwards.

    The arguments are those of `command_of`. Raise DragomanError where it does not get so far.
    """
    command = command_of(name, kind, task, folder)
    where = folder if name in PROGRAMS else None  # ours may need a relative PYTHONPATH
    trainer = TrainerProcess(name, command, environment_of(name, task.threads), where)
    try:
        trainer.run_until(trainer.ready.search, LIMIT)
        yield trainer
    finally:
        trainer.signal(signal.SIGKILL)
        trainer.process.communicate()
