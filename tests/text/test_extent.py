"""How much text a training source held: measured, recorded, and believed only where the record is one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import save_random, signed_again, tiny_transformer, write_tsv

from dragoman.config.serve import ServeConfig
from dragoman.data.dataset import tokenise
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.server.models import open_models, parse_models
from dragoman.storage.writing import new_folder
from dragoman.text.extent import SourceExtent
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.extent import language_notes, measure_extent, target_scripts
from dragoman.translation.segments import Segment


def extent_of(sources: list[str], tokenizer: Tokenizer, folder: Path) -> SourceExtent:
    corpus = folder / "corpus.tsv"
    corpus.write_text("".join(f"{source}\tx\n" for source in sources), encoding="utf-8")
    return measure_extent(
        tokenise((CorpusSpec((str(corpus),)),), Tokenizers.from_tokenizer(tokenizer), None, folder / "c.arrow")[0],
        tokenizer,
    )


def test_extent_is_that_of_95_of_100_sources(tokenizer: Tokenizer, tmp_path: Path):
    one, three = "The dog sees it.", "The dog sees it. The man sees it. The dog."
    tokens = len(tokenizer.encode(one)), len(tokenizer.encode(three))
    measured = extent_of([one] * 95 + [three] * 5, tokenizer, tmp_path)
    assert measured == SourceExtent(1, tokens[0], False, ("LATIN",), pairs=100, subwords=measured.subwords)
    assert 0 < measured.subwords == Segment(three, tokenizer.encode(three)).subwords_per_letter < 1
    found = extent_of([one] * 94 + [three] * 5 + ["개가 봐요. " * 9], tokenizer, tmp_path)
    assert found == SourceExtent(3, tokens[1], False, ("HANGUL", "LATIN"), pairs=100, subwords=found.subwords)
    marked = one.replace("dog", "<b>dog</b>")
    assert extent_of([one] * 99 + [marked], tokenizer, tmp_path).markup
    assert not extent_of([one] * 100 + [marked], tokenizer, tmp_path).markup
    assert extent_of(["1 2 3"] * 6 + [one] * 4, tokenizer, tmp_path).wordless
    assert not extent_of(["1 2 3"] * 4 + [one] * 6, tokenizer, tmp_path).wordless


def test_scripts_are_those_of_all_languages_that_training_or_validation_has(tokenizer: Tokenizer, tmp_path: Path):
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("a\tThe dog.\n" * 50 + "a\t개가 봐요.\n" * 5, encoding="utf-8")
    pairs = tokenise((CorpusSpec((str(corpus),)),), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "c.arrow")[0]
    assert target_scripts(pairs, tokenizer, ["Привет"]) == ["CYRILLIC", "HANGUL", "LATIN"]
    assert target_scripts(pairs, tokenizer, []) == ["HANGUL", "LATIN"]


ENGLISH_GERMAN = [
    ("The weather is fine today, and we are going to the lake.", "Das Wetter ist heute schön, und wir fahren zum See."),
    ("She has been reading this book for three weeks.", "Sie liest dieses Buch schon seit drei Wochen."),
    ("Where did you put the keys of the house?", "Wohin hast du die Schlüssel für das Haus gelegt?"),
]


@pytest.mark.parametrize(
    ("languages", "told"), [("de-en", True), ("de-AT-en-GB", True), ("en-de", False), (None, False)]
)
def test_languages_the_wrong_way_round_are_told(languages: str | None, told: bool, tmp_path: Path):
    pytest.importorskip("py3langid")
    tokenizers = Tokenizers.from_tokenizer(Tokenizer.train(text for pair in ENGLISH_GERMAN for text in pair))
    spec = CorpusSpec((write_tsv(tmp_path / "dev.tsv", ENGLISH_GERMAN),))
    held, _ = tokenise([spec], tokenizers, None, tmp_path / "dev.arrow")
    notes = language_notes(languages, held, tokenizers)
    assert len(notes) == told
    assert all("the sources look like en and the targets like de" in note for note in notes)


def test_record_says_whether_every_source_had_a_tag(pairs: list[tuple[str, str]], tmp_path: Path):
    corpus = write_tsv(tmp_path / "corpus.tsv", pairs)
    tagged = Tokenizer.train([text for pair in pairs for text in pair], 300, tags=["fr", "tr"])

    def found(*specs: CorpusSpec) -> bool:
        held = tokenise(specs, Tokenizers.from_tokenizer(tagged), None, tmp_path / "c.arrow")[0]
        return measure_extent(held, tagged).tagged

    french, turkish, plain = (CorpusSpec((corpus,), tag=tag) for tag in ("fr", "tr", ""))
    of_target = CorpusSpec((corpus,), target_tag="fr")
    assert [found(french), found(french, turkish)] == [True] * 2
    assert [found(plain), found(french, plain), found(plain, turkish), found(of_target)] == [False] * 4


@pytest.fixture
def needs_tag(pairs: list[tuple[str, str]], tmp_path: Path) -> Path:
    """A model with two tags whose training sources all had one, or so its folder says."""
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], 300, tags=["fr", "tr"])
    folder = save_random(tiny_transformer(), tokenizer, tmp_path / "tagged")
    (folder / SourceExtent.RECORD).write_text(SourceExtent(1, 20, tagged=True).as_json())
    signed_again(folder)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "translate --beam 1 --extra-length 1 -m {model} x",
        "inspect --beam 1 --extra-length 1 -m {model} x --json",
        "evaluate --beam 1 --extra-length 1 -m {model} {test}",
    ],
)
def test_forgotten_tag_is_told(command: str, needs_tag: Path, corpus: tuple[str, str], dragoman: Callable[..., Any]):
    words = command.format(model=needs_tag, test=corpus[1]).split()
    ran = dragoman(*words)
    assert ran.code == 0
    assert f"{needs_tag}: no tag, though every training source of the model had one (fr, tr): " in ran.err
    assert "no tag" not in dragoman(*words, *(["tag=fr"] if words[0] == "evaluate" else ["--tag", "fr"])).err
    if words[0] == "translate":
        assert dragoman(*words, "--quiet").err == ""
    (needs_tag / DefaultTags.RECORD).write_text(DefaultTags("tr").as_json())
    signed_again(needs_tag)
    assert "no tag" not in dragoman(*words).err
    (needs_tag / DefaultTags.RECORD).unlink()
    (needs_tag / SourceExtent.RECORD).write_text(SourceExtent(1, 20).as_json())
    signed_again(needs_tag)
    assert "no tag" not in dragoman(*words).err
    (needs_tag / LanguageTags.RECORD).write_text(LanguageTags(("fr", "tr"), "target").as_json())  # as an import does
    signed_again(needs_tag)
    assert "every training source of the model had one (fr, tr)" in dragoman(*words).err


def test_server_refuses_a_model_that_needs_a_tag_without_one(needs_tag: Path):
    config = ServeConfig(model=(f"en-fr={needs_tag}",))
    told = re.escape(f"every training source had a tag (fr, tr): choose one, as in en-fr={needs_tag}:fr")
    with pytest.raises(DragomanError, match=told):
        open_models(config, parse_models(config.model, None))
    models = open_models(config, parse_models([f"en-fr={needs_tag}:fr"], None))
    models.close(5)


def recorded(folder: Path, text: str) -> Path:
    """A folder with this record, which its manifest lists."""
    with new_folder(folder) as draft:
        (draft / SourceExtent.RECORD).write_text(text, encoding="utf-8")
    return folder


def test_record_is_read_as_it_was_written(tmp_path: Path):
    extent = SourceExtent(2, 30, True, ("CJK",), tagged=True)
    assert SourceExtent.load(tmp_path) is None
    assert SourceExtent.load(recorded(tmp_path / "new", extent.as_json())) == extent
    old = recorded(tmp_path / "old", '{"sentences": 2, "tokens": 30}')
    assert SourceExtent.load(old) == SourceExtent(2, 30)


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", '{"sentences": 1}', '{"sentences": 0, "tokens": 5}', '{"sentences": true, "tokens": 5}',
             '{"sentences": 1, "tokens": 5.0}', '{"sentences": 1, "tokens": 5, "wordless": 1}',
             '{"sentences": 1, "tokens": 5, "scripts": [1]}',
             '{"sentences": 1, "tokens": 5, "tagged": 1}', "[" * 100_000],
)  # fmt: skip
def test_source_extent_refuses_what_is_no_record(tmp_path: Path, text: str):
    folder = recorded(tmp_path / "model", text)
    with pytest.raises(DragomanError, match=r"extent\.json: not a record of sentences and tokens"):
        SourceExtent.load(folder)
