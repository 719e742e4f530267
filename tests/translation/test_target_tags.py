"""What every translation begins with, and is no part of it: the target's tag, such as the language."""

import dataclasses
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, run_config, run_training, signed_again, tiny_transformer, write_tsv
from imported import LINES, tokenizer_of, trained_model

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.dataset import TARGET, Pairs
from dragoman.data.spec import CorpusSpec, parse_corpora
from dragoman.data.tokenizer import BOS, EOS
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.forced import score
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.history import encode_pair, read_film, read_history
from dragoman.inspection.inspect import inspect, run_forced
from dragoman.inspection.occlusion import occlusion
from dragoman.model import Model, build
from dragoman.model_folder import read_model, write_model
from dragoman.server.runs import RunFolders
from dragoman.storage.writing import new_folder
from dragoman.text.faults import find_faults
from dragoman.text.glossary import Entry, Glossary
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags
from dragoman.training.average import average
from dragoman.training.checkpoint import by_step, checkpoints
from dragoman.translation.alternatives import bare_words
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.translator import Translator

Pair = tuple[str, str]


@pytest.fixture(scope="module")
def languages(pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which English becomes Korean or, unchanged, English, as the target's tag says."""
    folder = tmp_path_factory.mktemp("languages")
    korean = write_tsv(folder / "ko.tsv", pairs[:150])
    english = write_tsv(folder / "en.tsv", [(source, source) for source, _ in pairs[:150]])
    dev = write_tsv(folder / "dev.tsv", pairs[190:])
    config = run_config((korean, dev), folder / "run", max_steps=100, validate_every=100)
    words = (korean, "target-tag=ko", english, "target-tag=en")
    model = tiny_transformer(d_model=32, d_ff=64, dropout=0.0)
    run_training(dataclasses.replace(config, train=words, dev=(dev, "target-tag=ko"), model=model))
    return folder / "run"


@pytest.fixture(scope="module")
def translator(languages: Path) -> Translator:
    return Translator.load(languages, SearchConfig(beam=2, extra_length=6), NO_SAFEGUARDS)


def test_language_without_dev_pairs_is_in_a_script_of_the_model(languages: Path):
    scripts = Translator.load(languages).scripts
    assert scripts == ("HANGUL", "LATIN")
    for output, wrong in (("개가 있어요.", False), ("A dog is here.", False), ("Собака здесь.", True)):
        assert ("wrong script" in find_faults("Un perro.", output, scripts=scripts)) is wrong


def test_film_of_a_run_reads_a_sample_with_its_tags(languages: Path, pairs: list[Pair]):
    folders = RunFolders(languages.parent)
    samples = folders.samples(languages, folders.sampled(languages)[-1])
    assert [sample["target tag"] for sample in samples] == ["ko"] * len(samples)
    assert "tag" not in samples[0]
    kept, pair = by_step(checkpoints(languages)), (samples[0]["source"], samples[0]["reference"])
    history = read_history("run", kept, [pair], [""], target_tags=["ko"])
    film = read_film(kept, pair, ("", "ko"))
    assert (film.source, film.target) == (history.source, history.target)
    assert torch.equal(film.cross_attention, torch.stack([one.cross_attention for one in history.snapshots]))
    assert not torch.equal(film.cross_attention, read_film(kept, pair).cross_attention)  # the control
    model, tokenizers = read_model(kept[max(kept)])
    weights = run_forced(model, *encode_pair(tokenizers, pair, "", "ko"))[0]["cross"]
    assert torch.equal(film.cross_attention[-1][..., -1, -1], weights[..., -1, -1])  # from EOS to EOS, behind the tag


def hangul(text: str) -> bool:
    return any("가" <= character <= "힣" for character in text)


def test_tag_decides_the_language_and_is_not_shown(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[190:]]
    tags = ["ko", "en"] * (len(sources) // 2)
    found = translator.translate(sources, target_tags=tags)
    assert [hangul(one.text) for one in found] == [tag == "ko" for tag in tags]
    for one, tag in zip(found, tags, strict=True):
        alone = translator.replace(target_tag=tag).translate(sources[found.index(one)])
        assert (alone.text, alone.tokens) == (one.text, one.tokens)
        assert one.tokens[0][0] == translator.tokenizers.target.tags[tag]
        assert "<" not in one.text
    assert not hangul(translator.translate(sources[0], target_tags="en").text)
    with pytest.raises(DragomanError, match="unknown tag 'fr': choose from ko, en"):
        translator.translate(sources[0], target_tags="fr")


class CountingEngine:
    """Searches as another engine, and remembers how many sources each search has."""

    def __init__(self, engine: Engine):
        self.engine, self.searches = engine, list[int]()
        self.max_positions = engine.max_positions

    def search(self, sources: Sequence[Ids], *settings: Any) -> list[list[Hypothesis]]:
        self.searches.append(len(sources))
        return self.engine.search(sources, *settings)


def test_text_that_is_a_term_has_the_tokens_of_its_tag(translator: Translator):
    """So its words are scored as those of any translation with the tag."""
    tagged = translator.replace(target_tag="ko", safeguards=Safeguards(glossary=Glossary([Entry("dog", ("개",))])))
    found = tagged.translate("dog")
    assert (found.text, found.flags) == ("개", ())
    assert [*found.tokens[0]] == [*tagged.target_tag_ids, *tagged.tokenizers.target.encode("개")]
    assert len(tagged.target_tag_ids) == 1


def test_texts_with_two_target_tags_are_one_search(translator: Translator, pairs: list[Pair]):
    engine = CountingEngine(translator.engine)
    guarded = translator.replace(engine=engine, safeguards=Safeguards())
    sources, tags = [source for source, _ in pairs[190:196]], ["ko", "en", "en", "ko", "en", "ko"]
    together = guarded.translate(sources, target_tags=tags, alignments=True)
    first, *retries = engine.searches
    assert first == 6
    assert len(retries) <= 1
    engine.searches.clear()
    for tag in ("ko", "en"):
        rows = [row for row in range(6) if tags[row] == tag]
        alone = guarded.replace(target_tag=tag).translate([sources[row] for row in rows], alignments=True)
        for row, expected in zip(rows, alone, strict=True):
            assert dataclasses.replace(together[row], score=0.0) == dataclasses.replace(expected, score=0.0)
            assert together[row].score == pytest.approx(expected.score, abs=1e-5)
    assert engine.searches[0] == 3  # the control: one search for each tag
    assert len({translation.alignment for translation in together}) > 1
    others = guarded.translate(sources, target_tags=tags[::-1])
    assert [other.text for other in others] != [translation.text for translation in together]


@pytest.mark.parametrize("beam", [1, 3])
def test_tag_is_certain_and_the_rest_is_the_models(translator: Translator, pairs: list[Pair], beam: int):
    """Held against forced decoding: the score of what is found, without the tag; and against other tags."""
    model, target = translator.model, translator.tokenizers.target
    source = translator.tokenizers.source.encode(pairs[0][0])
    search = SearchConfig(beam=beam, length_penalty=0, extra_length=6)
    own = [Constraints(tag=(target.tags[tag],)) for tag in ("ko", "en")]
    found = [one for (one,) in TorchEngine(model).search([source] * 2, search, own)]
    expected = score(model, [source] * 2, [one.tokens for one in found])
    assert [one.score for one in found] == pytest.approx([one.after(1).total for one in expected], abs=1e-4)
    as_prefix = [Constraints(prefix=constraint.tag) for constraint in own]
    whole = [one for (one,) in TorchEngine(model).search([source] * 2, search, as_prefix)]
    assert [one.tokens for one in whole] == [one.tokens for one in found]
    assert [one.score for one in whole] == pytest.approx([one.total for one in expected], abs=1e-4)
    assert [one.score for one in whole] != pytest.approx([one.score for one in found], abs=1e-2)  # the control


def test_prefix_comes_behind_the_tag(translator: Translator, pairs: list[Pair]):
    tagged = translator.replace(target_tag="ko")
    found = tagged.translate(pairs[0][0], prefixes="말 3")
    assert found.text.startswith("말 3")
    assert (found.retried, "lost prefix" in found.flags) == (False, False)
    assert found.tokens[0][:3] == tuple([*tagged.target_tag_ids, *tagged.tokenizers.target.encode("말 3")][:3])


def test_words_are_scored_and_aligned_without_the_tag(translator: Translator, pairs: list[Pair]):
    tagged = translator.replace(target_tag="ko")
    found = tagged.translate([source for source, _ in pairs[190:]], alignments=True)
    tokens = [one.tokens for one in found]
    scores = tagged.annotator.word_scores([one.segments for one in found], None, tokens)
    anew = tagged.annotator.word_scores([one.segments for one in found])
    ids = [[list(own) for own in of_text] for of_text in tokens]
    for one, own, again, ((target,)) in zip(found, scores, anew, ids, strict=True):
        assert [word for word, _ in own] == [*one.text.split(), ""]
        assert [word for word, _ in again] == [word for word, _ in own]
        source = tagged.tokenizers.source.encode(one.segments[0][0])
        (likelihood,) = score(tagged.model, [source], [target])
        assert sum(log_p for _, log_p in own) == pytest.approx(likelihood.after(1).total, abs=1e-3)
        assert all(0 <= word < len(one.text.split()) for _, word in one.alignment)
    others = tagged.annotator.others([one.segments for one in found], None, tokens)
    assert [len(own) for own in others] == [len(one.text.split()) for one in found]
    target = tagged.tokenizers.target
    first = bare_words(target, target.encode(found[0].text, "ko"))[0].tokens
    assert first == range(1, len(target.encode(found[0].text.split()[0])) + 1)
    blind = translator.annotator.word_scores([one.segments for one in found])
    assert blind != anew  # the control: without the tag the words are less probable


def test_next_words_are_those_behind_the_tag(translator: Translator, pairs: list[Pair]):
    for tag, letters in (("ko", True), ("en", False)):
        first = translator.replace(target_tag=tag).alternatives(pairs[0][0], count=1)[0]
        assert hangul(first.word) == letters
        assert first.translation.text.startswith(first.word)


def test_inspection_is_of_the_translation_alone(translator: Translator, pairs: list[Pair]):
    tagged, text = translator.replace(target_tag="ko"), pairs[0][0]
    for translation in (None, pairs[0][1]):
        found = inspect(tagged, text, translation)
        rows = len(found.target.tokens)
        assert [word.label for word in found.target.words] == [*found.target.text.split(), "</s>"]
        assert found.cross.shape[2] == rows == len(found.positions)
        assert found.decoder.shape[2:] == (rows, rows)
        torch.testing.assert_close(found.decoder.sum(-1), torch.ones(found.decoder.shape[:3]))
        (likelihood,) = score(tagged.model, [found.source.ids], [[*tagged.target_tag_ids, *found.target.ids]])
        probabilities = torch.tensor([position.probability for position in found.positions])
        torch.testing.assert_close(probabilities.log(), torch.tensor(likelihood.after(1).log_p), atol=1e-4, rtol=0)
        whole = occlusion(tagged.model, found, subwords=True)
        torch.testing.assert_close(whole.probability.log(), probabilities.log(), atol=1e-4, rtol=0)
        if translation is None:
            assert found.target.text == tagged.translate(text).text
            assert found.tree is not None
            assert found.tree.nodes[0].token_id == BOS
            assert [found.tree.nodes[0].parent, found.tree.nodes[1].step] == [None, 1]
            assert found.tree.nodes[1].token_id != tagged.target_tag_ids[0]


def test_corpora_have_target_tags(dragoman, languages: Path, pairs: list[Pair], tmp_path: Path):
    file = write_tsv(tmp_path / "some.tsv", pairs[190:])
    (spec,) = parse_corpora([file, "tag=a", "target-tag=ko"])
    assert (spec.tag, spec.target_tag) == ("a", "ko")
    assert parse_corpora(spec.words()) == (spec,)
    for words, message in (
        ([file, "target-tag="], "the tag is missing"),
        ([file, "target-tag=a b"], "a tag is 1 to 40"),
        ([file, "target-tag=a", "target-tag=b"], "already has a target-tag"),
        ([file, "target-tags=a"], r"did you mean target-tag="),
    ):
        with pytest.raises(UsageError, match=message):
            parse_corpora(words)
    scored = dragoman("score", "-m", languages, file, "target-tag=ko", "--json").out.splitlines()
    model, tokenizers = read_model(languages)
    sides = tokenizers.encode_sides(*map(list, zip(*pairs[190:], strict=True)), target_tag="ko")
    expected = [one.after(1) for one in score(model, *sides)]
    assert [json.loads(line)["log_p"] for line in scored] == pytest.approx([one.total for one in expected], abs=1e-3)
    assert [len(json.loads(line)["tokens"]) for line in scored] == [len(one.tokens) for one in expected]
    plain = dragoman("score", "-m", languages, file, "--json").out.splitlines()
    assert plain != scored  # the control
    for line, (source, target) in zip(
        dragoman("align", "-m", languages, file, "target-tag=ko").out.splitlines(), pairs[190:], strict=True
    ):
        for link in line.split():
            one, other = map(int, link.split("-"))
            assert one < len(source.split())
            assert other < len(target.split())
    with_tag, without = (
        json.loads(dragoman("evaluate", "-m", languages, file, tag, "--beam", "1", "--json").out)["chrf"]["value"]
        for tag in ("target-tag=ko", "target-tag=en")
    )
    assert with_tag > without + 10
    assert "unknown tag 'fr'" in dragoman("score", "-m", languages, file, "target-tag=fr").err


@pytest.mark.parametrize("beam", ["1", "3"])
def test_command_line_has_target_tags(dragoman, languages: Path, pairs: list[Pair], beam: str):
    for tag in ("ko", "en"):
        words = ["--target-tag", tag, "--beam", beam, "--word-scores", "--output-format", "jsonl"]
        found = json.loads(dragoman("translate", "-m", languages, pairs[0][0], *words).out)
        assert hangul(found["translation"]) == (tag == "ko")
        assert "".join(word for word, _ in found["words"]) == found["translation"].replace(" ", "")
    page = dragoman("inspect", "-m", languages, pairs[0][0], "--target-tag", "en", "--json").out
    assert not hangul(json.loads(page)["target"]["text"] if isinstance(json.loads(page)["target"], dict) else page)


def test_ctranslate2_takes_tags_as_prefixes(languages: Path, pairs: list[Pair], monkeypatch, tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources, search = [source for source, _ in pairs[190:]], SearchConfig(beam=1)
    native, other = (
        Translator.load(languages, search, NO_SAFEGUARDS, engine=name) for name in ("native", "ctranslate2")
    )
    for tag in ("ko", "en"):
        found, expected = (one.translate(sources, target_tags=tag) for one in (other, native))
        assert [one.text for one in found] == [one.text for one in expected]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)
    assert [one.text for one in found] != [one.text for one in native.translate(sources, target_tags="ko")]


# SentencePiece tokenizers in a model folder.


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights and a SentencePiece tokenizer with tags; the model likes to say what is no word."""
    torch.manual_seed(0)
    tokenizer = tokenizer_of(trained_model("bpe"), ("de", "ko"))
    model = build(dataclasses.replace(TINY, share="all", output_bias=True), len(tokenizer)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.normal_()
        model.output.bias[[0, 1, tokenizer.unknown]] += 5
        model.output.bias[EOS] += 2
    with new_folder(tmp_path_factory.mktemp("imported") / "model") as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# card\n")
    return draft.parent / "model"


def said(model: Model, sources: list[Ids], search: SearchConfig, **more) -> set[int]:
    found = TorchEngine(model, **more).search(sources, search)
    return {token for own in found for one in own for token in one.tokens}


@pytest.mark.parametrize(
    "search", [SearchConfig(beam=1), SearchConfig(beam=3), SearchConfig(beam=1, temperature=1.0)], ids=str
)
def test_searches_never_say_what_is_no_word(imported: Path, search: SearchConfig):
    model, tokenizers = read_model(imported)
    sources = tokenizers.source.encode_all(LINES[:10])
    unspeakable = {*tokenizers.target.suppressed}
    assert len(unspeakable) == 3
    assert said(model, sources, search) & unspeakable  # the control
    assert not said(model, sources, search, suppressed=tokenizers.target.suppressed) & unspeakable
    translator = Translator.load(imported, search, NO_SAFEGUARDS)
    for one in translator.translate(LINES[:10], target_tags="de"):
        assert not {token for own in one.tokens for token in own} & unspeakable
        assert one.tokens[0][0] == tokenizers.target.tags["de"]


def test_ctranslate2_says_none_of_them_either(imported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    search = SearchConfig(beam=1)
    native, other = (
        Translator.load(imported, search, NO_SAFEGUARDS, engine=name) for name in ("native", "ctranslate2")
    )
    found, expected = (one.translate(LINES[:10], tags="ko", target_tags="de") for one in (other, native))
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)
    assert not {token for one in found for own in one.tokens for token in own} & {*native.tokenizers.target.suppressed}


@pytest.mark.slow
def test_sentencepiece_folder_is_trained_on_and_does_everything(
    imported: Path, pairs: list[Pair], tmp_path: Path, dragoman
):
    corpus = write_tsv(tmp_path / "train.tsv", pairs[:60]), write_tsv(tmp_path / "dev.tsv", pairs[190:])
    config = dataclasses.replace(
        run_config(corpus, tmp_path / "run", max_steps=2, validate_every=2),
        init_from=str(imported),
        vocabulary=None,
        model=read_model(imported)[0].config,
        train=(corpus[0], "tag=ko", "target-tag=de"),
        dev=(corpus[1], "tag=ko", "target-tag=de"),
    )
    run_training(config)
    assert read_model(tmp_path / "run")[1].as_files() == read_model(imported)[1].as_files()
    run_training(dataclasses.replace(config, training=dataclasses.replace(config.training, max_steps=4)))
    run = tmp_path / "run"
    for words in (
        [
            "translate",
            "-m",
            run,
            "Dr. Lee met ▁ 漢字.",
            "--tag",
            "ko",
            "--target-tag",
            "de",
            "--alignment",
            "--output-format",
            "jsonl",
        ],
        ["translate", "-m", run, "Dr. Lee", "--tag", "ko", "--target-tag", "de", "--prefix", "Mr."],
        ["score", "-m", run, corpus[1], "tag=ko", "target-tag=de"],
        ["align", "-m", run, corpus[1], "tag=ko", "target-tag=de", "--text"],
        ["inspect", "-m", run, "Dr. Lee met him.", "--tag", "ko", "--target-tag", "de", "--json"],
        ["info", run],
        ["verify", run],
        ["average", run, "--last", "2", "--out", tmp_path / "mean"],
    ):
        ran = dragoman(*words)
        assert ran.code == 0, (words, ran.err)
    for change, message in (
        ({"vocabulary": 900}, "cannot learn new subwords or tags"),
        ({"train": (corpus[0], "tag=news")}, "cannot learn new subwords or tags"),
        ({"training": dataclasses.replace(config.training, bpe_dropout=0.1)}, "BPE-dropout needs tokenizers"),
    ):
        with pytest.raises(UsageError, match=message):
            run_training(dataclasses.replace(config, out=str(tmp_path / "other"), **change))


def test_folder_may_have_default_tags_and_an_origin(dragoman, languages: Path, pairs: list[Pair], tmp_path: Path):
    folder = shutil.copytree((languages / "best").resolve(), tmp_path / "model")
    (folder / DefaultTags.RECORD).write_text(DefaultTags(target="ko").as_json())
    (folder / Origin.RECORD).write_text(Origin("hub:someone/some-model", "cc-by-4.0").as_json())
    assert DefaultTags.load(folder) == DefaultTags()  # the control: what the manifest does not list does not count
    signed_again(folder)
    plain, found = (
        Translator.load(languages, SearchConfig(beam=1), NO_SAFEGUARDS),
        Translator.load(folder, SearchConfig(beam=1), NO_SAFEGUARDS),
    )
    text = pairs[0][0]
    assert found.translate(text).text == plain.translate(text, target_tags="ko").text != plain.translate(text).text
    assert found.translate(text, target_tags="en").text == plain.translate(text, target_tags="en").text
    file = write_tsv(tmp_path / "some.tsv", [(source, source) for source, _ in pairs[:10]])
    assert dragoman("score", "-m", folder, file).out == dragoman("score", "-m", languages, file, "target-tag=ko").out
    assert dragoman("score", "-m", folder, file).out != dragoman("score", "-m", languages, file).out  # the control
    drawn = {}
    for name, words in {
        "default": [folder, "--sample", file],
        "chosen": [languages, "--sample", file, "target-tag=ko"],
        "none": [languages, "--sample", file],
    }.items():
        assert dragoman("inspect", "-m", *words, "--view", "heads", "--out", f"{name}.svg").code == 0
        drawn[name] = re.findall(r"<!-- (\d\.\d\d) -->", (tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
    assert drawn["default"] == drawn["chosen"] != drawn["none"]  # the last one is the control
    shown = dragoman("info", folder).out
    assert "source -, target ko" in shown
    assert "hub:someone/some-model; licence: cc-by-4.0" in shown
    out = tmp_path / "tuned"
    words = [
        "--init-from",
        folder,
        "--train",
        file,
        "--dev",
        file,
        "--out",
        out,
        "--training.validate-every",
        2,
        "--quiet",
    ]
    for steps in (2, 4):  # the second time it is resumed
        assert dragoman("train", *words, "--training.max-steps", steps).code == 0
        assert (DefaultTags.load(out / "last"), Origin.load(out / "last")) == (
            DefaultTags.load(folder),
            Origin.load(folder),
        )
    train = Pairs.open(out / "data" / "train.arrow")
    assert train.rows([0], TARGET)[0][0] == found.tokenizers.target.tags["ko"]
    average([folder, out / "best"], tmp_path / "mean")
    assert DefaultTags.load(tmp_path / "mean").target == "ko"
    (folder / DefaultTags.RECORD).write_text('{"source": 5}')
    signed_again(folder)
    with pytest.raises(DragomanError, match=r"tags\.json: not a record of two tags"):
        Translator.load(folder)


def test_history_of_a_run_shows_the_words_behind_the_tag(languages: Path, pairs: list[Pair]):
    folder = (languages / "best").resolve()
    found = read_history("run", {1: folder}, pairs[190:], [""] * 10, 2, target_tags=["ko"] * 10)
    plain = read_history("run", {1: folder}, pairs[190:], [""] * 10, 2)
    assert found.target == plain.target == [*pairs[191][1].split(), "</s>"]
    (maps,), (others,) = ([snapshot.cross_attention for snapshot in one.snapshots] for one in (found, plain))
    assert maps.shape == others.shape
    assert found.snapshots[0].loss < plain.snapshots[0].loss  # with the tag it expects Korean


def test_corpora_with_other_target_tags_do_not_share_a_file(dragoman, pairs: list[Pair], tmp_path: Path):
    file = write_tsv(tmp_path / "some.tsv", pairs[:20])
    words = [file, "target-tag=ko", file, "target-tag=en", "--write-clean", tmp_path / "clean.tsv"]
    assert "different tags or weights" in dragoman("check", *words).err
    assert "are for dragoman train" in dragoman("split", file, "target-tag=ko", "--dev", 2, "--out", tmp_path).err


def test_corpus_spec_is_made_of_checked_tags():
    with pytest.raises(UsageError, match="a tag is 1 to 40"):
        CorpusSpec(("a.tsv",), target_tag="a b")
