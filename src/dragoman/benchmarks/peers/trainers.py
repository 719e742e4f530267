"""Train with toolkits that are programs of their own: Marian, JoeyNMT and Eole.

Each has an environment of its own beside ours (`make peers`), trains the same model on the same ids, written as words,
makes batches in its own way, and logs how many target tokens it has processed. Between its turns it is stopped.
"""

import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.benchmarks.peers.pytorch import CLIP, RATE, SMOOTHING
from dragoman.config import TransformerConfig
from dragoman.data.batches import Ids
from dragoman.errors import DragomanError

PEERS = Path(sys.prefix) / "peers"
LIMIT = 600.0  # seconds for one turn
NEVER = 1_000_000  # updates


@dataclass(frozen=True)
class TrainingTask:
    """A model's settings, the pairs to train it on, and how. The pairs are in groups of similar length."""

    model: TransformerConfig
    vocabulary: int
    sources: list[Ids]
    targets: list[Ids]
    batch_tokens: int
    threads: int
    bfloat16: bool = False

    @property
    def tokens(self) -> int:
        """Return the number of target tokens, EOS included."""
        return sum(len(ids) + 1 for ids in self.targets)

    def vocabulary_words(self) -> list[str]:
        """Return a made-up word for each id that is not PAD, BOS or EOS."""
        return [f"w{id}" for id in range(3, self.vocabulary)]

    def write(self, folder: Path) -> None:
        """Write the sentences into `folder` as text.source and text.target, one a line, and the vocabulary as words.

        dev.source and dev.target get the first sentence.
        """
        for side, rows in (("source", self.sources), ("target", self.targets)):
            lines = [" ".join(f"w{id}" for id in ids) + "\n" for ids in rows]
            (folder / f"text.{side}").write_text("".join(lines), encoding="ascii")
            (folder / f"dev.{side}").write_text(lines[0], encoding="ascii")
        (folder / "words").write_text("".join(f"{word}\n" for word in self.vocabulary_words()), encoding="ascii")


@dataclass(frozen=True)
class Program:
    """A toolkit: `settings` writes its files into a folder and returns its command; `tokens` reads its log."""

    settings: Callable[[TrainingTask, Path], list[str]]
    tokens: str  # pattern of a line of the log with the target tokens since the last such line
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
        "learn-rate": RATE,
        "label-smoothing": SMOOTHING,
        "clip-norm": CLIP,
        "cpu-threads": task.threads,
        "sync-sgd": [],
        "disp-freq": "1u",
        "save-freq": f"{NEVER}u",
        "after": f"{NEVER}u",
    }
    values = ([f"--{name}", *map(str, v if isinstance(v, list) else [v])] for name, v in flags.items())
    return ["pymarian", "train", *(word for flag in values for word in flag)]


def prepare_joeynmt(task: TrainingTask, folder: Path) -> list[str]:
    """Write vocabulary and settings for JoeyNMT into `folder`; return the command that trains with it, without a path.

    It must run in `folder`, where `TrainingTask.write` puts the sentences. JoeyNMT does not sort by length: shuffled
    batches would be mostly padding, so it reads the groups in order.
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
            "learning_rate": RATE,
            "learning_rate_min": 0.0,
            "learning_rate_warmup": 100,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": CLIP,
            "label_smoothing": SMOOTHING,
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
    (folder / "joeynmt.yaml").write_text(json.dumps(settings), encoding="ascii")  # JSON is YAML
    return ["python", "-m", "joeynmt", "train", "joeynmt.yaml", "--skip-test"]


def prepare_eole(task: TrainingTask, folder: Path) -> list[str]:
    """Write the settings for Eole into `folder`; return the command that trains with it, without a path.

    It must run in `folder`, where `TrainingTask.write` puts the sentences and the vocabulary.
    """
    model = task.model
    settings = {
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
            "compute_dtype": "bf16" if task.bfloat16 else "fp32",
            "train_steps": NEVER,
            "save_checkpoint_steps": NEVER,
            "valid_steps": NEVER,
            "log_attention_entropy": False,
            "optim": "adamw",
            "adam_beta2": 0.98,
            "learning_rate": RATE,
            "max_grad_norm": CLIP,
            "label_smoothing": SMOOTHING,
            "dropout": [model.dropout],
            "attention_dropout": [0.0],
            "normalization": "tokens",
            "param_init_method": "xavier_uniform",
        },
    }
    (folder / "eole.yaml").write_text(json.dumps(settings), encoding="ascii")
    return ["eole", "train", "-c", "eole.yaml"]


PROGRAMS = {
    "marian": Program(prepare_marian, r"Cost \S+ \* ([\d,]+) @"),
    "joeynmt": Program(prepare_joeynmt, r"num\. of tokens: *(\d+)"),
    "eole": Program(prepare_eole, r"bsz: *\d+/ *(\d+)/", bfloat16=True),
}


def find_command(name: str, command: str) -> str:
    """Return the path of a command, such as 'python', of the toolkit `name`.

    Raise DragomanError where it is not installed.
    """
    if not (file := PEERS / name / "bin" / command).exists():
        raise DragomanError("`make peers` installs it")
    return str(file)


class TrainerProcess:
    """A program that trains, and is suspended while others have their turn."""

    def __init__(self, name: str, command: list[str], folder: Path, tokens: str, threads: int):
        self.name, self.tokens = name, re.compile(tokens)
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def advance(self, tokens: int) -> int:
        """Let it train on `tokens` more target tokens or a few more, then suspend it; return how many they were.

        Raise DragomanError where it ends, or takes longer than LIMIT.
        """
        assert self.process.stdout
        done, last = 0, collections.deque([""], maxlen=1)
        alarm = threading.Timer(LIMIT, self.signal, [signal.SIGKILL])
        alarm.start()
        self.signal(signal.SIGCONT)
        try:
            for line in self.process.stdout:
                last.append(line.strip() or last[0])
                if match := self.tokens.search(line):
                    done += int(match[1].replace(",", ""))
                    if done >= tokens:
                        self.signal(signal.SIGSTOP)
                        return done
        finally:
            alarm.cancel()
        raise DragomanError(
            f"{self.name} failed, or was stopped after {LIMIT:.0f} s, before its turn was over: {last[0][:200]}"
        )

    def signal(self, number: int) -> None:
        """Send a signal to the program and its children; nothing happens where they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@contextlib.contextmanager
def train_in_turns(name: str, task: TrainingTask, folder: Path) -> Iterator[Callable[[], int]]:
    """Yield a function that makes a program train on `task` once more and returns the target tokens of that pass.

    name: a key of PROGRAMS; folder: for its files. The first pass, with which it starts, is over by then. Raise
    DragomanError where the program is not installed or does not get through it.
    """
    program = PROGRAMS[name]
    task.write(folder)
    command, *arguments = program.settings(task, folder)
    command = find_command(name, command)
    # A SIGTERM to us must end the program as well: a stopped one would stay for ever.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    trainer = TrainerProcess(name, [command, *arguments], folder, program.tokens, task.threads)
    try:
        trainer.advance(task.tokens)
        yield lambda: trainer.advance(task.tokens)
    finally:
        trainer.signal(signal.SIGKILL)
        trainer.process.communicate()
        signal.signal(signal.SIGTERM, before)
