"""dragoman as a library: what a program gets, what a person sees of it, and what a type checker makes of it."""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import pydoc
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import dragoman
from dragoman import SearchConfig, Translation, Translator, UsageError
from dragoman.config import AttentionConfig, TransformerConfig
from dragoman.data.corpus import Pair
from dragoman.decoding.search import Hypothesis
from dragoman.model.positions import FIRST_LENGTH, Rotary
from dragoman.runtime.threads import granted_cores
from dragoman.translation.safeguards import Safeguards

ROOT = Path(__file__).parents[2]
THREADS = 6
SCRIPT = Path(__file__).with_name("user_script.py")


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SearchConfig(beam=3, extra_length=5), threads=1)


@pytest.fixture(scope="module")
def sources(pairs: list[Pair]) -> list[str]:
    """Texts of one sentence and of several, one of them blank."""
    one = [source for source, _ in pairs[:12]]
    return [*one, "", " ".join(one[:3]), "\n".join(one[3:8])]


# What a program gets.


def test_string_gives_one_translation_and_anything_that_yields_strings_a_list(
    translator: Translator, sources: list[str]
):
    expected = translator.translate(sources)
    assert [translator.translate(source).text for source in sources] == [one.text for one in expected]
    for many in (tuple(sources), iter(sources), (source for source in sources)):
        assert translator.translate(many) == expected
    assert translator.translate([]) == []
    assert len({one.text for one in expected}) > 5  # the control


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "translate takes a string or a list of strings, not None"),
        (5, "translate takes a string or a list of strings, not 5"),
        (b"The dog", "translate takes a string or a list of strings, not b'The dog'"),
        ({"text": "The dog"}, "translate takes a string or a list of strings, not {'text': 'The dog'}"),
        ({"The dog"}, "translate takes a string or a list of strings, not {'The dog'}"),
        (["a", None], "texts[1] must be a string, not None"),
        ((3,), "texts[0] must be a string, not 3"),
    ],
)
def test_texts_that_are_no_strings_are_refused_in_a_sentence(translator: Translator, texts: Any, message: str):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        translator.translate(texts)


NO_TEXT: list[Any] = [None, 3, "", []]


def public_calls(translator: Translator, folder: Path) -> Iterator[tuple[Any, str]]:
    """Each public function with its other arguments, and the name of the one that is left open ('': the first).

    That one takes a text, a path, a name or settings.
    """
    inspection, load = dragoman.inspect(translator, "The dog."), functools.partial(Translator.load, threads=1)
    yield Translator, ""
    yield functools.partial(Translator, tokenizers=translator.tokenizers.source), ""
    yield functools.partial(Translator, translator.model), ""
    yield load, ""
    for name in ("ensemble", "device", "engine", "compute_type", "search", "safeguards"):
        yield functools.partial(load, folder), name
    for name in ("texts", "tags", "prefixes", "beam", "n_best"):
        yield functools.partial(translator.translate, **{} if name == "texts" else {"texts": "The dog."}), name
    yield translator.stream, ""
    for name in ("chunk", "tag"):
        yield functools.partial(translator.stream, ["The dog."]), name
    tokenizer, glossary = translator.tokenizers.source, dragoman.Glossary([])
    one_argument = (tokenizer.encode, tokenizer.encode_all, tokenizer.tag_ids, dragoman.Tokenizer.load)
    for call in (*one_argument, dragoman.Tokenizer.train, dragoman.Glossary, dragoman.Glossary.read, glossary.find):
        yield call, ""
    for name in ("translations", "references", "tokenize"):
        both = {"translations": ["a"], "references": ["a"]}
        yield functools.partial(dragoman.evaluate, **{key: both[key] for key in both if key != name}), name
    yield functools.partial(dragoman.inspect, text="The dog."), ""
    yield functools.partial(dragoman.inspect, translator), ""
    for name in ("translation", "prefix", "tag", "alternatives"):
        yield functools.partial(dragoman.inspect, translator, "The dog."), name
    for call in (inspection.map, inspection.weights, inspection.maps):
        yield call, ""
    for name in ("layer", "head", "aggregate", "hide"):
        yield functools.partial(inspection.map, "cross"), name
    for name in ("view", "kind", "layer", "head", "aggregate"):
        yield functools.partial(dragoman.view_figure, translator, inspection), name
    yield dragoman.train, ""
    yield functools.partial(dragoman.Transformer, vocabulary=300), ""
    yield functools.partial(dragoman.Transformer, dragoman.TransformerConfig(d_model=8)), ""
    for config in (dragoman.SearchConfig, dragoman.Safeguards, dragoman.TrainingConfig, dragoman.RunConfig):
        for field in dataclasses.fields(config):
            yield config, field.name


