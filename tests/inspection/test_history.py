"""How a model learned: what is shown of each checkpoint is what that checkpoint does."""

import dataclasses
import html
import json
import math
import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY_RECURRENT, Ran, run_config, run_training, tiny_transformer, write_tsv
from korean import english
from markupsafe import escape
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import merge_tokens
from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.data.batches import Batch
from dragoman.data.corpus import Pair
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection import CATALOGUE
from dragoman.inspection.figure import save
from dragoman.inspection.gradients import (
    layer_name,
    loss_and_gradient_norms,
    parameters_by_layer,
    relative_updates,
)
from dragoman.inspection.heads import head_statistics, normalised_entropies
from dragoman.inspection.history import MAX_LENGTH, History, make_batches, read_history
from dragoman.inspection.history_page import history_page
from dragoman.inspection.inspect import inspect
from dragoman.inspection.plots.history import history_figure
from dragoman.model import Model, build
from dragoman.model.attention import masked_softmax
from dragoman.model.capture import AttentionCapture, attention_layers
from dragoman.model_folder import read_model
from dragoman.text.speech import speaker
from dragoman.training.loss import Objective
from dragoman.translation.translator import Translator

DEEP = tiny_transformer(encoder_layers=2, decoder_layers=2)
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


# Gradients and updates.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", MODELS)
def test_gradient_is_that_of_the_training_loss(name: str, smoothing: float):
    model = make(name)
    batches = make_batches(SAMPLE)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    loss, norms = loss_and_gradient_norms(model, batches, smoothing)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = sum(Objective(model, smoothing)(batch) for batch in batches) / sum(batch.tokens for batch in batches)
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    parameters = [id(parameter) for layer in parameters_by_layer(model).values() for parameter in layer]
    assert sorted(parameters) == sorted(map(id, model.parameters()))  # each belongs to one layer
    for layer, layer_parameters in parameters_by_layer(model).items():
        squares = [float(p.grad.double().square().sum()) for p in layer_parameters if p.grad is not None]
        assert norms[layer] == pytest.approx(math.sqrt(math.fsum(squares)), rel=1e-4, abs=1e-8)
    assert norms != pytest.approx(loss_and_gradient_norms(model, batches, 0.5)[1], rel=1e-2)  # the control


def test_gradient_does_not_depend_on_the_size_of_batches():
    model = make("transformer")
    together, alone = make_batches(SAMPLE), [batch for pair in SAMPLE for batch in make_batches([pair])]
    assert len(together) < len(alone) == 3
    together_norms, alone_norms = (loss_and_gradient_norms(model, batches, 0.1) for batches in (together, alone))
    assert together_norms[0] == pytest.approx(alone_norms[0], rel=1e-5)
    assert together_norms[1] == pytest.approx(alone_norms[1], rel=1e-4)


def test_layers_count_from_1_and_both_directions_are_one_layer():
    words = "source embedding = target embedding = output"
    stacks = ["encoder 1", "encoder 2", "decoder 1", "decoder 2"]
    lstm, rnn = make("lstm"), make("rnn")
    assert list(parameters_by_layer(make("transformer"))) == [words, *stacks]
    assert list(parameters_by_layer(lstm)) == [words, *stacks, "combine"]
    assert list(parameters_by_layer(rnn)) == [words, *stacks, "attention", "combine"]
    assert set(parameters_by_layer(make("relative, pre-norm, untied"))) == {
        *("source embedding", "target embedding", "output", "encoder positions", "decoder positions"),
        *(*stacks, "encoder norm", "decoder norm"),
    }
    assert layer_name(lstm, "encoder.cells.weight_ih_l1_reverse") == "encoder 2"
    cells = [layer_name(rnn, f"encoder.cells.{cell}.input.weight") for cell in range(4)]
    assert cells == ["encoder 1", "encoder 1", "encoder 2", "encoder 2"]
    assert [layer_name(rnn, f"decoder.cells.{cell}.input.weight") for cell in range(2)] == stacks[2:]


@pytest.mark.parametrize("name", MODELS)
def test_update_is_a_share_of_the_weights_of_its_layer(name: str):
    before, after = make(name), make(name)
    assert set(relative_updates(before, after).values()) == {0.0}
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.mul_(4)
    empty = {layer for layer, ps in parameters_by_layer(before).items() if not any(bool(p.any()) for p in ps)}
    for layer, share in relative_updates(before, after).items():
        assert share == pytest.approx(0.0 if layer in empty else 0.75)
    if name == "transformer":
        after = make(name)
        with torch.no_grad():
            after.decoder[1].feed_forward.out.bias.add_(1.0)
        assert {layer for layer, share in relative_updates(before, after).items() if share} == {"decoder 2"}


