"""Shared by all tests: one thread, the same random examples each time, and small things made in code."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import os
import random
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import settings
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from dragoman.cli import main
from dragoman.config import (
    AttentionConfig,
    FeedForwardConfig,
    ModelConfig,
    RecurrentConfig,
    RunConfig,
    TrainingConfig,
    TransformerConfig,
    to_toml,
)
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.interop.ctranslate2.conversion import import_ctranslate2
from dragoman.model import Model, build
from dragoman.model_folder import write_model
from dragoman.storage.locks import lock_file
from dragoman.storage.writing import MANIFEST, fingerprint, new_folder
from dragoman.training.checkpoint import TrainingProgress
from dragoman.training.journal import Journal, StepMetrics
from dragoman.training.loop import train

# The number of threads changes the order of sums and so the last bits: bitwise tests need it fixed.
torch.set_num_threads(1)

with contextlib.suppress(DragomanError):  # before a test does, which would not choose its library for int8
    import_ctranslate2()

settings.register_profile("dragoman", derandomize=True, deadline=None, database=None, print_blob=False)
settings.register_profile("nightly", deadline=None, database=None, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dragoman")
settings.load_profile(PROFILE)
AT_NIGHT = 20  # times as many examples


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Give each test one thread, whatever the one before it has set: with more, all that run beside it are slower."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every property more examples at night, also those that say themselves how many they need."""
    for test in {getattr(item, "obj", None) for item in items} if PROFILE == "nightly" else ():
        if stated := getattr(test, "_hypothesis_internal_use_settings", None):
            test._hypothesis_internal_use_settings = settings(stated, max_examples=AT_NIGHT * stated.max_examples)  # type: ignore[union-attr]


def tiny_transformer(*, heads: int = 2, d_ff: int = 32, **changes: Any) -> TransformerConfig:
    """Describe a Transformer of one layer and 16 dimensions, with `changes` to any of its settings."""
    small = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention": AttentionConfig(heads=heads)}
    return TransformerConfig(**{**small, "feed_forward": FeedForwardConfig(d_ff=d_ff), **changes})


TINY = tiny_transformer()
TINY_RECURRENT = RecurrentConfig(cell="gru", d_model=16)
LITTLE = tiny_transformer(d_model=8, encoder_layers=2, decoder_layers=2, d_ff=12, dropout=0, max_length=16)

# A batch for models of so many words.
WORDS = 11
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [5, 3, 2, 0, 0], [7, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 8, 9, 0], [1, 4, 7, 10], [1, 0, 0, 0]])
REAL = TARGET != PAD


def step_by_step(model: Model, source: Tensor, target: Tensor, sizes: list[int]) -> Tensor:
    """Return the logits of the whole target, which the model gets in pieces of these sizes."""
    state: Any = model.start(source)
    return torch.cat([model.step(tokens, state) for tokens in target.split(sizes, 1)], 1)


ANIMALS = {"dog": "개", "cat": "고양이", "bear": "곰", "horse": "말", "rabbit": "토끼"}
VERBS = {"sees": "봐요", "likes": "좋아해요", "finds": "찾아요", "paints": "그려요"}
COLOURS = {"red": "빨간", "black": "검은", "white": "하얀", "blue": "파란"}


def toy_pairs(count: int = 200) -> list[Pair]:
    """English sentences and Korean ones with the verb at the end, all different."""
    sentences = [
        (
            f"The {a} {verb} {n} {colour} {b}s.",
            f"{ANIMALS[a]}가 {COLOURS[colour]} {ANIMALS[b]} {n}마리를 {VERBS[verb]}.",
        )
        for a, verb, colour, b, n in itertools.product(ANIMALS, VERBS, COLOURS, ANIMALS, range(2, 9))
    ]
    return random.Random(1).sample(sentences, count)


def write_tsv(path: Path, pairs: list[Pair]) -> str:
    path.write_bytes("".join(f"{source}\t{target}\n" for source, target in pairs).encode())
    return str(path)


class Notebook(Journal):
    """A journal that keeps what it is given."""

    def __init__(self, run: Path, active: bool = True):
        super().__init__(run, Console(file=io.StringIO()), quiet=True, active=active)
        self.losses: list[float] = []
        self.tokens_of_steps: list[int] = []
        self.returned: TrainingProgress | None = None
        self.logged: list[str] = []

    def step(self, metrics: StepMetrics) -> None:
        self.losses.append(metrics.loss)
        self.tokens_of_steps.append(metrics.tokens)
        super().step(metrics)

    def log(self, text: str) -> None:
        self.logged.append(text)
        super().log(text)