@pytest.mark.parametrize("given", NO_TEXT, ids=repr)
def test_public_functions_work_or_say_what_is_wrong(translator: Translator, trained: Path, given: Any):
    """A plain TypeError or KeyError from deep inside is neither."""
    refused = []
    for call, name in public_calls(translator, trained):
        try:
            call(**{name: given}) if name else call(given)
        except dragoman.DragomanError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all(refused)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: Translator.load(None), "folder must be a string or a path, not None"),
        (lambda t: t.stream(3), "stream takes strings, such as the lines of a file, not 3"),
        (
            lambda t: dragoman.inspect(t, "The dog.").map("cros"),
            "kind must be one of encoder, decoder, cross, not 'cros'; did you mean 'cross'?",
        ),
        (lambda _: dragoman.evaluate([], []), "there is nothing to score: no translations and no references"),
        (
            lambda _: dragoman.evaluate(["a"], ["a", "b"]),
            "each translation needs a reference: 1 translation, 2 references",
        ),
        (lambda t: dragoman.evaluate([t.translate("The dog.")], ["a"]), None),
        (
            lambda _: dragoman.Glossary("a.tsv"),
            "Glossary takes a list of entries, not 'a.tsv'; a file: Glossary.read(path)",
        ),
    ],
)
def test_wrong_argument_is_refused_where_it_enters(translator: Translator, call: Any, message: str | None):
    expected = f"^{re.escape(message)}$" if message else "translations.0. .*: pass its .text"
    with pytest.raises(UsageError, match=expected):
        call(translator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam": 0}, "beam must be at least 1, not 0"),
        ({"beam": "4"}, "beam must be a whole number, not '4'"),
        ({"n_best": 4}, "n_best 4 needs a beam of at least 4, not 3"),
        ({"tags": ["", ""]}, "tags must be a string for all texts, or one for each of 1, not ['', '']"),
        ({"prefixes": 3}, "prefixes must be a string for all texts, or one for each of 1, not 3"),
        ({"tags": [None]}, "tags must be a string for all texts, or one for each of 1, not [None]"),
    ],
)
def test_wrong_choices_for_a_call_are_refused_in_a_sentence(translator: Translator, arguments: Any, message: str):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        translator.translate("The dog.", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "fast"}, "engine must be native or ctranslate2, not 'fast'"),
        ({"compute_type": "int4"}, "compute_type must be auto, float32, bfloat16, int8, not 'int4'"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"device": "gpu"}, "device must be auto, cpu, cuda, not 'gpu'"),
        ({"ensemble": "runs/b"}, "ensemble must be a list of folders, not 'runs/b'"),
        ({"search": 4}, "search must be a SearchConfig, not 4"),
        ({"safeguards": {"faults": False}}, "safeguards must be a Safeguards, not {'faults': False}"),
    ],
)
def test_wrong_choices_for_a_translator_are_refused_in_a_sentence(trained: Path, arguments: Any, message: str):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        Translator.load(trained, **arguments)


@pytest.mark.parametrize("arguments", [{}, {"search": SearchConfig(beam=2)}])
def test_constructor_points_to_load(trained: Path, arguments: Any):
    for folder in (trained, str(trained)):
        with pytest.raises(UsageError, match=re.escape(f"Translator.load({str(trained)!r})")):
            Translator(folder, **arguments)  # type: ignore[arg-type]


def test_stream_gives_the_translations_of_translate(translator: Translator):
    assert [one.text for one in translator.stream(["The dog"], tag="")] == [translator.translate("The dog").text]


def test_stream_of_one_string_is_refused(translator: Translator):
    with pytest.raises(UsageError, match="stream takes many texts"):
        next(translator.stream("The dog"))
    with pytest.raises(UsageError, match="forbidden must be a tuple of strings, not 'Rey'"):
        Safeguards(forbidden="Rey")  # type: ignore[arg-type]


def test_threads_are_those_that_were_asked_for(trained: Path):
    before, two = torch.get_num_threads(), min(2, granted_cores())
    try:
        Translator.load(trained, threads=2)
        assert torch.get_num_threads() == two
        Translator.load(trained)
        assert torch.get_num_threads() == two
    finally:
        torch.set_num_threads(before)


def test_choices_of_a_call_equal_those_of_a_translator(translator: Translator, sources: list[str]):
    wide = translator.replace(search=dataclasses.replace(translator.search, beam=6, n_best=4))
    found = translator.translate(sources, beam=6, n_best=4)
    assert found == wide.translate(sources)
    assert {len(one.alternatives) for one in found} == {0, 3}
    assert found != translator.translate(sources)  # the control: nothing of the choices is left
    assert translator.translate(sources, prefixes="개가") == translator.translate(
        sources, prefixes=["개가"] * len(sources)
    )