# Entropies.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("first", "expected"), [(0.0, 1.0), (1000.0, 0.0)])
def test_normalised_entropy_is_one_for_all_tokens_alike_and_zero_for_one(name: str, first: float, expected: float):
    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = torch.zeros(*query.shape[:-1], key.size(-2))
        scores[..., 0] = first
        return masked_softmax(scores, mask) @ value

    model = make(name)
    for layer in chain.from_iterable(attention_layers(model).values()):
        layer.kernel = kernel
    entropies = list(normalised_entropies(model, make_batches(SAMPLE)).values())
    assert list(map(len, entropies)) == ([2, 2, 2] if isinstance(MODELS[name], TransformerConfig) else [0, 0, 1])
    for heads in chain.from_iterable(entropies):
        assert heads == pytest.approx([expected] * len(heads), abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_normalised_entropy_is_the_mean_over_tokens_that_have_a_choice(name: str):
    """Recomputed sentence by sentence, without padding."""
    model = make(name)
    rows: dict[tuple[str, int], list[Tensor]] = {}
    for source, target in SAMPLE:
        batch, capture = Batch.from_pairs([source], [target]), AttentionCapture(model)
        with torch.no_grad():
            capture.run(batch.source, batch.target)
        for kind, layers in capture.weights.items():
            for index, weights in enumerate(layers):
                for position in range(weights.size(2)):
                    keys = position + 1 if kind == "decoder" else weights.size(3)
                    if keys > 1:
                        p = weights[0, :, position, :keys].double()
                        rows.setdefault((kind, index), []).append(-(p * p.log()).sum(-1) / math.log(keys))
    entropies = normalised_entropies(model, make_batches(SAMPLE))
    assert {(kind, index) for kind, layers in entropies.items() for index in range(len(layers))} == set(rows)
    for (kind, index), values in rows.items():
        assert entropies[kind][index] == pytest.approx(torch.stack(values).mean(0).tolist(), abs=1e-6)


def test_normalised_entropies_are_those_of_the_head_statistics(trained: Path, dev: list[Pair]):
    """Those go through one sentence after the other, with a translator."""
    translator = Translator.load(trained)
    encode = translator.tokenizers.source.encode
    pairs = [(encode(source), encode(target)) for source, target in dev]
    entropies = normalised_entropies(translator.model, make_batches(pairs))
    statistics = head_statistics(inspect(translator, source, target) for source, target in dev)
    assert len(statistics) == 6
    for head in statistics:
        assert entropies[head.kind][0][head.head - 1] == pytest.approx(head.normalised_entropy, abs=1e-5)


# The history of a run.


def checkpoints_of(run: Path) -> dict[int, Path]:
    return {int(folder.name[5:13]): folder for folder in (run / "checkpoints").glob("step-*")}


def history_of(run: Path, pairs: list[Pair], **changes: object) -> History:
    return read_history("toy", checkpoints_of(run), pairs, [""] * len(pairs), **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def dev(pairs: list[Pair]) -> list[Pair]:
    return pairs[190:]


@pytest.fixture(scope="module")
def history(trained: Path, dev: list[Pair]) -> History:
    return history_of(trained, dev, sentence=3)


def test_snapshot_is_what_its_checkpoint_does(history: History, trained: Path, dev: list[Pair]):
    assert [snapshot.step for snapshot in history.snapshots] == [40, 80]
    assert history.pairs == len(dev) == 10
    for snapshot in history.snapshots:
        model, (tokenizer, _) = read_model(checkpoints_of(trained)[snapshot.step])
        shown = inspect(Translator(model, tokenizer), *dev[2])
        assert history.target == [word.label for word in shown.target.words]
        assert history.source == [word.label for word in shown.source.words]
        expected = merge_tokens(shown.cross, shown.target.words, shown.source.words)
        torch.testing.assert_close(snapshot.cross_attention, expected)
        batches = make_batches([tuple(map(tokenizer.encode, pair)) for pair in dev])  # type: ignore[misc]
        loss, gradients = loss_and_gradient_norms(model, batches, 0.1)
        assert (snapshot.loss, snapshot.gradients) == (pytest.approx(loss), pytest.approx(gradients))
        assert snapshot.entropies == normalised_entropies(model, batches)
    first, last = history.snapshots
    assert last.loss < first.loss
    assert not torch.equal(first.cross_attention, last.cross_attention)
    assert first.updates == {}
    models = [read_model(folder)[0] for _, folder in sorted(checkpoints_of(trained).items())]
    assert last.updates == pytest.approx(relative_updates(*models))
    assert min(last.updates.values()) > 0


def test_history_follows_the_sentence_that_was_asked_for(trained: Path, history: History, dev: list[Pair]):
    other = history_of(trained, dev, sentence=1)
    assert other.target[:-1] == dev[0][1].split() != history.target[:-1]
    assert len(history_of(trained, dev, by_subwords=True).target) > len(other.target)
    for number in (0, -1, 11):
        with pytest.raises(UsageError, match=rf"sentence {number}: there are 10 pairs"):
            history_of(trained, dev, sentence=number)


def test_history_shows_first_the_head_that_aligns_words(history: History, trained: Path):
    assert history.head == AlignmentHead.load(trained / "last")
    maps = history.snapshots[0].cross_attention
    for head, expected in ((AlignmentHead(1, 2), maps[0, 1]), (AlignmentHead(1), maps[0].mean(0))):
        changed = dataclasses.replace(history, head=head)
        assert torch.equal(changed.map(changed.snapshots[0]), expected)
        assert ("head 2 of 2" in changed.head_name) == (head.head == 2)
        assert ("mean of 2 heads" in changed.head_name) == (head.head is None)
    (snapshot, *_) = history.snapshots
    alone = dataclasses.replace(snapshot, cross_attention=snapshot.cross_attention[:, :1])
    assert dataclasses.replace(history, head=AlignmentHead(1), snapshots=[alone]).head_name == "layer 1 of 1"


def test_history_refuses_long_sentences_or_leaves_them_out_of_the_sample(trained: Path, dev: list[Pair]):
    with pytest.raises(UsageError, match=rf"tokens, and the limit is {MAX_LENGTH}"):
        history_of(trained, [("dog " * 100, "개"), *dev])
    assert history_of(trained, [*dev, ("dog " * 2000, "개")]).pairs == 10


@pytest.mark.parametrize("record", [AlignmentHead(layer=99), AlignmentHead(layer=1, head=99)])
def test_history_refuses_an_alignment_of_another_model(
    trained: Path, dev: list[Pair], monkeypatch: pytest.MonkeyPatch, record: AlignmentHead
):
    monkeypatch.setattr(AlignmentHead, "load", lambda _: record)
    with pytest.raises(DragomanError, match=r"alignment\.json belongs to another model: layer"):
        history_of(trained, dev)


def test_history_names_a_missing_checkpoint(dev: list[Pair], tmp_path: Path):
    with pytest.raises(DragomanError, match="nothing: no such model folder"):
        read_history("toy", {1: tmp_path / "nothing"}, dev, [""] * 10)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_history_of_a_recurrent_run_needs_attention(
    dragoman, attention: str, dev: list[Pair], corpus: tuple[str, str], tmp_path: Path
):
    config = run_config(corpus, tmp_path / "run", max_steps=4, validate_every=2)
    run_training(dataclasses.replace(config, model=dataclasses.replace(TINY_RECURRENT, attention=attention)))
    if attention == "none":
        ran = dragoman("insight", "run")
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "this model has no attention over the source: there is nothing to show" in ran.err
    else:
        recurrent = history_of(tmp_path / "run", dev)
        assert [snapshot.step for snapshot in recurrent.snapshots] == [2, 4]
        first = recurrent.snapshots[0]
        assert first.cross_attention.shape == (1, 1, len(recurrent.target), len(recurrent.source))
        assert [len(layers) for layers in first.entropies.values()] == [0, 0, 1]


# The page.


def data_of(page: str) -> dict[str, Any]:
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])  # type: ignore[index]


