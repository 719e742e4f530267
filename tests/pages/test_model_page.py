"""The page of a model, in a real browser: what it computes is what PyTorch does, and nothing leaves it."""

import copy
import inspect as python_inspect
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import gap, tiny_transformer
from torch import Tensor, nn
from visiting import axe_problems

from dragoman.config import AttentionConfig, FeedForwardConfig, RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.inspection.model_figure import TOTAL, WIDTH, draw_figure
from dragoman.inspection.model_page import (
    CODE,
    STYLES,
    ShownModel,
    check_model,
    describe_code,
    model_page,
    read_shown_model,
)
from dragoman.inspection.page import page_script, read_web_file
from dragoman.inspection.roles import ROLES, role_colours
from dragoman.model import build
from dragoman.model.attention import MultiHeadAttention, causal_mask, unscaled_attention
from dragoman.model.capture import AttentionCapture
from dragoman.model.packing import Packing
from dragoman.model.positions import sinusoids
from dragoman.model.transformer import KeyValues, Transformer
from dragoman_lab.worked_examples import dog_example, go_home_example, thinking_example

COURSE = Path(__file__).parents[2] / "docs" / "course" / "model.html"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
PIECES = ["<pad>", "<s>", "</s>", *(f" {letter}" for letter in "abcdefg"), f" {HOSTILE}"]
# All weights, in one number.
WEIGHTS = (
    "[...weightsNow().values()].reduce((all, values) => values.reduce((sum, w, i) => sum + w * Math.sin(i), all), 0)"
)
OWN_WEIGHTS = "[...attend(ours.q, ours.k, ours.v, ours).parts[0].weights.data]"
OTHER = {  # settings that the paper's model has not
    "pre-norm": tiny_transformer(
        norm_first=True, positions="rotary-across", attention=AttentionConfig(heads=2, d_k=6, d_v=4, bias=True)
    ),
    "silu": tiny_transformer(
        encoder_layers=2,
        share="none",
        output_bias=True,
        scale_embedding=False,
        first_position=2,
        norm_epsilon=1e-3,
        attention=AttentionConfig(heads=4, score="unscaled"),
        feed_forward=FeedForwardConfig(d_ff=12, activation="silu"),
    ),
    "rotary": tiny_transformer(positions="rotary", decoder_layers=2),
    "none": tiny_transformer(positions="none"),
}


@pytest.fixture(scope="module")
def course() -> str:
    return COURSE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown(course: str) -> ShownModel:
    return read_shown_model(course)


@pytest.fixture
def tab(open_page: Callable[..., Any], course: str) -> Any:
    return open_page(course)


@pytest.fixture
def doubles() -> Iterator[None]:
    """Numbers as JavaScript has them, also in the table of positions."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def model(course: str, doubles: None) -> Transformer:
    """The model of the page."""
    return read_shown_model(course).model.double()


def random_model(config: TransformerConfig) -> ShownModel:
    torch.manual_seed(0)
    model = build(config, len(PIECES)).eval()
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return ShownModel(HOSTILE, model.float(), PIECES, PIECES, [3, 5, 4, 10], [6, 7], [HOSTILE])


def run(tab: Any, source: list[int], target: list[int], changes: str = "UNCHANGED") -> dict[str, Tensor]:
    """What the page computes, by module, and the weights of attention, by module and head."""
    computed = tab.evaluate(
        f"""([source, target]) => {{
          const numbers = ({{ rows, columns, data }}) => [rows, columns, [...data]];
          return Object.fromEntries([...model.run(source, target, {changes}).trace].flatMap(([name, part]) => [
            [name, numbers(part.output)],
            ...(part.parts ?? []).map((one, head) => [`${{name}} ${{head}}`, numbers(one.weights)]),
          ]));
        }}""",
        [source, target],
    )
    return {
        name: torch.tensor(data, dtype=torch.float64).view(rows, columns)
        for name, (rows, columns, data) in computed.items()
    }


# The document.


def test_page_of_the_course_is_made_of_the_source_of_today(shown: ShownModel, course: str):
    same = model_page(shown) == course  # a diff of pages of this size would take minutes
    assert same, "write it anew: python scripts/model_page.py"


def test_code_on_the_page_is_in_our_files():
    for functions in CODE.values():
        for function in functions:
            described = describe_code(function)
            path, name = described["place"].split(", ")
            lines = (COURSE.parents[2] / path).read_text(encoding="utf-8").splitlines()
            assert name == function.__qualname__
            assert {line.strip() for line in described["text"].splitlines()} <= {line.strip() for line in lines}
            assert '"""' not in described["text"]
            assert len(described["text"].splitlines()) <= 10
            assert described["text"].splitlines()[-1].strip() in python_inspect.getsource(function)