def test_alignments_are_those_of_the_annotator_for_the_whole_text(translator: Translator, sources: list[str]):
    found = translator.translate(sources, n_best=2, alignments=True)
    plain = translator.translate(sources, n_best=2)
    strip = {"alignment": ()}
    bare = [dataclasses.replace(one, **strip) for one in found]  # type: ignore[arg-type]
    assert [(one.text, one.score, one.segments) for one in bare] == [
        (one.text, one.score, one.segments) for one in plain
    ]
    every = [one for first in found for one in (first, *first.alternatives)]
    rows = translator.annotator.alignments([one.segments for one in every])
    assert [" ".join(f"{i}-{j}" for i, j in one.alignment) for one in every] == rows
    whole = found[-2]
    assert len(whole.segments) == 3
    assert {j for _, j in whole.alignment} == set(range(len(whole.text.split())))
    assert max(i for i, _ in whole.alignment) >= 2 * len(sources[0].split())
    assert not any(one.alignment for first in plain for one in (first, *first.alternatives))  # the control


# Several threads.


class Careless:
    """An engine that keeps its sources where another thread finds them: the control."""

    def __init__(self, engine: Any):
        self.engine, self.max_positions = engine, engine.max_positions

    def search(self, sources: Sequence[list[int]], *others: Any) -> list[list[Hypothesis]]:
        self.sources = sources
        time.sleep(0.002)
        return self.engine.search(self.sources, *others)


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switches")
@pytest.mark.parametrize("engine", ["native", "ctranslate2"])
def test_threads_share_a_translator_without_changing_translations(
    trained: Path, sources: list[str], engine: Literal["native", "ctranslate2"]
):
    """Of a new translator, so that they also race for what is made when it is first needed."""
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")
    sources = sources[8:]
    translator = Translator.load(trained, SearchConfig(beam=3, extra_length=5), engine=engine, threads=1)

    def words(translation: Translation) -> tuple:
        return translation.text, translation.segments, translation.flags, translation.alignment

    def in_threads(translator: Translator) -> list[list[tuple]]:
        start = threading.Barrier(THREADS)

        def work(number: int) -> list[tuple]:
            start.wait()
            order = [(number + index) % len(sources) for index in range(len(sources))]
            found = {index: translator.translate(sources[index], alignments=True) for index in order}
            return [words(found[index]) for index in range(len(sources))]

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(work, range(THREADS)))

    alone = [words(translator.translate(source, alignments=True)) for source in sources]
    new = Translator.load(trained, translator.search, engine=engine, threads=1)
    assert in_threads(new) == [alone] * THREADS
    careless = translator.replace(engine=Careless(translator.engine))
    assert [words(careless.translate(source, alignments=True)) for source in sources] == alone
    mixed: object = None
    with contextlib.suppress(Exception):  # it may also end in an error
        mixed = in_threads(careless)
    assert mixed != [alone] * THREADS


def test_table_of_positions_that_another_thread_makes_shorter_is_long_enough():
    class Interrupted(Rotary):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "table" and len(value) > FIRST_LENGTH:  # the other thread is a moment later
                super().__setattr__(name, value[:FIRST_LENGTH])

    positions = Interrupted(TransformerConfig(16, attention=AttentionConfig(heads=2), positions="rotary"))
    assert len(positions.rows(0, 3 * FIRST_LENGTH)) == 3 * FIRST_LENGTH
    assert len(positions.table) == FIRST_LENGTH  # the control: it was interrupted


# What a person sees.


def test_repr_says_what_a_thing_is(trained: Path, tmp_path: Path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("dog\t개\ncat\t고양이\n", encoding="utf-8")
    translator = Translator.load(trained, SearchConfig(beam=2, n_best=2), threads=1)
    shape = "Transformer, layers 1 + 1, d_model 16, heads 2, d_ff 32, positions sinusoidal"
    parameters = sum(weight.numel() for weight in translator.model.parameters())
    assert repr(translator) == (
        f"<Translator: {shape}; {parameters:,} parameters, {len(translator.tokenizers.source):,} subwords; "
        f"{translator.engine!r}; beam 2, n_best 2>"
    )
    assert repr(Translator.load(trained)).endswith("; beam 4>")
    assert str(translator.model).split("\n")[1].strip() == shape
    assert repr(SearchConfig(beam=2)) == "SearchConfig(beam=2)"
    assert repr(Safeguards(faults=False)) == "Safeguards(faults=False)"
    assert repr(dragoman.Glossary.read(terms)) == "<Glossary: 2 entries>"
    assert repr(translator.tokenizers.source) == f"<Tokenizer: {len(translator.tokenizers.source):,} subwords>"
    shown = repr(dragoman.inspect(translator, "The dog.", "개가", name="toy"))
    assert shown == "<Inspection: 'The dog.' to '개가' by toy, 1 x 2 heads>"
    assert str(Translation("개가", -1.0)) == "개가"
    assert repr(Translation("개가", -1.0, (("The dog.", "개가"),))) == "Translation(text='개가', score=-1.0)"
    assert "segments=(" in repr(Translation("개가", -1.0, (("The", "개"), (" dog", "가")), flags=("loop",)))


def documented(cls: type) -> set[str]:
    """Return the fields that have a string below them, or a line in the docstring of the class."""
    found = set(re.findall(r"^    ([\w, ]+): \S", cls.__doc__ or "", re.MULTILINE))
    found |= set(re.findall(r"; (\w+): ", cls.__doc__ or ""))
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    for first, second in itertools.pairwise(body):
        if isinstance(first, ast.AnnAssign) and isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant):
            found.add(ast.unparse(first.target))
    return {name for names in found for name in names.split(", ")}