@pytest.fixture(scope="module")
def page(history: History) -> str:
    return history_page(history)


def test_history_page_asks_nothing_of_the_network(page: str):
    assert re.findall(r'\b(?:src|href|action|srcset)="(.*?)"', page) == ["data:,"]
    assert "default-src &#39;none&#39;" in page
    assert "unsafe" not in page
    assert not re.search(r"url\(|@import|fetch\(|https?:|XMLHttpRequest|innerHTML|eval\(", page)


def test_history_page_keeps_hostile_text_as_text(history: History, page: str):
    wild = "</script><script>alert(1)</script><b onclick='x'>\"&"
    changes = {"run": wild, "source": [wild, *history.source[1:]], "target": [wild, *history.target[1:]]}
    hostile = history_page(dataclasses.replace(history, **changes))  # type: ignore[arg-type]
    assert hostile.count(escape(wild)) == 4  # title, heading, row and column
    assert wild not in hostile
    tags = re.compile(r"<\W?(?:script|b)\b")
    assert tags.findall(hostile) == tags.findall(page)


# The figure.


def test_history_figure_in_korean_leaves_the_words_of_the_sentence_alone(history: History, tmp_path: Path):
    """Even one that the figure itself has."""
    other = dataclasses.replace(history, source=["step", *history.source[1:]])
    drawn = {}
    for language in ("en", "ko"):
        save(history_figure(other, speaker(language, CATALOGUE)), tmp_path / "history.svg")  # type: ignore[arg-type]
        drawn[language] = re.findall(r"<!-- (.*) -->", (tmp_path / "history.svg").read_text(encoding="utf-8"))
    assert {"기울기의 노름", "인코더 1층", "40단계", "단계", "1.2", "step"} <= set(drawn["ko"])
    words, texts = {*other.source, *other.target}, map(html.unescape, drawn["ko"])
    assert english(text for text in texts if text not in words and other.run not in text) == []
    assert drawn["ko"].count("step") == 2  # of the two snapshots; the axes say it in Korean
    quoted = "layer 1 of 2, head 3 of 4; model m: “output” → “step”; dragoman 1"
    assert (
        speaker("ko", CATALOGUE)(quoted) == "2층 가운데 1층, 헤드 4개 가운데 3번. 모델 m: “output” → “step”; dragoman 1"
    )
    assert len(english(map(html.unescape, drawn["en"]))) > 10  # the control


