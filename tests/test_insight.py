"""How a model learned: what is told of each checkpoint is what that checkpoint does."""

import base64
import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY, TINY_RECURRENT, run_config, run_training, write_tsv
from dragoman.inspection.attention import attention_maps, by_word, cross_attention, words
from torch import Tensor

from dragoman.alignment import Alignment
from dragoman.cli import main
from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.data.batches import Batch
from dragoman.data.corpus import Pair
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.figure import save
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.history import (
    FINEST,
    FRAMES,
    LONGEST,
    Insight,
    batched,
    changes,
    layer_of,
    layers,
    look_back,
    loss_and_gradients,
    picture,
    spaced,
    spreads,
    write_page,
)
from dragoman.inspection.inspection import inspect
from dragoman.model import Model, build
from dragoman.model.attention import masked_softmax
from dragoman.model_folder import read_model
from dragoman.training.loss import Objective
from dragoman.translation.translator import Translator

DEEP = dataclasses.replace(TINY, encoder_layers=2, decoder_layers=2)
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "transformer": DEEP,
    "relative, pre-norm, untied": dataclasses.replace(DEEP, positions="relative", norm_first=True, share="none"),
    "additive": dataclasses.replace(DEEP, attention=AttentionConfig(heads=2, score="additive")),
    "lstm": RecurrentConfig(d_model=16, layers=2),
    "rnn": RecurrentConfig(cell="rnn", d_model=16, layers=2, attention="additive"),
}
SAMPLE = [([5, 6, 7, 8], [9, 10]), ([5, 9], [11, 6, 7, 5, 8]), ([10, 11, 5], [6])]


def make(name: str) -> Model:
    torch.manual_seed(0)
    return build(MODELS[name], 12).eval()


# Gradients.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_the_training_loss(name: str, smoothing: float):
    model = make(name)
    batches = batched(SAMPLE)
    loss, found = loss_and_gradients(model, batches, smoothing)
    tokens = sum(batch.tokens for batch in batches)
    expected = sum(Objective(model, smoothing)(batch) for batch in batches) / tokens
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    squares = [float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None]
    assert math.fsum(n * n for n in found.values()) == pytest.approx(math.fsum(squares), rel=1e-4)
    for layer, parameters in layers(model).items():
        squares = [float(p.grad.double().square().sum()) for p in parameters if p.grad is not None]
        assert found[layer] == pytest.approx(math.sqrt(math.fsum(squares)), rel=1e-4, abs=1e-8)
    assert found != pytest.approx(loss_and_gradients(model, batches, 0.5)[1], rel=1e-2)  # the control