def test_page_of_the_course_is_small_and_points_nowhere(course: str):
    assert len(course.encode()) < 1_500_000
    markup = course.replace(page_script("model"), "")
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)""", markup) == ["data:,"]
    assert "@import" not in course
    assert set(re.findall(r"url\([^)]*\)", course)) <= {f"url(#head-{name})" for name in ("plain", *ROLES)}
    assert set(re.findall(r"https?://[^\s\"'`<]+", course)) == set()
    (policy,) = re.findall(r'content="(default-src[^"]*)"', markup)
    assert "unsafe" not in policy
    assert "".join(map(read_web_file, STYLES)) in course


def test_page_texts_are_there_in_both_languages():
    english, korean = json.loads(read_web_file("model.json")).values()
    assert english.keys() == korean.keys()
    for key, text in english.items():
        assert sorted(re.findall(r"\{\d\}", text)) == sorted(re.findall(r"\{\d\}", korean[key])), key
    written = set(re.findall(r'data-(?:t|label)="([\w.-]+)"', read_web_file("model.html")))
    assert written <= english.keys()
    asked = set(re.findall(r'\bt\("([\w.-]+)"', page_script("model")))
    assert asked <= english.keys()


def test_boxes_of_the_figure_do_not_overlap():
    for config in OTHER.values():
        figure = draw_figure(build(config, len(PIECES)))
        places = [(box.x, box.y, box.x + WIDTH, box.y + box.height) for box in figure.boxes]
        for left, top, right, bottom in places:
            assert 0 < left < right < TOTAL
            assert 0 < top < bottom < figure.height
            overlapping = [1 for a, b, c, d in places if a < right and left < c and b < bottom and top < d]
            assert len(overlapping) == 1
        assert all(0 <= x <= TOTAL and 0 <= y <= figure.height for _, corners in figure.lines for x, y in corners)


def test_roles_can_be_read_and_told_apart():
    def light(colour: str) -> float:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for dark, ground in ((False, "#ffffff"), (True, "#14171a")):
        colours = role_colours(dark=dark)
        assert len(set(colours.values())) == len(ROLES)
        for colour in colours.values():
            low, high = sorted((light(colour), light(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5


def test_models_that_the_page_cannot_compute_are_refused(tmp_path: Path):
    for config, message in (
        (RecurrentConfig(d_model=16), "recurrent"),
        (tiny_transformer(positions="learned"), "positions = 'learned'"),
        (tiny_transformer(attention=AttentionConfig(heads=2, score="additive")), "score = 'additive'"),
        (tiny_transformer(feed_forward=FeedForwardConfig(d_ff=8, activation="gelu")), "activation = 'gelu'"),
        (tiny_transformer(d_model=2000), "parameters; a page has 2,000,000 at most"),
    ):
        with pytest.raises(UsageError, match=message):
            check_model(build(config, len(PIECES)))


def test_command_writes_the_page_of_a_model(dragoman, trained: Path, tmp_path: Path):
    ran = dragoman("inspect", "-m", trained, "--model-page", "page.html", "The dog sees 2 red cats.")
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "page.html"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    page = read_shown_model((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "".join(page.source_pieces[id] for id in page.source).strip() == "The dog sees 2 red cats."
    assert dragoman("inspect", "-m", trained, "--model-page", "page.txt", "The dog.").code == 2


# Arithmetic.


@pytest.mark.parametrize("name", ["course", *OTHER])
def test_page_computes_what_pytorch_does(open_page, doubles: None, course: str, name: str):
    example = read_shown_model(course) if name == "course" else random_model(OTHER[name])
    tab = open_page(course if name == "course" else model_page(example))
    model = copy.deepcopy(example.model).double()
    source, target = [*example.source, EOS], [BOS, *example.reference]
    computed = run(tab, source, target)
    capture = AttentionCapture(model)
    logits = model.output(capture.run(torch.tensor([source]), torch.tensor([target])))
    assert gap(computed["output"], logits) < 1e-9
    assert gap(computed["softmax"], logits.softmax(-1)) < 1e-9
    assert gap(computed["encoder.0.around_attention.norm"], computed["encoder.0.attention"]) > 0.1
    layers = {
        "encoder": "encoder.{}.attention",
        "decoder": "decoder.{}.attention",
        "cross": "decoder.{}.cross_attention",
    }
    for kind, place in layers.items():
        for layer, weights in enumerate(capture.weights[kind]):  # type: ignore[index]
            for head, of_head in enumerate(weights[0]):
                assert gap(computed[f"{place.format(layer)} {head}"], of_head) < 1e-9
    # Each box of the figure has its numbers.
    keys = {box.key.replace("{layer}", str(layer)) for box in draw_figure(model).boxes for layer in box.layers or [0]}
    assert keys <= computed.keys()
    assert tab.locator(".box").count() == len(draw_figure(model).boxes)


def test_page_translates_as_python_does(tab, shown: ShownModel):
    draw, words = random.Random(0), [shown.source_pieces.index(f" {word}") for word in shown.words]
    sources = [[*draw.choices(words, k=draw.randint(1, 7)), EOS] for _ in range(40)]
    hypotheses = TorchEngine(shown.model).search([source[:-1] for source in sources], SearchConfig(beam=1))
    translated = tab.evaluate("sources => sources.map((source) => model.translate(source).target)", sources)
    assert translated == [best.tokens for best, *_ in hypotheses]


def test_page_learns_as_pytorch_does(tab, shown: ShownModel, model: Transformer):
    source, target = [*shown.source, EOS], shown.reference
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98), eps=1e-9)
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *target]]))[0]
        loss = F.cross_entropy(logits, torch.tensor([*target, EOS]))
        loss.backward()
        learned, gradients, weights = tab.evaluate(
            """([source, target]) => {
              const { loss } = model.learn(source, target);
              const some = (numbers) => [...numbers.filter((_, i) => i % 7 === 0)]; // they take long to come here
              const gradients = [...model.parameters.values()].map(({ gradient }) => some(gradient));
              model.step(0.003);
              return [loss, gradients, [...model.parameters.values()].map(({ data }) => some(data))];
            }""",
            [source, target],
        )
        assert math.isclose(learned, loss.item(), rel_tol=1e-9)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            assert gap(torch.tensor(gradient, dtype=torch.float64), parameter.grad.flatten()[::7]) < 1e-9
        optimizer.step()
        for parameter, values in zip(model.parameters(), weights, strict=True):
            # Where a gradient is all but 0, its sign is that of an error, and the first steps are as long as any.
            sure = parameter.grad.flatten()[::7].abs() > 1e-9
            assert gap(torch.tensor(values, dtype=torch.float64)[sure], parameter.flatten()[::7][sure]) < 1e-6


def test_page_changes_the_model_as_pytorch_does(tab, shown: ShownModel, model: Transformer):
    source, target = [*shown.source, EOS], [BOS, *shown.reference]
    places = [2, 1, 0, 9, 4, 5, 6]

    def changed(kernel: Any, left_out: tuple[int, ...]) -> Any:
        def compute(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
            kept = torch.ones(value.size(1)).index_fill(0, torch.tensor(left_out, dtype=torch.int64), 0)
            return kernel(1.7 * query, key, value, mask, dropout) * kept[None, :, None, None]

        return compute

    def moved(x: Tensor, start: int) -> Tensor:
        return x + sinusoids(10, x.size(-1)).double()[places]

    for side, name in (("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross_attention")):
        for number, layer in enumerate(getattr(model, side)):
            attention = getattr(layer, name)
            left_out = {("encoder", 0): (1,), ("cross_attention", 1): (0, 3)}.get((side, number), ())
            attention.kernel = changed(attention.kernel, left_out if name == "attention" else (0, 3) * number)
    model.encoder_positions.embed = moved  # type: ignore[method-assign,assignment]
    logits = model(torch.tensor([source]), torch.tensor([target]))[0]
    changes = f"""{{ without: new Set(["encoder.0.1", "cross.1.0", "cross.1.3"]), factor: 1.7, places: {places} }}"""
    assert gap(run(tab, source, target, changes)["output"], logits) < 1e-9
    assert gap(run(tab, source, target)["output"], logits) > 0.1


def test_own_numbers_are_computed_as_our_modules_do_in_200_settings(tab):
    draw = random.Random(0)
    settings, inputs, expected = [], [], []
    for number in range(200):
        torch.manual_seed(number)
        heads, d_k, d_v, queries = (draw.randint(1, top) for top in (4, 8, 8, 6))
        keys = draw.choice([queries, draw.randint(1, 6)])
        options = {
            "heads": heads,
            "scale": draw.random() < 0.5,
            "temperature": draw.choice([1, 0.1, 0.5, 3.7]),
            "causal": draw.random() < 0.5,
            "padding": draw.randint(0, keys - 1),
            "fill": draw.choice(["infinity", "billion", "times"]),
            "closed": draw.sample(range(queries * keys), draw.choice([0, 0, 1, queries * keys // 2])),
        }
        q, k, v = (
            3 * torch.randn(rows, heads * size, dtype=torch.float64)
            for rows, size in ((queries, d_k), (keys, d_k), (keys, d_v))
        )
        settings.append(options)
        inputs.append([part.tolist() for part in (q, k, v)])
        expected.append(of_our_module(q, k, v, options))
    computed = tab.evaluate(
        """given => given.map(([[q, k, v], options]) => {
          const { parts, output } = attend(fromRows(q), fromRows(k), fromRows(v), options);
          return [output, ...parts.map((part) => part.weights)].map(({ data }) => [...data]);
        })""",
        [list(pair) for pair in zip(inputs, settings, strict=True)],
    )
    for of_page, (output, weights) in zip(computed, expected, strict=True):
        assert gap(torch.tensor(of_page[0], dtype=torch.float64), output.flatten()) < 1e-5
        assert gap(torch.tensor(of_page[1:], dtype=torch.float64), weights.flatten(1)) < 1e-5
    assert {options["fill"] for options in settings} == {"infinity", "billion", "times"}


def of_our_module(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The output (T, H*V) and the weights (H, T, S) of a MultiHeadAttention that leaves its inputs as they are."""
    heads, queries, keys = options["heads"], len(q), len(k)
    config = AttentionConfig(heads=heads, d_k=q.size(1) // heads, d_v=v.size(1) // heads)
    layer = MultiHeadAttention(q.size(1), config).double()
    layer.query = layer.out = nn.Identity()  # type: ignore[assignment]
    if not options["scale"]:
        layer.kernel = unscaled_attention
    packing = Packing.full(torch.zeros(1, queries))
    seen = KeyValues(*(part.unflatten(1, (heads, -1)).transpose(0, 1)[None] for part in (k, v)))
    x = q / options["temperature"]
    allowed = (torch.arange(keys) < keys - options["padding"]).expand(queries, keys)
    if options["causal"]:
        allowed = allowed & causal_mask(queries, keys)
    closed = torch.zeros(queries * keys, dtype=torch.bool)
    closed[options["closed"]] = True
    allowed = allowed & ~closed.view(queries, keys)
    mask = allowed
    if options["fill"] != "infinity":
        split = x.unflatten(1, (heads, -1)).transpose(0, 1)
        scores = split @ seen.key[0].mT / (math.sqrt(config.head_sizes(q.size(1))[0]) if options["scale"] else 1)
        fill = torch.full_like(scores, -1e9) if options["fill"] == "billion" else 1e-9 * scores
        mask = torch.where(allowed, torch.zeros_like(scores), fill - scores)
    output = layer(x, packing, seen, mask)
    identity = KeyValues(seen.key, torch.eye(keys, dtype=torch.float64).expand(1, heads, keys, keys))
    weights = layer(x, packing, identity, mask).unflatten(1, (heads, -1)).transpose(0, 1)
    return output, weights


def test_presets_are_the_examples_of_the_lab(tab):
    for name, example in (("home", go_home_example()), ("thinking", thinking_example(3)), ("dog", dog_example(False))):
        scores, weights, output = tab.evaluate(
            """name => {
              load(PRESETS[name]);
              const { parts: [{ scores, weights, output }] } = attend(ours.q, ours.k, ours.v, ours);
              return [scores, weights, output].map(({ data }) => [...data]);
            }""",
            name,
        )
        assert gap(torch.tensor(scores), example.trace.scores.float().flatten()) < 0.02
        assert gap(torch.tensor(weights), example.trace.weights.float().flatten()) < 1e-3
        assert gap(torch.tensor(output), example.trace.output.float().flatten()) < 0.01
        assert tab.locator("#own-d_k").input_value() == str(example.query.size(1))


# What a reader does.


def test_boxes_open_by_mouse_and_keyboard(tab):
    titles = set()
    for number in range(tab.locator(".box").count()):
        box = tab.locator(".box").nth(number)
        if number % 2:
            box.click()
        else:
            box.focus()
            tab.keyboard.press("Enter")
        assert box.get_attribute("aria-pressed") == "true"
        assert tab.locator(".box[aria-pressed=true]").count() == 1
        titles.add(tab.locator("#panel-title").inner_text())
        assert tab.locator("#panel-title").inner_text() == box.get_attribute("aria-label")
        assert tab.locator("#panel-formula math").count()
        assert "def " in tab.locator("#panel-code").inner_text()
        assert tab.locator("#panel-shapes tbody tr").count() >= 1
        assert tab.locator("#panel-numbers td").count() >= 5
    assert {"Encoder: Self-attention", "Decoder: Masked self-attention", "Decoder: Softmax"} <= titles


def test_zoom_goes_from_heads_to_one_product(tab, shown: ShownModel):
    tab.locator(".box.cross").click()
    tab.locator("#panel-layer-choice").select_option(index=1)
    assert tab.locator(".minis button").count() == 4
    tab.locator(".minis button").nth(2).click()
    weights = tab.locator("#panel-numbers .grid").first
    rows = run(tab, [*shown.source, EOS], tab.evaluate("decoderInput()"))["decoder.1.cross_attention 2"]
    assert weights.locator("button").all_inner_texts() == [f"{weight:.2f}" for weight in rows.flatten().tolist()]
    weights.locator("button[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowUp", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    query, key = len(rows) - 2, 2
    said = tab.locator("#panel-numbers .sum").all_inner_texts()
    score = float(re.findall(r"[−\d.]+\d", said[0])[0].replace("−", "-"))
    line = tab.evaluate(
        "([i, j]) => (({ query, key }) => [[...row(query, i)], [...row(key, j)]])(traced().parts[2])",
        [query, key],
    )
    assert math.isclose(score, sum(a * b for a, b in zip(*line, strict=True)), abs_tol=1e-3)
    products = tab.locator("#panel-numbers tr").last.locator("td").all_inner_texts()
    assert products == [f"{a * b:.2f}".replace("-0.00", "0.00").replace("-", "−") for a, b in zip(*line, strict=True)]
    assert said[1].endswith(f"{rows[query, key]:.4f}.")
    assert tab.locator("#zoom button").count() == 3
    tab.locator("#zoom button").nth(1).click()
    tab.get_by_text("Edit Q, K and V of this head below").click()
    assert tab.locator("#own-d_k").input_value() == "8"
    assert (
        gap(
            torch.tensor(tab.evaluate(OWN_WEIGHTS)).double(),
            rows.flatten(),
        )
        < 0.01
    )


def test_film_of_a_decoding_step_plays_to_the_next_word(open_tab, course: str, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text(course, encoding="utf-8")
    tab = open_tab("GET (file|data|blob):.*")
    tab.clock.install()
    tab.goto(file.as_uri())
    frames = int(tab.locator("#film-slider").get_attribute("max"))
    said = tab.locator("#film-said")
    tab.locator("#film-play").click()
    assert tab.locator("#film-play").get_attribute("aria-pressed") == "true"
    tab.clock.run_for(900 * 3)
    assert tab.locator("#film-slider").input_value() == "3"
    assert "Self-attention, layer 1" in said.inner_text()
    tab.locator("#film-play").click()
    tab.clock.run_for(5000)
    assert tab.locator("#film-slider").input_value() == "3"
    tab.locator("#film-slider").focus()
    tab.keyboard.press("End")
    assert tab.locator("#film-slider").input_value() == str(frames)
    assert said.inner_text().startswith("“나는” is appended.")
    tab.locator("#film-back").click()
    assert "The softmax gives “나는”" in said.inner_text()
    last = ""
    for _ in range(5):
        tab.locator("#film-next").click()
        assert tab.locator("#film-slider").input_value() == "0"
        tab.locator("#film-slider").press("End")
        last = said.inner_text()
    assert last == "</s> ends the translation."
    tab.locator("#film-next").click()
    assert said.inner_text().startswith("Decoding step 1:")


def test_film_of_a_training_step_teaches_its_pair(tab):
    before = tab.evaluate(WEIGHTS)
    tab.locator("#film-kind").select_option("train")
    assert "It is taught “나는 빨간 사과가 싫다”" in tab.locator("#film-said").inner_text()
    for _ in range(3):
        tab.locator("#film-forward").click()
    assert tab.locator("#film-table tbody tr").count() == 5
    tab.locator("#film-forward").click()
    assert "Linear" in tab.locator("#panel-title").inner_text()
    # All but the positions of both sides and the softmax, which have no weights.
    assert tab.locator(".box[data-gradient]").count() == tab.locator(".box").count() - 3
    assert tab.evaluate(WEIGHTS) == before
    tab.locator("#film-slider").press("End")
    losses = [float(loss) for loss in re.findall(r"\d\.\d{4}", tab.locator("#film-said").inner_text())]
    assert losses[1] < losses[0] / 2
    assert tab.locator("#film-said").inner_text().endswith("The model now says “나는 빨간 사과가 싫다”.")
    tab.locator("#film-slider").press("Home")
    assert tab.evaluate(WEIGHTS) == before
    tab.locator("#film-next").click()
    assert "Training step 2" in tab.locator("#film-said").inner_text()
    tab.locator("#reference").fill("나는 사과가 좋다")
    tab.locator("#reference").press("Tab")
    assert "It is taught “나는 사과가 좋다”" in tab.locator("#film-said").inner_text()
    tab.locator("#film-reset").click()
    assert tab.evaluate(WEIGHTS) == before


def test_changes_of_the_model_change_its_translation(tab):
    assert tab.locator("#change-said").inner_text().endswith("Nothing is changed.")
    unchanged = tab.locator("#change-said p").first.inner_text()
    for box in tab.locator("#change-heads fieldset").nth(5).locator("input").all():
        box.uncheck()
    without = tab.locator("#change-said p").nth(1).inner_text()
    assert without.startswith("Changed:")
    assert without.removeprefix("Changed") != unchanged.removeprefix("Unchanged")
    tab.locator("#change-factor").press("Home")
    assert tab.locator("#change-factor-said").inner_text() == "0.13"
    assert tab.locator("#change-said").inner_text().endswith("The translation changes.")
    assert tab.locator("#change-said mark").count() >= 1
    tab.locator("#change-undo").click()
    assert tab.locator("#change-heads input:checked").count() == 24
    tab.locator("#change-word").select_option(index=2)
    tab.locator("#change-place").fill("20")
    assert "not 20" in tab.locator("#change-places").inner_text()
    assert tab.locator("#change-said p").count() == 3
    assert tab.locator("#change-said p").first.inner_text() == unchanged


def test_sentence_is_written_in_the_words_of_the_model(tab):
    tab.locator("#sentence").fill("I like blue apples")
    tab.locator("#sentence").press("Enter")
    assert tab.locator("#sentence-said").inner_text().startswith("The model has no word “blue”")
    tab.locator("#sentence").fill("we do not go home today")
    tab.locator("#sentence").press("Enter")
    assert tab.locator("#sentence-said").inner_text().endswith("becomes “우리는 오늘 집에 가지 않는다”")
    assert tab.locator("#panel-numbers tbody th").first.inner_text() == "we"


def test_own_numbers_change_every_stage(tab):
    def stages() -> list[str]:
        return tab.locator("#own-stages .stage").all_inner_texts()

    before = stages()
    tab.locator("#own-q input").first.fill("5")
    assert all(a != b for a, b in zip(before, stages(), strict=True))
    tab.get_by_role("button", name="나는 사과가 좋다").click()
    masked = tab.locator("#own-stages .stage").nth(2).locator(".hidden-cell")
    assert masked.count() == 6
    tab.locator("#own-padding").fill("1")
    assert masked.count() == 7
    score = tab.locator("#own-stages .mask button")
    score.nth(4).click()
    assert masked.count() == 8
    assert tab.evaluate("document.activeElement.textContent") == "−∞"
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert masked.count() == 9
    tab.keyboard.press("Enter")
    score.nth(4).click()
    assert masked.count() == 7
    tab.locator("#own-fill").select_option("times")
    assert masked.count() == 0
    assert "0.00" not in tab.locator("#own-stages .stage").nth(3).locator("td").last.inner_text()
    tab.locator("#own-heads").fill("3")
    tab.locator("#own-heads").press("Tab")
    assert tab.locator("#own-q thead th").count() == 6
    assert tab.locator("#own-concat").is_visible()
    tab.locator("#own-head").select_option(index=2)
    tab.locator("#own-d_v").fill("1")
    tab.locator("#own-d_v").press("Tab")
    assert tab.locator("#own-concat thead th").count() == 3
    tab.locator("#own-q input").first.fill("")
    assert tab.locator("#own-q input").first.input_value() == ""


@pytest.mark.parametrize(
    ("dark", "width", "language"), [pytest.param(False, 1100, "en-US", marks=pytest.mark.slow), (True, 390, "ko-KR")]
)
def test_axe_finds_nothing_in_the_page_of_a_model(open_page, course: str, dark: bool, width: int, language: str):
    tab = open_page(course, dark=dark, width=width, language=language)
    tab.locator("#film-kind").select_option("train")
    tab.locator("#film-slider").press("ArrowRight")
    tab.locator(".box.masked").click()
    tab.locator(".minis button").first.click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    if language == "ko-KR":
        tab.evaluate("at('#panel-code').hidden = true")
        words = tab.locator("main").inner_text()
        assert re.findall(r"\b(?:heads|layer|query|weight|training|words?|row|step)\b", words, re.IGNORECASE) == []
    assert axe_problems(tab) == []
    tab.locator("[data-language=en]").click()
    assert tab.locator("#panel-title").inner_text() == "Encoder: Embedding"