# The command.


@pytest.fixture
def insight(dragoman) -> Callable[..., Ran]:
    return partial(dragoman, "insight")


def test_insight_says_in_korean_what_it_shows(insight, trained: Path, corpus: tuple[str, str]):
    ran = insight(trained, "--pairs", corpus[1], "--out", "insight.svg", "--language", "ko")
    assert (ran.code, ran.out) == (0, "insight.svg\n")
    assert ran.err.startswith(
        f"체크포인트 2개, 40단계에서 80단계까지. 문장 쌍 10개({corpus[1]})의 손실(레이블 스무딩 0.1): "
    )
    assert "교차 어텐션: 1층 가운데 1층, 헤드 2개" in ran.err
    assert "기울기의 노름" in Path("insight.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("out", ["insight.html", "new/insight.PDF"])
def test_insight_prints_the_name_of_its_file(insight, trained: Path, corpus: tuple[str, str], out: str):
    flags = ["--out", out] if out != "insight.html" else []
    ran = insight(trained, "--pairs", corpus[1], *flags)
    assert (ran.code, ran.out) == (0, f"{out}\n")
    loss = f"loss with label smoothing 0.1 of 10 pairs ({corpus[1]}): "
    assert ran.err.startswith(f"2 checkpoints, steps 40 to 80; {loss}")
    assert Path(out).stat().st_size > 10_000


def test_insight_without_pairs_takes_those_the_run_validates_on(insight, trained: Path, corpus: tuple[str, str]):
    pages = []
    for flags in ([], ["--pairs", corpus[1]], ["--pairs", corpus[0]]):
        assert insight(trained, *flags).code == 0
        pages.append(Path("insight.html").read_bytes())
    assert pages[0] == pages[1] != pages[2]


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "copy", symlinks=True)


@pytest.mark.parametrize(("left", "problem"), [(0, "no checkpoints"), (1, "only one checkpoint")])
def test_insight_says_what_to_do_with_too_few_checkpoints(insight, copied: Path, left: int, problem: str):
    for folder in sorted((copied / "checkpoints").glob("step-*"))[left:]:
        shutil.rmtree(folder)
    ran = insight(copied)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert all(part in ran.err for part in (f"{copied}: {problem}", "--training.keep 20", "--training.save-every 100"))
    assert not Path("insight.html").exists()


def test_history_counts_a_step_saved_twice_once_and_names_damage(insight, copied: Path):
    folder = copied / "checkpoints" / "step-00000080"
    again = shutil.copytree(folder, folder.with_name(folder.name + "-again"))
    (folder / "model.safetensors").write_bytes(b"")  # the older one is not read
    assert insight(copied).code == 0
    assert data_of(Path("insight.html").read_text())["steps"] == [40, 80]
    shutil.rmtree(again)
    ran = insight(copied)
    assert ran.code == 1
    assert f"{folder / 'model.safetensors'}: damaged" in ran.err


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("nowhere", 1, "nowhere: no such run folder"),
        ("{run} --out insight.jpg", 2, "insight.jpg: the name must end in .html, .svg, .png, .pdf"),
        ("{run} --out insight", 2, "insight: the name must end in .html"),
        ("{run} --sentence 11", 2, "sentence 11: there are 10 pairs"),
        ("{run} --pairs missing.tsv", 1, "missing.tsv"),
        ("{run} --pairs empty.tsv", 1, "empty.tsv: no sentence pairs in it"),
    ],
)
def test_insight_answers_a_wrong_request_in_one_clear_line(insight, trained: Path, line: str, code: int, message: str):
    Path("empty.tsv").touch()
    ran = insight(*line.format(run=trained).split())
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
    assert message in ran.err
    assert not list(Path().glob("insight*"))