def test_public_dataclasses_document_every_field():
    public = [value for name in dragoman.__all__ if dataclasses.is_dataclass(value := getattr(dragoman, name))]
    assert len(public) >= 9
    for cls in public:
        assert {field.name for field in dataclasses.fields(cls)} <= documented(cls), cls


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Translator", ["translate(self, texts", "compute_type", "alignments: also align the words"]),
        ("Translation", ["text: the translation", "alternatives: the next best"]),
        ("SearchConfig", ["beam: typing.Annotated[int, at least 1, at most 1,000] = 4", "translate --help"]),
    ],
)
def test_pydoc_tells_what_a_class_is_for(name: str, words: list[str]):
    text = re.sub(r"__dataclass_\w+__ = .*", "", pydoc.plain(pydoc.render_doc(f"dragoman.{name}")))
    assert all(word in text for word in words)
    assert not re.search(r" at 0x|<built-in|<function|Bound\(", text)


# The page.


def test_examples_of_the_page_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(trained, tmp_path / "runs" / "demo-en-es", symlinks=True)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == page.count("```") / 2 > 9
    namespace: dict[str, Any] = {}
    before = torch.get_num_threads()
    try:
        for example in examples:
            if "ctranslate2" not in example or find_spec("ctranslate2"):
                exec(compile(example, "docs/python.md", "exec"), namespace)
    finally:
        torch.set_num_threads(before)
    assert "texts[1] must be a string, not None\nruns/nothing: no such model folder\n" in capsys.readouterr().out


# Types.


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel of this package installed, and the packages that the tests run with."""
    folder = tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    build = "import setuptools.build_meta as backend; print(backend.build_wheel('.'))"
    ran = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    venv.create(folder / "env", with_pip=False)
    packages = next((folder / "env").glob("lib/python*/site-packages"))
    shutil.unpack_archive(folder / ran.stdout.split()[-1], packages, "zip")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "env" / "bin" / "python"


WRONG = """
translator: Translator = Translator.load("runs/mine")
translator.translate("A sentence.")[0]
translator.translate(["A sentence."]).text
translator.translate(3)
translator.translate("A sentence.", n_best="3")
Translator.load("runs/mine", engine="fast")
translator.translate("A sentence.").flag
dragoman.nothing
SearchConfig(beams=4)
Translator.load("runs/mine", beam=4)
""".strip().split("\n")


@pytest.mark.slow
def test_type_checker_accepts_a_right_program_and_rejects_a_wrong_one(installed: Path, tmp_path: Path):
    """Strictly, with the wheel. What torch and its like declare would take it half a minute to read."""
    shutil.copy(SCRIPT, tmp_path / "right.py")
    source = SCRIPT.read_text(encoding="utf-8").split("\ndef open_translator")[0] + "\n"
    (tmp_path / "wrong.py").write_text(source + "\n".join(WRONG) + "\n", encoding="utf-8")
    others = "torch.*,numpy.*,tokenizers.*,safetensors.*,huggingface_hub.*,IPython.*,matplotlib.*"
    skip = "follow_imports = skip\nfollow_imports_for_stubs = True"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{others}]\n{skip}\n", encoding="utf-8")
    options = ["--cache-dir", os.devnull, "--python-executable", str(installed)]
    command = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    errors = re.findall(r"^(\w+)\.py:(\d+): error", ran.stdout, re.MULTILINE)
    first = source.count("\n") + 2
    assert {(file, int(line)) for file, line in errors} == {
        ("wrong", line) for line in range(first, first + len(WRONG) - 1)
    }, ran.stdout + ran.stderr


def test_program_of_a_user_runs(trained: Path, pairs: list[Pair], tmp_path: Path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("dog\t개\n", encoding="utf-8")
    main = runpy.run_path(str(SCRIPT))["main"]
    sources, references = (list(side) for side in zip(*pairs[:4], strict=True))
    report = main(trained, terms, sources, references)
    assert len(report) == 1 + 4 + 4 + 1 + 1 + 1
    assert report[-2:] == ["n_best 50 needs a beam of at least 50, not 5", f"8 {dragoman.__version__}"]