@pytest.mark.parametrize("name", MODELS)
def test_looking_leaves_the_model_as_it_was(name: str):
    model = make(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    loss_and_gradients(model, batched(SAMPLE), 0.1)
    spreads(model, batched(SAMPLE))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_size_of_the_batches_is_of_no_matter():
    model = make("transformer")
    together, alone = batched(SAMPLE), [batch for pair in SAMPLE for batch in batched([pair])]
    assert len(together) < len(alone) == 3
    one, two = (loss_and_gradients(model, batches, 0.1) for batches in (together, alone))
    assert one[0] == pytest.approx(two[0], rel=1e-5)
    assert one[1] == pytest.approx(two[1], rel=1e-4)


# Layers.


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_belongs_to_one_layer(name: str):
    model = make(name)
    found = [id(parameter) for parameters in layers(model).values() for parameter in parameters]
    assert sorted(found) == sorted(map(id, model.parameters()))


def test_layers_are_counted_as_people_count_them():
    words = "source embedding = target embedding = output"
    stacks = ["encoder 1", "encoder 2", "decoder 1", "decoder 2"]
    assert list(layers(make("transformer"))) == [words, *stacks]
    assert list(layers(make("lstm"))) == [words, *stacks, "combine"]
    assert list(layers(make("rnn"))) == [words, *stacks, "attention", "combine"]
    assert set(layers(make("relative, pre-norm, untied"))) == {
        *("source embedding", "target embedding", "output", "encoder positions", "decoder positions"),
        *(*stacks, "encoder norm", "decoder norm"),
    }


def test_both_directions_of_a_recurrent_layer_are_one_layer():
    lstm, rnn = make("lstm"), make("rnn")
    assert layer_of(lstm, "encoder.cells.weight_ih_l1_reverse") == "encoder 2"
    assert [layer_of(rnn, f"encoder.cells.{cell}.input.weight") for cell in range(4)] == [
        *("encoder 1", "encoder 1", "encoder 2", "encoder 2")
    ]
    assert [layer_of(rnn, f"decoder.cells.{cell}.input.weight") for cell in range(2)] == ["decoder 1", "decoder 2"]


# Changes.


@pytest.mark.parametrize("name", MODELS)
def test_a_change_is_a_share_of_the_weights(name: str):
    before, after = make(name), make(name)
    assert set(changes(before, after).values()) == {0.0}
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.mul_(4)
    moved = changes(before, after)
    still = {layer for layer, ps in layers(before).items() if not any(bool(p.any()) for p in ps)}
    assert {layer: 0.75 for layer in moved if layer not in still} == pytest.approx(
        {layer: share for layer, share in moved.items() if layer not in still}
    )


def test_only_a_layer_that_changed_has_changed():
    before, after = make("transformer"), make("transformer")
    with torch.no_grad():
        after.decoder[1].feed_forward.out.bias.add_(1.0)
    assert {layer for layer, share in changes(before, after).items() if share} == {"decoder 2"}


# Attention.


def replaced(model: Model, weigh: Callable[[Tensor], Tensor]) -> Model:
    """All kernels give the weights that `weigh` makes of scores of zero."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = torch.zeros(*query.shape[:-1], key.size(-2))
        return masked_softmax(weigh(scores), mask) @ value

    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = kernel
    return model


def to_the_first(scores: Tensor) -> Tensor:
    scores[..., 0] = 1000.0
    return scores


@pytest.mark.parametrize("name", MODELS)
def test_a_head_that_looks_everywhere_alike_has_one_and_a_head_that_looks_at_one_token_zero(name: str):
    for weigh, expected in ((lambda scores: scores, 1.0), (to_the_first, 0.0)):
        found = spreads(replaced(make(name), weigh), batched(SAMPLE))
        assert len(found) == (6 if isinstance(MODELS[name], TransformerConfig) else 1)
        for heads in found.values():
            assert heads == pytest.approx([expected] * len(heads), abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_spread_is_the_mean_over_all_tokens_that_have_a_choice(name: str):
    """Recomputed sentence by sentence, without padding."""
    model = make(name)
    shares: dict[str, list[Tensor]] = {}
    for pair in SAMPLE:
        batch = Batch.of([pair[0]], [pair[1]])
        with attention_maps(model) as maps, torch.no_grad():
            model(batch.source, batch.target)
        for layer, (weights,) in maps.items():
            causal = re.fullmatch(r"decoder\.\d\.attention", layer)
            for place in range(weights.size(2)):
                keys = place + 1 if causal else weights.size(3)
                if keys > 1:
                    p = weights[0, :, place, :keys].double()
                    shares.setdefault(layer, []).append(-(p * p.log()).sum(-1) / math.log(keys))
    found = spreads(model, batched(SAMPLE))
    assert set(found) == set(shares)
    for layer, rows in shares.items():
        assert found[layer] == pytest.approx(torch.stack(rows).mean(0).tolist(), abs=1e-6)


def test_heads_are_as_spread_out_as_their_statistics_say(trained: Path, dev: list[Pair]):
    """Those look at one sentence after the other, through a translator."""
    translator = Translator.load(trained)
    pairs = [(translator.tokenizer.encode(source), translator.tokenizer.encode(target)) for source, target in dev]
    found = spreads(translator.model, batched(pairs))
    layers = {"encoder": "encoder.0.attention", "decoder": "decoder.0.attention", "cross": "decoder.0.cross_attention"}
    statistics = head_statistics(inspect(translator, source, target) for source, target in dev)
    assert len(statistics) == 6
    for head in statistics:
        assert found[layers[head.kind]][head.head - 1] == pytest.approx(head.spread, abs=1e-5)


# Looking back.


def checkpoints_of(run: Path) -> dict[int, Path]:
    return {int(folder.name[5:13]): folder for folder in (run / "checkpoints").glob("step-*")}


def seen(run: Path, pairs: list[Pair], **changes: object) -> Insight:
    return look_back("toy", checkpoints_of(run), pairs, [""] * len(pairs), **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def dev(pairs: list[Pair]) -> list[Pair]:
    return pairs[190:]


@pytest.fixture(scope="module")
def insight(trained: Path, dev: list[Pair]) -> Insight:
    return seen(trained, dev, sentence=3)


def test_each_frame_is_what_its_checkpoint_does(insight: Insight, trained: Path, dev: list[Pair]):
    assert [frame.step for frame in insight.frames] == [40, 80]
    assert insight.pairs == len(dev) == 10
    for frame in insight.frames:
        model, tokenizer = read_model(checkpoints_of(trained)[frame.step])
        source, target = (tokenizer.encode(text) for text in dev[2])
        rows, columns = words(tokenizer, target), words(tokenizer, source)
        assert insight.target == [word.label for word in rows]
        assert insight.source == [word.label for word in columns]
        torch.testing.assert_close(frame.film, by_word(cross_attention(model, source, target), rows, columns))
        torch.testing.assert_close(frame.film.sum(-1), torch.ones(frame.film.shape[:-1]))
        batches = batched([tuple(map(tokenizer.encode, pair)) for pair in dev])  # type: ignore[misc]
        loss, gradients = loss_and_gradients(model, batches, 0.1)
        assert (frame.loss, frame.gradients) == (pytest.approx(loss), pytest.approx(gradients))
        assert frame.spread == spreads(model, batches)
    first, last = insight.frames
    assert last.loss < first.loss
    assert not torch.equal(first.film, last.film)
    assert first.updates == {}
    models = [read_model(folder)[0] for _, folder in sorted(checkpoints_of(trained).items())]
    assert last.updates == pytest.approx(changes(*models))
    assert min(last.updates.values()) > 0


def test_the_film_is_of_the_sentence_that_was_asked_for(trained: Path, insight: Insight, dev: list[Pair]):
    other = seen(trained, dev, sentence=1)
    assert other.target[:-1] == dev[0][1].split()
    assert other.target != insight.target
    assert len(seen(trained, dev, pieces=True).target) > len(other.target)


def test_it_looks_first_where_words_are_aligned(insight: Insight, trained: Path):
    found = Alignment.load(trained / "last")
    assert insight.focus == found
    for focus, expected in (
        (Alignment(1, 2), insight.frames[0].film[0, 1]),
        (Alignment(1), insight.frames[0].film[0].mean(0)),
    ):
        at = dataclasses.replace(insight, focus=focus)
        assert torch.equal(at.shown(at.frames[0]), expected)
        assert ("head 2 of 2" in at.where) == (focus.head == 2)


@pytest.mark.parametrize("number", [0, -1, 11])
def test_a_sentence_that_is_not_there_is_refused(trained: Path, dev: list[Pair], number: int):
    with pytest.raises(UsageError, match=rf"sentence {number}: there are 10 pairs"):
        seen(trained, dev, sentence=number)


def test_a_sentence_too_long_for_a_film_is_refused(trained: Path, dev: list[Pair]):
    with pytest.raises(UsageError, match=rf"tokens; a film takes at most {LONGEST}"):
        seen(trained, [("dog " * 100, "개"), *dev])


def test_pairs_too_long_for_the_sample_are_left_out_of_it(trained: Path, dev: list[Pair]):
    assert seen(trained, [*dev, ("dog " * 2000, "개")]).pairs == 10


# A recurrent run.


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory, corpus: tuple[str, str]) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def run(attention: str) -> Path:
        if attention not in made:
            made[attention] = tmp_path_factory.mktemp("runs") / attention
            model = dataclasses.replace(TINY_RECURRENT, attention=attention)
            config = run_config(corpus, made[attention], max_steps=4, validate_every=2)
            run_training(dataclasses.replace(config, model=model))
        return made[attention]

    return run


@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_a_recurrent_model_with_attention_has_a_film(recurrent: Callable[[str], Path], dev: list[Pair], attention: str):
    found = seen(recurrent(attention), dev)
    assert [frame.step for frame in found.frames] == [2, 4]
    assert found.frames[0].film.shape == (1, 1, len(found.target), len(found.source))
    assert list(found.frames[0].spread) == ["attention"]


def test_a_model_without_attention_says_so(recurrent: Callable[[str], Path], capsys: pytest.CaptureFixture[str]):
    assert main(["insight", str(recurrent("none"))]) == 1
    said = capsys.readouterr().err
    assert "this model has no attention over the source: there is nothing to film" in said
    assert said.count("\n") == 1


# The page.


class Page(HTMLParser):
    """What is in a page: texts of its cells by table, the spans of each language, addresses, JSON."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.languages: list[str] = []
        self.addresses: list[str] = []
        self.json = ""
        self.tags: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.tags.append(tag)
        self.scripts += tag == "script"
        self.addresses += [found[name] or "" for name in ("src", "href", "action", "srcset") if name in found]
        if tag == "span" and "lang" in found:
            self.languages.append(found["lang"] or "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self.tags and self.tags.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if self.tags and self.tags[-1] == "script" and not self.json:
            self.json = data


@pytest.fixture(scope="module")
def page(insight: Insight, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "new" / "insight.html"
    write_page(insight, path)
    return path.read_text(encoding="utf-8")


def test_the_page_holds_the_whole_film(page: str, insight: Insight):
    data = json.loads(Page(page).json)
    found = np.frombuffer(base64.b64decode(data["weights"]), "<u2").reshape(data["shape"]) / FINEST
    film = torch.stack([frame.film for frame in insight.frames])
    assert np.abs(found - film.double().numpy()).max() <= 0.5 / FINEST + 1e-7
    assert data["steps"] == [40, 80]
    assert data["losses"] == [round(frame.loss, 3) for frame in insight.frames]


def test_the_tables_of_the_page_hold_the_numbers(page: str, insight: Insight):
    film, gradients, updates, *heads = Page(page).tables
    assert film[0][1:] == insight.source
    assert [row[0] for row in film[1:]] == insight.target
    last = insight.shown(insight.frames[-1])
    assert [[float(cell) for cell in row[1:]] for row in film[1:]] == [
        pytest.approx(row, abs=0.0051) for row in last.tolist()
    ]
    for table, numbers in (
        (gradients, [frame.gradients for frame in insight.frames]),
        (updates, [insight.frames[1].updates]),
    ):
        assert table[0][1:] == ["40", "80"][-len(numbers) :]
        assert [row[0] for row in table[1:]] == list(numbers[0])
        for name, *cells in table[1:]:
            assert [float(cell) for cell in cells] == pytest.approx([each[name] for each in numbers], rel=6e-3)
    assert [[row[0] for row in table[1:]] for table in heads] == [["1.1", "1.2"]] * 3
    for table, layer in zip(
        heads, ("encoder.0.attention", "decoder.0.attention", "decoder.0.cross_attention"), strict=True
    ):
        for number, (_, *cells) in enumerate(table[1:]):
            values = [frame.spread[layer][number] for frame in insight.frames]
            assert [float(cell) for cell in cells] == pytest.approx(values, abs=0.0051)


def test_the_page_asks_nothing_of_the_network(page: str):
    found = Page(page)
    assert found.addresses == ["data:,"]
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|fetch\(|https?:|XMLHttpRequest|innerHTML|eval\(", page)


def test_the_page_speaks_two_languages_in_light_and_dark(page: str):
    languages = Page(page).languages
    assert languages.count("en") == languages.count("ko") > 20
    assert languages[::2] == ["en"] * (len(languages) // 2)  # side by side
    assert "prefers-color-scheme: dark" in page


def test_what_stands_in_a_corpus_is_text_on_the_page(insight: Insight, page: str, tmp_path: Path):
    wild = "</script><script>alert(1)</script><b onclick='x'>\"&"
    other = dataclasses.replace(
        insight, run=wild, source=[wild, *insight.source[1:]], target=[wild, *insight.target[1:]]
    )
    write_page(other, tmp_path / "wild.html")
    found = Page((tmp_path / "wild.html").read_text(encoding="utf-8"))
    assert found.tables[0][0][1] == found.tables[0][1][0] == wild
    assert found.scripts == Page(page).scripts == 2


# The figure.


def texts(svg: Path) -> list[str]:
    return re.findall(r"<!-- (.*) -->", svg.read_text(encoding="utf-8"))


def test_the_figure_has_all_panels(insight: Insight, tmp_path: Path):
    save(picture(insight), tmp_path / "insight.svg")
    found = texts(tmp_path / "insight.svg")
    assert {"Norm of the gradient", "step 40", "step 80", "encoder 1", "1.2", *insight.target, *insight.source} <= {
        text.replace("&lt;", "<").replace("&gt;", ">") for text in found
    }
    assert len([text for text in found if text.startswith("Entropy over ln n")]) == 3
    assert len([text for text in found if text.startswith("step ")]) == 2
    for value in insight.frames[0].gradients.values():
        assert f"{value:.2g}" in found


@pytest.mark.parametrize("count", [2, FRAMES, FRAMES + 1, 57])
def test_a_long_film_is_shortened_to_frames_as_far_apart(insight: Insight, count: int):
    last = insight.frames[-1]
    frames = [insight.frames[0], *(dataclasses.replace(last, step=100 * step) for step in range(1, count))]
    shown = spaced(frames)
    assert len(shown) == min(count, FRAMES)
    assert (shown[0], shown[-1]) == (frames[0], frames[-1])
    steps = [frames.index(frame) for frame in shown]
    assert max(np.diff(steps)) - min(np.diff(steps)) <= 1


def test_the_figure_of_a_long_film_shows_some_of_its_frames(insight: Insight, tmp_path: Path):
    first, last = insight.frames
    frames = [first, *(dataclasses.replace(last, step=100 * step) for step in range(1, 35))]
    save(picture(dataclasses.replace(insight, frames=frames)), tmp_path / "insight.svg")
    panels = [text for text in texts(tmp_path / "insight.svg") if text.startswith("step ")]
    assert len(panels) == FRAMES
    assert (panels[0], panels[-1]) == ("step 40", "step 3,400")


# The command.

Ran = tuple[int, str, str]


@pytest.fixture
def dragoman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Ran:
        code = main(["insight", *map(str, words)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.mark.parametrize("out", ["insight.html", "new/insight.svg", "insight.png", "insight.PDF"])
def test_the_command_prints_the_name_of_its_file(
    dragoman: Callable[..., Ran], trained: Path, corpus: tuple[str, str], out: str
):
    chosen = ["--out", out] if out != "insight.html" else []
    code, printed, said = dragoman(trained, "--pairs", corpus[1], *chosen)
    assert (code, printed) == (0, f"{out}\n")
    assert said.startswith("2 checkpoints, steps 40 to 80; loss of 10 pairs ")
    assert Path(out).stat().st_size > 10_000


def test_without_pairs_it_takes_those_the_run_validates_on(
    dragoman: Callable[..., Ran], trained: Path, corpus: tuple[str, str]
):
    assert dragoman(trained)[0] == 0
    own = Path("insight.html").read_bytes()
    assert dragoman(trained, "--pairs", corpus[1])[0] == 0
    assert Path("insight.html").read_bytes() == own
    assert dragoman(trained, "--pairs", corpus[0])[0] == 0
    assert Path("insight.html").read_bytes() != own


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "copy", symlinks=True)


@pytest.mark.parametrize(("left", "says"), [(0, "no checkpoints"), (1, "only one checkpoint")])
def test_too_few_checkpoints_are_told_with_what_to_do(dragoman: Callable[..., Ran], copied: Path, left: int, says: str):
    for folder in sorted((copied / "checkpoints").glob("step-*"))[left:]:
        shutil.rmtree(folder)
    code, out, err = dragoman(copied)
    assert (code, out) == (1, "")
    assert f"{copied}: {says}" in err
    assert "--training.keep 20" in err
    assert "--training.save-every 100" in err
    assert err.count("\n") == 1
    assert not Path("insight.html").exists()


def test_a_step_that_was_saved_again_counts_once(dragoman: Callable[..., Ran], copied: Path):
    folder = copied / "checkpoints" / "step-00000080"
    shutil.copytree(folder, folder.with_name(folder.name + "-again"))
    (folder / "model.safetensors").write_bytes(b"")  # the older one is not read
    assert dragoman(copied)[0] == 0
    assert json.loads(Page(Path("insight.html").read_text()).json)["steps"] == [40, 80]


def test_a_damaged_checkpoint_is_named(dragoman: Callable[..., Ran], copied: Path):
    file = copied / "checkpoints" / "step-00000080" / "model.safetensors"
    file.write_bytes(b"")
    code, _, err = dragoman(copied)
    assert code == 1
    assert f"{file}: damaged" in err


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("nowhere", 1, "nowhere: no such run folder"),
        ("{run} --out insight.jpg", 2, "insight.jpg: the name ends in .html, .svg, .png, .pdf"),
        ("{run} --out insight", 2, "insight: the name ends in .html"),
        ("{run} --sentence 11", 2, "sentence 11: there are 10 pairs"),
        ("{run} --pairs missing.tsv", 1, "missing.tsv"),
        ("{run} --pairs empty.tsv", 1, "empty.tsv: no sentence pairs in it"),
    ],
)
def test_a_wrong_request_gets_one_clear_line(
    dragoman: Callable[..., Ran], trained: Path, line: str, code: int, words: str
):
    Path("empty.tsv").touch()
    found, out, err = dragoman(*line.format(run=trained).split())
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert not list(Path().glob("insight*"))


def test_tags_of_a_corpus_are_part_of_its_sources(
    dragoman: Callable[..., Ran], corpus: tuple[str, str], tmp_path: Path
):
    """As the model saw them in training."""
    pairs = [("The dog sees 2 red cats.", "개가 봐요.")] * 3
    file = write_tsv(tmp_path / "few.tsv", pairs)
    config = run_config(corpus, tmp_path / "tagged", max_steps=2, validate_every=1)
    run_training(dataclasses.replace(config, train=(corpus[0], "tag=news"), dev=(corpus[1], "tag=news")))
    assert dragoman("tagged", "--pairs", file, "tag=news")[0] == 0
    assert Page(Path("insight.html").read_text()).tables[0][0][1:] == [
        *("<tag:news>", "The", "dog", "sees", "2", "red", "cats.", "</s>")
    ]


def test_a_hand_made_checkpoint_of_a_model_without_attention_is_refused(trained: Path, dev: list[Pair], tmp_path: Path):
    with pytest.raises(DragomanError, match="no such model folder"):
        look_back("toy", {1: tmp_path / "nothing"}, dev, [""] * 10)


# In a browser.

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine: install the package chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, insight: Insight, tmp_path: Path) -> Iterator[Any]:
    """The page, in English and light; whatever goes wrong in it, or is asked of the network, fails the test."""
    write_page(insight, tmp_path / "insight.html")
    context = browser.new_context(locale="en-US", color_scheme="light", reduced_motion="reduce")
    tab, wrong, asked = context.new_page(), [], []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((tmp_path / "insight.html").as_uri())
    yield tab
    assert not wrong
    assert asked == [(tmp_path / "insight.html").as_uri()]
    context.close()


def told(tab: Any) -> list[list[float]]:
    """The numbers of the map as they stand on the page."""
    rows = tab.eval_on_selector_all(
        "#map tbody tr", "rows => rows.map(row => [...row.cells].slice(1).map(c => c.innerText))"
    )
    return [[float(cell) for cell in row] for row in rows]


def approximately(table: Tensor) -> list[Any]:
    return [pytest.approx(row, abs=0.0052) for row in table.tolist()]


def test_the_slider_moves_through_the_film_by_keys(opened: Any, insight: Insight):
    first, last = insight.frames
    assert told(opened) == approximately(insight.shown(last))
    opened.focus("#step")
    for key, frame in (("Home", first), ("ArrowRight", last), ("ArrowLeft", first), ("End", last)):
        opened.keyboard.press(key)
        assert told(opened) == approximately(insight.shown(frame))
        said = f"step {frame.step}, loss {frame.loss:.3f}"
        assert opened.inner_text("#said") == opened.get_attribute("#step", "aria-valuetext") == said
        pressed = opened.eval_on_selector_all("#frames button", "all => all.map(b => b.getAttribute('aria-pressed'))")
        assert pressed == [str(frame is each).lower() for each in insight.frames]


def test_any_head_can_be_chosen_and_any_frame_be_clicked(opened: Any, insight: Insight):
    for choice, of in (
        ("2", lambda film: film[0, 1]),
        ("1", lambda film: film[0, 0]),
        ("0", lambda film: film[0].mean(0)),
    ):
        opened.select_option("#head", choice)
        for number, frame in enumerate(insight.frames):
            opened.click(f"#frames li:nth-child({number + 1}) button")
            assert told(opened) == approximately(of(frame.film))


def test_the_strongest_source_word_of_each_row_is_framed(opened: Any, insight: Insight):
    script = "rows => rows.map(row => [...row.cells].slice(1).findIndex(cell => cell.classList.contains('most')))"
    found = opened.eval_on_selector_all("#map tbody tr", script)
    assert found == insight.shown(insight.frames[-1]).argmax(-1).tolist()


def test_play_runs_from_the_beginning_to_the_end_and_stops(opened: Any, insight: Insight):
    opened.click("#play")
    assert opened.inner_text("#said").startswith("step 40,")
    assert opened.get_attribute("#play", "aria-pressed") == "true"
    opened.wait_for_selector("#play[aria-pressed=false]")
    assert opened.inner_text("#said").startswith("step 80,")


def test_whoever_chooses_a_frame_stops_the_film(opened: Any):
    opened.click("#play")
    opened.click("#frames li:nth-child(1) button")
    assert opened.get_attribute("#play", "aria-pressed") == "false"
    assert opened.inner_text("#said").startswith("step 40,")


def test_the_page_changes_its_language_and_its_colours(opened: Any):
    assert "how it learned" in opened.inner_text("h1")
    light = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.click("[data-language=ko]")
    assert "어떻게 배웠는가" in opened.inner_text("h1")
    assert "how it learned" not in opened.inner_text("h1")
    assert opened.inner_text("#said").startswith("80단계, 손실")
    opened.emulate_media(color_scheme="dark")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_the_page_fits_a_phone(opened: Any):
    opened.set_viewport_size({"width": 320, "height": 640})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("record", [Alignment(layer=99), Alignment(layer=1, head=99)])
def test_an_alignment_of_another_model_is_refused(
    trained: Path, dev: list[Pair], monkeypatch: pytest.MonkeyPatch, record: Alignment
):
    monkeypatch.setattr(Alignment, "load", lambda _: record)
    with pytest.raises(DragomanError, match=r"alignment\.json is of another model: layer"):
        seen(trained, dev)