def test_insight_reads_sources_with_the_tags_of_their_corpus(insight, corpus: tuple[str, str], tmp_path: Path):
    """As the model saw them in training."""
    file = write_tsv(tmp_path / "few.tsv", [("The dog sees 2 red cats.", "개가 봐요.")] * 3)
    config = run_config(corpus, tmp_path / "tagged", max_steps=2, validate_every=1)
    run_training(dataclasses.replace(config, train=(corpus[0], "tag=news"), dev=(corpus[1], "tag=news")))
    assert insight("tagged", "--pairs", file, "tag=news").code == 0
    columns = re.findall(r'<th scope="col" dir="auto">(.*?)</th>', Path("insight.html").read_text())
    assert columns == ["&lt;tag:news&gt;", "The", "dog", "sees", "2", "red", "cats.", "&lt;/s&gt;"]


# In a browser.


def shown_map(tab: Any) -> list[list[float]]:
    """The numbers of the map as the page shows them."""
    rows = tab.eval_on_selector_all(
        "#map tbody tr", "rows => rows.map(row => [...row.cells].slice(1).map(c => c.innerText))"
    )
    return [[float(cell) for cell in row] for row in rows]


def approximately(table: Tensor) -> list[Any]:
    return [pytest.approx(row, abs=0.0052) for row in table.tolist()]


def test_slider_heads_and_thumbnails_choose_the_map(open_page, page: str, history: History):
    tab = open_page(page)
    first, last = history.snapshots
    assert shown_map(tab) == approximately(history.map(last))
    script = "rows => rows.map(row => [...row.cells].slice(1).findIndex(cell => cell.classList.contains('most')))"
    assert tab.eval_on_selector_all("#map tbody tr", script) == history.map(last).argmax(-1).tolist()
    tab.focus("#step")
    for key, snapshot in (("Home", first), ("ArrowRight", last), ("ArrowLeft", first), ("End", last)):
        tab.keyboard.press(key)
        assert shown_map(tab) == approximately(history.map(snapshot))
        readout = f"step {snapshot.step}, loss {snapshot.loss:.3f}"
        assert tab.inner_text("#readout") == tab.get_attribute("#step", "aria-valuetext") == readout
        pressed = tab.eval_on_selector_all("#snapshots button", "all => all.map(b => b.getAttribute('aria-pressed'))")
        assert pressed == [str(snapshot is each).lower() for each in history.snapshots]
    for choice in (2, 1, 0):
        tab.select_option("#head", str(choice))
        for number, snapshot in enumerate(history.snapshots, start=1):
            tab.click(f"#snapshots li:nth-child({number}) button")
            heads = snapshot.cross_attention[0]
            assert shown_map(tab) == approximately(heads[choice - 1] if choice else heads.mean(0))


def test_play_button_runs_to_the_end_or_until_a_checkpoint_is_chosen(open_page, page: str):
    tab = open_page(page)
    tab.click("#play")
    assert tab.inner_text("#readout").startswith("step 40,")
    assert tab.get_attribute("#play", "aria-pressed") == "true"
    tab.wait_for_selector("#play[aria-pressed=false]")
    assert tab.inner_text("#readout").startswith("step 80,")
    tab.click("#play")
    tab.click("#snapshots li:nth-child(1) button")
    assert tab.get_attribute("#play", "aria-pressed") == "false"
    assert tab.inner_text("#readout").startswith("step 40,")


def test_history_page_changes_language_and_colours_and_fits_a_phone(open_page, page: str):
    tab = open_page(page, width=320)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    assert "how it learned" in tab.inner_text("h1")
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert tab.inner_text("#head").split()[0] == "mean"
    tab.click("[data-language=ko]")
    assert tab.inner_text("#head").split()[0] == "평균"
    assert "Shown first" not in tab.inner_text("main")
    assert "layer 1" not in tab.inner_text("main")
    assert "어떻게 배웠나" in tab.inner_text("h1")
    assert "how it learned" not in tab.inner_text("h1")
    assert tab.inner_text("#readout").startswith("80단계, 손실")
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != light
