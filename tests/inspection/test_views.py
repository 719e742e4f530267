"""Views: what is drawn is what was inspected, and it can be read without colours."""

import dataclasses
import json
import re
import resource
import warnings
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from conftest import tiny_transformer
from golden_files import describe
from PIL import Image

from dragoman.config import RecurrentConfig, SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import UsageError
from dragoman.inspection import CATALOGUE
from dragoman.inspection.figure import (
    Figure,
    check_format,
    map_figure,
    save,
    wrap_caption,
)
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.plots.positions import added_positions, position_figure
from dragoman.inspection.plots.training import Metrics, draw_curves
from dragoman.inspection.views import (
    View,
    draw_cross_attention,
    view_figure,
)
from dragoman.model import build
from dragoman.model.positions import POSITIONS, Positions, Sinusoidal
from dragoman.model_folder import write_model
from dragoman.storage.writing import new_folder
from dragoman.text.speech import Say, speaker
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

SENTENCE, TRANSLATION = "The dog sees 12 cats.", "개가 고양이 12마리를 봐요."
DEEP = tiny_transformer(encoder_layers=2, decoder_layers=2)
VIEWS: tuple[View, ...] = get_args(View)


def make(
    tokenizer: Tokenizer, search: SearchConfig = SearchConfig(beam=3, extra_length=3), **config: Any
) -> Translator:
    torch.manual_seed(0)
    return Translator(build(dataclasses.replace(DEEP, **config), len(tokenizer)).eval(), tokenizer, search)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return make(tokenizer)


@pytest.fixture(scope="module")
def given(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, TRANSLATION, name="toy")


@pytest.fixture(scope="module")
def searched(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, name="toy")


def view(translator: Translator, inspection: Inspection, name: View) -> Figure:
    return view_figure(translator, inspection, name, "cross", subwords=False)


def test_tree_of_a_search_that_was_not_made_is_refused(translator: Translator, given: Inspection):
    with pytest.raises(UsageError, match="no beam search to draw"):
        view(translator, given, "tree")


@pytest.mark.parametrize("scheme", [name for name, kind in POSITIONS.items() if kind.embed is not Positions.embed])
def test_positions_are_those_that_the_model_adds(tokenizer: Tokenizer, scheme: str):
    model = make(tokenizer, positions=scheme, max_length=20).model
    added = added_positions(model, 30)
    assert added
    assert added.scheme == scheme
    assert added.table.shape == (model.config.max_positions or 30, DEEP.d_model)
    words = torch.randn(1, 7, DEEP.d_model)
    torch.testing.assert_close(model.encoder_positions.embed(words, 0)[0], words[0] + added.table[:7])