def run_training(config: RunConfig) -> Notebook:
    """The real training loop, quietly. `returned` of the notebook is what it returned."""
    with Notebook(Path(config.out)) as notebook:
        notebook.returned = train(config, notebook)
    return notebook


def train_a_little(config: RunConfig) -> None:
    """Train, on all processors, with PyTorch's own products: so little is learned that last digits decide on words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.runtime.device.has_narrow_products", lambda: False)
        run_training(config)


@pytest.fixture
def seeded_double_precision() -> Iterator[None]:
    """For equalities to 1e-12."""
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors of one shape."""
    assert a.shape == b.shape
    return float((a - b).abs().max().detach())


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    return toy_pairs()


@pytest.fixture(scope="session")
def tokenizer(pairs: list[Pair]) -> Tokenizer:
    return Tokenizer.train(text for pair in pairs for text in pair)


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that fills a folder of that name, once for all processes of a test run, and returns it."""
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each process has a folder of its own in the common one
        common = common.parent

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = common / name, common / f"{name}.filled"
        with lock_file(common / f"{name}.lock", wait=True):
            if not filled.exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                filled.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def corpus(make_once: Callable[..., Path], pairs: list[Pair]) -> tuple[str, str]:
    """Paths of 190 pairs to learn from and of 10 to validate on."""

    def fill(folder: Path) -> None:
        write_tsv(folder / "train.tsv", pairs[:190])
        write_tsv(folder / "dev.tsv", pairs[190:])

    folder = make_once("corpus", fill)
    return str(folder / "train.tsv"), str(folder / "dev.tsv")


def run_config(corpus: tuple[str, str], out: Path, **training: Any) -> RunConfig:
    """A run of a few steps, about four batches to an epoch; everything is fixed that decides the last bits."""
    few = TrainingConfig(
        batch_tokens=1500,
        warmup=20,
        max_steps=12,
        validate_every=6,
        patience=0,
        threads=1,
        micro_batches=1,
        precision="float32",
        device="cpu",
    )
    return RunConfig(
        train=(corpus[0],),
        dev=(corpus[1],),
        out=str(out),
        vocabulary=400,
        model=TINY,
        training=dataclasses.replace(few, **training),
    )


def settings_file(config: RunConfig) -> str:
    """The same run as `dragoman train` takes it; the file lies beside the run folder."""
    path = Path(config.out).with_suffix(".toml")
    path.write_text(to_toml(config), encoding="utf-8")
    return str(path)


def with_training(config: RunConfig, **changes: Any) -> RunConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


def state(out: Path) -> str:
    """A fingerprint of weights and moments: two runs that have the same are equal, bit for bit."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "state.safetensors"):
        for key, tensor in sorted(load_file(out / "last" / name).items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def progress(out: Path) -> dict[str, Any]:
    """How far a run has come, without what a clock has measured."""
    record = json.loads((out / "last" / "state.json").read_text(encoding="utf-8"))
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


def signed_again(folder: Path) -> None:
    """Write the manifest of a model folder anew, as a stranger would do it who has changed a file."""
    files = [file for file in sorted(folder.iterdir()) if file.name != MANIFEST]
    (folder / MANIFEST).write_text(json.dumps({file.name: fingerprint(file) for file in files}))


def events(out: Path, event: str) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["event"] == event]


@pytest.fixture(scope="session")
def trained(make_once: Callable[..., Path], corpus: tuple[str, str]) -> Path:
    """A run folder after a short training: a model that ends its sentences, no more. Not to be changed: copy it."""
    return make_once("toy", lambda out: train_a_little(run_config(corpus, out, max_steps=80, validate_every=40)))


def save_random(config: ModelConfig, tokenizer: Tokenizer, folder: Path, never: slice = slice(0)) -> Path:
    """Write a model with random weights, biases included, and return its folder.

    never: ids that it never says, if its output has a bias.
    """
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
        if model.output.bias is not None:
            model.output.bias[never] = -50
    with new_folder(folder) as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# Random\n")
    return folder


@pytest.fixture(scope="session")
def models(trained: Path) -> Iterator[Any]:
    """The models of a server: one that translates English into Korean, a little."""
    from serving import CONFIG

    from dragoman.server.models import open_models, parse_models

    opened = open_models(CONFIG, parse_models([f"en-ko={trained}"], None))
    yield opened
    opened.close(5)


@pytest.fixture
def remembering(trained: Path, tmp_path: Path) -> Iterator[Any]:
    """The models of a server: that one, with an empty memory in a folder of the test."""
    pytest.importorskip("faiss")
    from serving import open_remembering

    opened = open_remembering(trained, tmp_path / "memory")
    yield opened
    opened.close(5)