def test_positions_of_a_new_scheme_are_drawn_up_to_its_limit(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    class Limited(Sinusoidal):
        def embed(self, x: torch.Tensor, start: int) -> torch.Tensor:
            if start + x.size(1) > 20:
                raise ValueError("max_length")
            return super().embed(x, start)

    monkeypatch.setitem(POSITIONS, "learned", Limited)  # whose length the config limits
    added = added_positions(make(tokenizer, positions="learned", max_length=20).model, 30)
    assert added
    assert len(added.table) == 20


def test_positions_that_a_model_does_not_have_are_not_drawn(tokenizer: Tokenizer):
    assert added_positions(make(tokenizer, positions="rotary").model, 50) is None
    for config in (dataclasses.replace(DEEP, positions="none"), RecurrentConfig(d_model=16)):
        with pytest.raises(UsageError, match="no positional encoding"):
            position_figure(build(config, 300), 50, "")


def test_masks_are_those_of_the_attention_that_a_model_has(tokenizer: Tokenizer):
    def masks(attention: Any) -> Figure:
        model = build(RecurrentConfig(d_model=16, attention=attention), len(tokenizer)).eval()
        translator = Translator(model, tokenizer)
        return view(translator, inspect(translator, "The dog", "개", name="toy"), "masks")

    assert [panel["title"] for panel in describe(masks("dot"))["panels"]] == ["cross-attention"]
    with pytest.raises(UsageError, match="no attention, so it needs no masks"):
        masks("none")


# Captions and pixels.


def test_caption_stays_within_its_figure():
    latin, hangul = wrap_caption("word " * 60, 6.0), wrap_caption("단어를 " * 60, 6.0)
    assert max(map(len, latin.splitlines())) <= 90
    assert max(map(len, hangul.splitlines())) < 60
    assert " ".join(latin.split()) == ("word " * 60).strip()  # nothing is lost


def test_saved_map_is_darkest_where_the_weight_is_greatest(tmp_path: Path, given: Inspection):
    """From the pixels of the file."""
    save(map_figure(torch.eye(20), [""] * 20, [""] * 20, "", ""), tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as file:
        colours = torch.from_numpy(np.array(file.convert("RGB"))).int()
    blue = (colours[..., 2] > colours[..., 0] + 60) & (colours[..., 0] < 60)  # without letters and frames
    y, x = blue[:, : int(0.75 * blue.size(1))].nonzero().T.double()  # without the colour bar
    assert float(torch.corrcoef(torch.stack([x, y]))[0, 1]) > 0.95


# The command.


def written(svg: Path) -> list[str]:
    """Return the texts of a figure: matplotlib writes each as a comment before its outlines."""
    return re.findall("<!-- (.*?) -->", svg.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def own_translation(trained: Path) -> str:
    """The translation of the search alone: an inspection looks at nothing else."""
    return Translator.load(trained, safeguards=NO_SAFEGUARDS).translate([SENTENCE])[0].text


# The view of the memory needs one: tests/inspection/test_origins.py.
DRAWN = [*((name, ".svg") for name in VIEWS if name != "memory"), ("map", ".png"), ("grid", ".pdf")]
SOON = [("map", ".svg"), ("words", ".svg"), ("grid", ".pdf")]  # the others are slow


@pytest.mark.parametrize(
    ("name", "format"), [case if case in SOON else pytest.param(*case, marks=pytest.mark.slow) for case in DRAWN]
)
def test_inspect_draws_every_view_with_hangul_and_names_model_and_sentence(
    dragoman, trained: Path, own_translation: str, caplog: pytest.LogCaptureFixture, name: View, format: str
):
    """A letter that no typeface has would be a warning, a typeface that is not found a line in matplotlib's log."""
    out, of_the_model = Path(f"new/figure{format}"), name in ("map", "tree")
    translation = own_translation if of_the_model else TRANSLATION
    flags = ["--view", name, "--out", out, *([] if of_the_model else ["--translation", TRANSLATION])]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert dragoman("inspect", "-m", trained, SENTENCE, *flags) == (0, f"{translation}\n{out}\n", "")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert out.read_bytes().startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[format])
    if format == ".svg":
        assert f"model toy: “{SENTENCE}” → “{translation}”" in " ".join(" ".join(written(out)).split())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--view grid --layer 1", "--layer cannot be used with --view grid"),
        ("--view tree --kind encoder", "--kind cannot be used with --view tree"),
        ("--view masks --subwords", "--subwords cannot be used with --view masks"),
        ("--head 1 --aggregate max", "give --head or --aggregate, not both"),
        ("--view grid --sample dev.tsv", "--sample needs --view heads"),
        ("--view heads --out never.svg --json --sample dev.tsv", "without a page or --json"),
        ("--view heads --out never.svg --html page.html --sample dev.tsv", "without a page or --json"),
        ("--view heads --out never.svg --sample dev.tsv", "leave out TEXT, --translation, --tag"),
        ("--html page.html --layer 1", "--layer cannot be used with a page"),
        ("--json --view grid", "--view grid draws a figure"),
        ("--html page.pdf", "page.pdf: the name of a page must end in .html"),
        ("--model-page page.pdf", "page.pdf: the name of a page must end in .html"),
        ("--view tree --translation 개가", "there is no beam search to draw"),
    ],
)
def test_inspect_refuses_flags_that_do_not_go_together(dragoman, trained: Path, tmp_path: Path, flags: str, says: str):
    ran = dragoman("inspect", "-m", trained, SENTENCE, *flags.split())
    assert ran.code == 2
    assert says in ran.err
    assert not list(tmp_path.iterdir())


def test_head_table_is_over_a_sample(dragoman, trained: Path, corpus: tuple[str, str]):
    out = Path("heads.svg")
    assert dragoman("inspect", "-m", trained, "--view", "heads", "--sample", corpus[1], "--out", out).code == 0
    translator, pairs = Translator.load(trained), read_corpus([corpus[1]]).pairs
    inspections = [inspect(translator, *pair) for pair in pairs]
    queries = sum(len(translator.tokenizers.source.encode(target)) + 1 for _, target in pairs)
    texts = " ".join(" ".join(written(out)).split())
    assert f"means over {queries:,} queries of {len(pairs)} sentences" in texts
    pooled, alone = (
        next(head.entropy for head in head_statistics(some) if head.kind == "cross")
        for some in (inspections, inspections[:1])
    )
    assert f"{pooled:.2f}" in written(out)
    assert alone != pytest.approx(pooled, abs=0.005)  # the control: one sentence says something else


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the tag "formal"."""
    texts = [SENTENCE, TRANSLATION] * 20
    tokenizer = Tokenizer.train(iter(texts), suggested=300, tags=["formal"])
    made, folder = make(tokenizer), tmp_path_factory.mktemp("tagged") / "model"
    with new_folder(folder) as draft:
        write_model(draft, made.model, Tokenizers.from_tokenizer(tokenizer), "")
    return folder


def test_inspect_looks_at_a_text_with_its_tag(dragoman, tagged: Path):
    flags = ["inspect", "-m", tagged, SENTENCE, "--translation", TRANSLATION, "--json"]
    formal, plain = (json.loads(dragoman(*flags, "--tag", tag).out)["source"]["tokens"] for tag in ("formal", ""))
    assert formal == ["<tag:formal>", *plain]


def test_source_ids_of_whole_texts_begin_with_their_tags(tagged: Path):
    translator = Translator.load(tagged)
    tokenizer = translator.tokenizers.source
    plain, formal = tokenizer.encode(SENTENCE), tokenizer.encode(SENTENCE, "formal")
    assert translator.source_ids([SENTENCE, SENTENCE], ["", "formal"]) == [plain, formal]
    assert translator.replace(tag="formal").source_ids([SENTENCE], [""]) == [formal]
    assert plain != formal == [*tokenizer.tag_ids("formal"), *plain]
    (cut,) = translator.source_ids(["dog " * 2000], ["formal"])
    assert len(cut) == translator.max_source_tokens


def test_sample_pairs_keep_their_tags(dragoman, tagged: Path):
    Path("pairs.tsv").write_text(f"{SENTENCE}\t{TRANSLATION}\n", encoding="utf-8")
    flags = ["--view", "heads", "--out", "heads.svg", "--sample", "pairs.tsv", "tag=formal"]
    assert dragoman("inspect", "-m", tagged, *flags).code == 0

    def special(tag: str) -> set[str]:
        """What each head gives to tags and ends, as the table writes it."""
        seen = head_statistics([inspect(Translator.load(tagged), SENTENCE, TRANSLATION, tag=tag)])
        return {f"{head.special:.2f}" for head in seen if head.kind == "cross"}

    texts = set(written(Path("heads.svg")))
    assert special("formal") <= texts
    assert not special("") <= texts


def test_inspect_refuses_a_sample_of_sentences_that_are_all_too_long(dragoman, trained: Path):
    Path("long.tsv").write_text("Z" * 5000 + "\tQ\n", encoding="utf-8")
    ran = dragoman("inspect", "-m", trained, "--view", "heads", "--sample", "long.tsv", "--out", "heads.svg")
    assert ran.code == 1
    assert "no pair is short enough" in ran.err


def test_inspect_json_has_everything_in_full(dragoman, trained: Path):
    record = json.loads(dragoman("inspect", "-m", trained, SENTENCE, "--json").out)
    inspection = inspect(Translator.load(trained), SENTENCE)
    for kind in KINDS:
        assert torch.equal(torch.tensor(record[f"{kind}_attention"]), inspection.maps(kind)[:, None])
    assert record["encoder_tokens"] == record["source"]["tokens"] == inspection.encoder_tokens
    assert record["decoder_tokens"] == record["decoder_input"]["tokens"] == inspection.decoder_tokens
    assert record["target"]["text"] == inspection.target.text
    assert [place["probability"] for place in record["positions"]] == [p.probability for p in inspection.positions]
    assert [head["entropy"] for head in record["heads"]] == [head.entropy for head in head_statistics([inspection])]
    assert inspection.tree
    assert len(record["tree"]["nodes"]) == len(inspection.tree.nodes)
    assert record["tree"]["path"] == inspection.tree.path


# Files.


def test_signs_that_svg_may_not_have_are_replaced(tmp_path: Path):
    labels = ["a\x01b", "\x1b[31mred", "\ud800", "plain"]
    save(map_figure(torch.eye(4), labels, labels, "title", "c\x01"), tmp_path / "map.svg")
    ElementTree.parse(tmp_path / "map.svg")
    texts = written(tmp_path / "map.svg")
    assert {"a�b", "�[31mred", "�", "plain", "title"} <= set(texts)
    assert any(text.startswith("c�; ") for text in texts)


@pytest.mark.parametrize("name", ["map", "map.jpg", "map.svg.txt", ".svg"])
def test_figure_in_an_unknown_format_is_refused(name: str):
    with pytest.raises(UsageError, match="a figure's name must end in one of"):
        check_format(Path(name))
    check_format(Path("map.SVG"))


@pytest.mark.parametrize("rows", [1, 3])
def test_map_figure_refuses_labels_that_do_not_fit_the_values(rows: int):
    with pytest.raises(ValueError, match="weights are"):
        map_figure(torch.eye(2), ["a"] * rows, ["a", "b"], "")


@pytest.mark.parametrize(("size", "format"), [(1, "svg"), (1, "png"), (5, "pdf"), (50, "svg")])
def test_figure_of_any_size_can_be_drawn(tmp_path: Path, size: int, format: str):
    labels = ["a long label that has to be shortened " * 3] * size
    save(map_figure(torch.eye(size), labels, labels, "title", "caption"), tmp_path / f"map.{format}")
    assert (tmp_path / f"map.{format}").stat().st_size > 1000


def test_full_disk_leaves_the_old_figure(dragoman, tmp_path: Path, trained: Path):
    command = ["inspect", "-m", trained, "The dog", "--out", "map.png"]
    assert dragoman(*command).code == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        assert dragoman(*command) == (1, "", "dragoman: map.png: File too large\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Image.open("map.png") as image:
        image.load()
    assert [file.name for file in tmp_path.iterdir()] == ["map.png"]


# One call for a figure.


@pytest.mark.parametrize("translation", [None, "개가 고양이를 봐요.", ""])
def test_draw_cross_attention_draws_the_translation_that_it_returns(
    trained: Path, tmp_path: Path, translation: str | None
):
    translator = Translator.load(trained, SearchConfig(beam=1), NO_SAFEGUARDS)
    returned = draw_cross_attention(translator, SENTENCE, tmp_path / "map.svg", translation=translation, subwords=True)
    assert returned == (translator.translate([SENTENCE])[0].text if translation is None else translation)
    assert (tmp_path / "map.svg").is_file()


def test_draw_cross_attention_refuses_what_the_model_does_not_have(translator: Translator, tmp_path: Path):
    with pytest.raises(UsageError, match="layer 3: the model has layers 1 to 2"):
        draw_cross_attention(translator, SENTENCE, tmp_path / "map.svg", layer=3)
    model = build(RecurrentConfig(d_model=16, attention="none"), len(translator.tokenizers.source)).eval()
    with pytest.raises(UsageError, match="no cross-attention"):
        draw_cross_attention(
            Translator(model, translator.tokenizers), "The dog", tmp_path / "map.svg", translation="개"
        )
    assert not list(tmp_path.iterdir())


def test_notebook_shows_pictures_and_leaves_matplotlib_as_it_was(translator: Translator, searched: Inspection):
    matplotlib = pytest.importorskip("matplotlib")
    shown = (searched, searched.map("cross", 1, 2), searched.map("encoder", 1, 2), view(translator, searched, "tree"))
    with matplotlib.rc_context({"text.parse_math": True, "font.family": ["serif"]}):
        before = {**matplotlib.rcParams}
        pictures, words = zip(*(figure._repr_png_() for figure in shown), strict=True)
        assert {**matplotlib.rcParams} == before
    assert len({*pictures}) == len(shown)
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert repr(shown[-1]) == f"<Figure: {shown[-1].caption}>"
    assert words[-1] == {"alt": shown[-1].caption}
    cross = shown[1]
    best = [
        f"{row}: {cross.columns[weights.index(max(weights))]} {max(weights):.2f}"
        for row, weights in zip(cross.rows, cross.weights.tolist(), strict=True)
    ]
    assert words[1] == {"alt": "; ".join([cross.title, *best, cross.caption])}


def test_model_without_attention_has_no_picture(tokenizer: Tokenizer):
    plain = Translator(
        build(RecurrentConfig(cell="gru", d_model=16, attention="none"), len(tokenizer)).eval(), tokenizer
    )
    assert inspect(plain, SENTENCE, TRANSLATION)._repr_png_() is None


@pytest.mark.parametrize("name", [view for view in VIEWS if view != "memory"])
def test_figure_in_korean_has_no_english_but_the_words_of_the_sentence(translator: Translator, name: View, tmp_path):
    inspection = inspect(translator, "The head layer value.", name="value")
    said: list[str] = []

    def say(text: str) -> str:
        said.append(speaker("ko", CATALOGUE)(text))
        return said[-1]

    for kind in ("cross", "encoder") if name in ("map", "grid", "heads", "stages", "lines") else ("cross",):
        save(view_figure(translator, inspection, name, kind), tmp_path / "ko.svg", say)
    assert said
    for text in said:
        ours = re.sub(r"“.*?”|dragoman [\w.]+|모델 \S+", "", text)
        assert not re.search("[A-Za-z]{3}", ours), text
    labels = save_svg(view_figure(translator, inspection, name), tmp_path / "ko.svg", say)
    if name == "tree":
        assert {"남김", "버림"} <= set(said)
        drawn = (tmp_path / "ko.svg").read_text("utf-8")
        assert "남김" in drawn
        assert "kept" not in drawn
    if name in ("map", "occlusion"):  # words of the sentence that are words of ours, too
        assert {"head", "layer"} <= labels


def save_svg(figure: Figure, path: Path, say: Say) -> set[str]:
    """Save a figure and return its texts, first words alone."""
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none"}):
        save(figure, path, say)
    texts = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()).split(" ")[0] for text in texts}


def test_curves_in_korean_keep_the_names_of_runs(tmp_path: Path):
    rows = {("step", step): {"step": step, "loss": 3.0, "rate": 1e-3, "tokens_per_second": 9.0} for step in (1, 2)}
    rows |= {("validation", 2): {"step": 2, "loss": 3.0, "bleu": 9.0, "chrf": 30.0}}
    for language, title in (("en", "Learning rate"), ("ko", "학습률")):
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            draw_curves({"step": Metrics(rows, [])}, tmp_path / "curves.svg", say=speaker(language, CATALOGUE))
        svg = (tmp_path / "curves.svg").read_text("utf-8")
        assert title in svg
        assert ">step<" in svg  # the name of the run
    assert not re.search(r">(Dev|Target|Training|Learning)", svg)