@pytest.fixture(scope="session")
def reopened(trained: Path) -> Any:
    """The translator of that server, opened anew."""
    from dragoman.translation.translator import Translator

    return Translator.load(trained, threads=1)


@pytest.fixture(scope="session")
def inspected(reopened: Any) -> Any:
    """What its model does with one sentence."""
    from dragoman.inspection.inspect import inspect

    return inspect(reopened, "The dog sees 2 red cats.", name="toy")


@pytest.fixture
def gated(models: Any) -> Iterator[tuple[Any, Any]]:
    """Models that translate nothing until their gate is opened."""
    from serving import Gate

    from dragoman.decoding.pool import Pool
    from dragoman.server.models import Models

    served = next(iter(models.by_pair.values()))
    gate = Gate(served.translator.engine)
    with Pool(gate) as pool:  # type: ignore[arg-type]
        yield Models([dataclasses.replace(served, pool=pool)]), gate
        gate.open.set()


@pytest.fixture(scope="session")
def server(models: Any) -> Iterator[Any]:
    """A server without keys."""
    from serving import CONFIG, running

    with running(models, CONFIG) as started:
        yield started


@pytest.fixture(scope="session")
def sure_model(trained: Path, make_once: Callable[..., Path]) -> Path:
    """The folder of that model, which knows how sure it may be."""
    from serving import with_confidence

    return make_once("sure", lambda folder: with_confidence(trained, folder / "model")) / "model"


@pytest.fixture(scope="session")
def sure_models(sure_model: Path) -> Iterator[Any]:
    """The models of a server: that one."""
    from serving import CONFIG

    from dragoman.server.models import open_models, parse_models

    opened = open_models(CONFIG, parse_models([f"en-ko={sure_model}"], None))
    yield opened
    opened.close(5)


@pytest.fixture(scope="session")
def sure_server(sure_models: Any) -> Iterator[Any]:
    """A server without keys, with that model."""
    from serving import CONFIG, running

    with running(sure_models, CONFIG) as started:
        yield started


class Ran(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def dragoman(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that runs a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # the library that reads the flags ends the program after --help and wrong flags
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of pages."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    names = ("chromium-headless-shell", "chromium", "chromium-browser")  # the first opens no windows, and is faster
    if not (program := os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)):
        pytest.skip("no Chromium on this machine: install the package chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a tab without cookies or history. It may report no error, message or dialog.

    allowed: a pattern of all its requests, such as "GET data:,", of which those for files come once; expected: a
    pattern of messages that are no problem.
    """
    problems: list[str] = []
    files: set[str] = set()

    def open_empty(
        allowed: str, *, width: int = 1100, dark: bool = False, language: str = "en-US", expected: str = "(?!)"
    ) -> Any:
        context = contexts.enter_context(
            chromium.new_context(
                viewport={"width": width, "height": 800},
                color_scheme="dark" if dark else "light",
                locale=language,
                reduced_motion="reduce",
                permissions=["clipboard-read", "clipboard-write"],
            )
        )
        tab = context.new_page()

        def check(request: Any) -> None:
            asked = f"{request.method} {urllib.parse.unquote(request.url)}"
            if not re.fullmatch(allowed, asked, re.DOTALL) or asked in files:
                problems.append(asked)
            if request.url.startswith("file:"):
                files.add(asked)

        tab.on("request", check)
        tab.on("console", lambda message: re.search(expected, message.text) or problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("dialog", lambda dialog: (problems.append("dialog"), dialog.dismiss()))
        return tab

    with contextlib.ExitStack() as contexts:
        yield open_empty
    assert problems == []


@pytest.fixture
def open_page(open_tab: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Return a function that opens a document in a tab, which requests nothing but its own file, once."""
    numbers = itertools.count()

    def open_document(document: str, **look: Any) -> Any:
        file = tmp_path / f"page{next(numbers)}.html"
        file.write_text(document, encoding="utf-8")
        tab = open_tab(f"GET {re.escape(urllib.parse.unquote(file.as_uri()))}|GET (blob|data):.*", **look)
        tab.goto(file.as_uri())
        return tab

    return open_document


@pytest.fixture
def visit(open_tab: Callable[..., Any], server: Any) -> Callable[..., Any]:
    """Return a function that opens the page of a server in a tab, which asks this machine only.

    None as the fragment: do not open it yet.
    """
    from visiting import Visit

    def open_fragment(fragment: str | None = "", *, at: Any = server, **look: Any) -> Any:
        no_text = r"(?!.*The)"  # in an address
        tab = Visit(open_tab(rf"{no_text}\w+ (http://127\.0\.0\.1[:/]|data:|blob:).*", **look), at.url)
        return tab if fragment is None else tab.open(fragment)

    return open_fragment
