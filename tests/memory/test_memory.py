"""Memories: pairs and states, what a search makes of them, faults, and several processes."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from dragoman import Translator
from dragoman.config import SearchConfig
from dragoman.data.batches import source_batch
from dragoman.decoding.forced import score
from dragoman.errors import DragomanError, UsageError
from dragoman.memory import ApprovedPair, Memory, create_memory
from dragoman.memory import index as index_module
from dragoman.memory import memory as memory_module
from dragoman.memory.index import Index
from dragoman.memory.pairs import PairLog
from dragoman.memory.phrases import Likeness, Phrases
from dragoman.memory.states import Reduction, read_pairs
from dragoman.memory.weighting import Weighting, fit_weighting
from dragoman.model_folder import read_model
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translation import EXACT, SWAPPED

pytest.importorskip("faiss")

TEXTS = ["one two three", "four five", "seven eight nine one", "two"]


@pytest.fixture(scope="module")
def folder(trained: Path) -> Path:
    return (trained / "best").resolve()


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make a memory with these pairs, and its states on the disk if `tidy`."""

    def fill(pairs: list[tuple[str, str]], name: str = "memory", *, tidy: bool = True) -> Path:
        out = tmp_path / name
        create_memory(out, folder)
        memory = Memory(out, folder, *read_model(folder))
        memory.add(ApprovedPair(source, target, f"made:{n}") for n, (source, target) in enumerate(pairs))
        if tidy:
            memory.tidy()
        return out

    return fill


@pytest.fixture
def opened(folder: Path) -> Callable[..., Translator]:
    return lambda memory, **changes: Translator.load(folder, SearchConfig(**changes), memory=memory, threads=1)


def outputs(translator: Translator, texts: list[str]) -> list[tuple[Any, ...]]:
    return [(each.text, each.score, each.tokens) for each in translator.translate(texts)]


def of_others(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return sources with the targets of others, so that a memory of them has something to say."""
    sources, targets = zip(*pairs[:40], strict=True)
    return list(zip(sources, targets[1:] + targets[:1], strict=True))


# What a search makes of it.


def test_empty_memory_changes_no_bit(make, opened, folder: Path):
    plain = Translator.load(folder, threads=1)
    assert outputs(opened(make([])), TEXTS) == outputs(plain, TEXTS)
    for settings in ({"beam": 1}, {"beam": 3, "n_best": 3}, {"temperature": 1.0}):
        plain = Translator.load(folder, SearchConfig(**settings), threads=1)
        assert outputs(opened(make([], f"{settings}"), **settings), TEXTS) == outputs(plain, TEXTS)


@pytest.mark.parametrize("tidy", [True, False])
def test_exact_match_comes_back_as_approved(make, opened, tidy: bool):
    translator = opened(
        make([("one two three", "something else!"), ("four five", "old"), ("four five", "new")], tidy=tidy)
    )
    first, second, other = translator.translate(["  one  two three ", "four five", "One two."])
    assert (first.text, first.flags) == ("something else!", (EXACT,))
    assert second.text == "new"  # the last one counts
    assert EXACT not in other.flags
    assert first.memory.similarity == 1.0
    assert 0.5 < other.memory.similarity < 1.0
    assert other.memory.pair.origin == "made:0"


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("Page 3 of {n}", "Seite 3 von {n}", "Page 12 of {count}", "Seite 12 von {count}"),
        ("3 of 4 files", "4 Dateien, davon 3", "10 of 12 files", "12 Dateien, davon 10"),
        ("Page 3", "Seite drei", "Page 4", None),
        ("3 and 3", "3 und 3", "3 and 4", None),  # which of them is the other one?
        ("Page 3", "Seite 3", "Pages 4", None),
        ("1.5 m", "1,5 m", "2.5 m", None),
    ],
)
def test_numbers_of_an_approved_pair_are_swapped_if_asked(
    make, opened, source: str, target: str, text: str, expected: str | None
):
    translator = opened(make([(source, target)]))
    assert SWAPPED not in translator.translate(text).flags
    translation = translator.replace(safeguards=Safeguards(swap_numbers=True)).translate(text)
    assert (translation.text == expected) == (SWAPPED in translation.flags) == (expected is not None)


def test_correction_counts_from_the_next_sentence_on(make, opened):
    translator = opened(make([]))
    text = "two five eight"
    before = translator.translate(text)
    translator.memory.add([ApprovedPair(text, "approved")])
    assert translator.translate(text).text == "approved" != before.text
    assert translator.memory.forget([0]) == 1
    after = translator.translate(text)
    assert (after.text, after.score) == (before.text, before.score)


@pytest.mark.parametrize("tidy", [True, False])
def test_near_pairs_change_the_probabilities_of_their_words(make, opened, folder: Path, tidy: bool):
    pairs = [("one two three four", "ein zwei drei vier")] * 3
    memory = Memory(make(pairs, tidy=tidy), folder, *read_model(folder))
    model, tokenizers = memory.model, memory.tokenizers
    sources, targets = tokenizers.encode_sides(["one two three four"], ["ein zwei drei vier"])
    (plain,), (mixed,) = score(model, sources, targets), score(model, sources, targets, memory=memory)
    assert mixed.total > plain.total + 1
    recall = memory.recall(source_batch(sources))
    (read,) = read_pairs(model, sources, targets)
    log_p = model.output(torch.from_numpy(read.vectors)).log_softmax(-1)
    mixed_log_p = recall.mix(log_p.clone(), torch.from_numpy(read.vectors), torch.zeros(len(log_p), dtype=torch.int64))
    assert not torch.equal(mixed_log_p, log_p)
    assert torch.allclose(mixed_log_p.exp().sum(1), torch.ones(len(log_p)))


def test_source_that_the_memory_does_not_know_keeps_its_bits(make, opened, folder: Path, pairs):
    """Though its states may be as near as others: the targets are those of texts that the model knows."""
    memory, plain = make([(target, target) for _, target in pairs[:40]]), Translator.load(folder, threads=1)
    texts = [source for source, _ in pairs[100:120]]
    assert outputs(opened(memory), texts) == outputs(plain, texts)
    familiar = [target for _, target in pairs[100:120]]
    assert outputs(opened(memory), familiar) != outputs(plain, familiar)


@pytest.mark.parametrize(
    "settings", [{"beam": 1}, {"beam": 4}, {"beam": 4, "n_best": 4}, {"temperature": 1.0}], ids=str
)
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_text_alone_is_that_of_its_batch(make, folder: Path, pairs, settings: dict[str, Any], compute_type: str):
    memory = make(of_others(pairs))
    search = SearchConfig(**settings)
    translator = Translator.load(folder, search, memory=memory, threads=1, compute_type=compute_type)
    plain = Translator.load(folder, search, threads=1, compute_type=compute_type)
    texts = [source for source, _ in pairs[100:120]]
    together = outputs(translator, texts)
    assert together == [outputs(translator, [text])[0] for text in texts]
    assert together != outputs(plain, texts)


def test_native_and_pytorch_find_the_same_with_a_memory(make, folder: Path, pairs, monkeypatch: pytest.MonkeyPatch):
    memory = make(of_others(pairs))
    texts = [source for source, _ in pairs[100:120]]
    native = [each.text for each in Translator.load(folder, memory=memory, threads=1).translate(texts)]
    monkeypatch.setattr("dragoman.inference.choice.find_library", lambda: "switched off")
    assert [each.text for each in Translator.load(folder, memory=memory, threads=1).translate(texts)] == native


def test_words_name_the_pairs_that_speak_for_them(make, opened):
    translator = opened(make([("seven eight nine one", "sieben acht neun eins"), ("two", "zwei")] * 2))
    (translation,) = translator.translate(["seven eight nine two"])
    (origins,) = translator.origins([translation])
    assert len(origins) == len(translation.text.split())
    for shares in origins:
        assert sum(share.probability for share in shares.values()) <= 1 + 1e-9
        assert list(shares.values()) == sorted(shares.values(), key=lambda share: -share.neighbours)
    with pytest.raises(UsageError, match="memory"):
        opened(None).origins([translation])


def test_ensemble_has_no_memory(make, folder: Path):
    with pytest.raises(UsageError, match="ensemble"):
        Translator.load(folder, ensemble=[folder], memory=make([]))


# States and index.


def test_index_of_cells_finds_most_of_what_comparing_all_finds(monkeypatch: pytest.MonkeyPatch):
    keys = np.random.default_rng(1).normal(size=(20_000, 16)).astype(np.float32)
    index, order = Index.from_keys(keys)
    assert len(index.centres) > 1
    queries = keys[:300]
    distances, numbers = index.search(queries, 5)
    assert (order[numbers[:, 0]] == np.arange(300)).mean() > 0.95
    assert (np.diff(distances) >= 0).all()
    everything = ((queries[:, None] - keys[None]) ** 2).sum(2)
    nearest = np.argsort(everything, 1)[:, :5]
    hits = [len(set(row) & set(order[mine])) for row, mine in zip(nearest, numbers, strict=True)]
    assert abs(np.mean(hits) / 5 - index.measure_recall(5)) < 0.15
    monkeypatch.setattr(index_module, "EXACT", 30_000)
    whole, order = Index.from_keys(keys)
    assert whole.measure_recall() == 1.0
    assert (np.sort(order[whole.search(queries, 5)[1]], 1) == np.sort(nearest, 1)).mean() > 0.99


def test_search_of_a_query_does_not_depend_on_the_others():
    keys = np.random.default_rng(1).normal(size=(20_000, 64)).astype(np.float32)
    index, _ = Index.from_keys(keys)
    reduction = Reduction.from_vectors(np.random.default_rng(2).normal(size=(500, 96)).astype(np.float32), 64)
    vectors = np.random.default_rng(3).normal(size=(100, 96)).astype(np.float32)
    together = index.search(reduction(vectors), 16)
    for row in range(100):
        alone = index.search(reduction(vectors[row : row + 1]), 16)
        assert all((a[0] == b[row]).all() for a, b in zip(alone, together, strict=True))


def test_forced_decoding_looks_at_the_source_of_each_pair(make, folder: Path, pairs):
    """In one batch, each scores as alone, and foreign sources as without a memory."""
    memory = Memory(make(of_others(pairs)), folder, *read_model(folder))
    mixed = [*pairs[100:103], *((target, target) for _, target in pairs[100:103])]
    sources, targets = memory.tokenizers.encode_sides(*zip(*mixed, strict=True))
    together, plain = score(memory.model, sources, targets, memory=memory), score(memory.model, sources, targets)
    alone = [score(memory.model, [s], [t], memory=memory)[0] for s, t in zip(sources, targets, strict=True)]
    assert [each.total for each in together] == pytest.approx([each.total for each in alone], rel=1e-5)
    assert together[3:] == plain[3:]
    assert all(one != other for one, other in zip(together[:3], plain[:3], strict=True))


def test_fit_trusts_neighbours_that_are_right_and_near():
    rng = np.random.default_rng(1)
    distances = np.sort(rng.uniform(0, 4, (2_000, 8)), 1).astype(np.float32)
    right = rng.integers(0, 50, 2_000)
    tokens = np.where(distances < 1, right[:, None], rng.integers(50, 100, (2_000, 8)))
    shared, known = np.zeros((2_000, 8), np.float32), rng.uniform(0.5, 1, 2_000)
    fitted = fit_weighting(np.full(2_000, -5.0, np.float32), right, tokens, distances, shared, known)
    near, far = fitted.memory(np.array([0.1, 3.9], np.float32), np.array([0.9, 0.2]), np.ones(2))
    assert near > 0.5 > 0.1 > far
    assert fitted.memory(np.array([0.1], np.float32), np.array([0.9]), np.array([0.4])) == 0.0  # a foreign source
    others = rng.integers(50, 100, (2_000, 8))
    useless = fit_weighting(np.full(2_000, -0.01, np.float32), right, others, distances, shared, known)
    assert useless.memory(np.array([0.1], np.float32), np.array([0.5]), np.ones(1))[0] < 0.05


def test_neighbour_counts_more_if_its_source_is_like():
    distances, shared = np.ones((1, 3), np.float32), np.array([[0.1, 0.5, 0.1]], np.float32)
    first, like, last = Weighting().neighbours(distances, shared)[0].tolist()
    assert like > 10 * first == 10 * last
    assert first + like + last == pytest.approx(1)
    assert Weighting().neighbours(distances, 0 * shared)[0].tolist() == pytest.approx([1 / 3] * 3)


def test_phrases_tell_which_pairs_share_them():
    sources = [[5, 6, 7], [6, 7, 8], [9], []]
    phrases = Phrases.from_sources(sources, [0, 1, 2, 5])
    likeness = Likeness.measure([*sources, [10, 11], [6, 7, 5]], [phrases], 7)
    assert np.allclose(likeness.known[:4], 1)
    assert [likeness.shared[row, pair] for row, pair in enumerate((0, 1, 2, 5))] == pytest.approx([1] * 4)
    assert likeness.known[4] == 0 == likeness.shared[4].max()
    first, second = likeness.shared[5, :2].tolist()
    assert 0 < first < second < 1
    assert second == pytest.approx(likeness.known[5])
    # Two parts are as one.
    parts = [Phrases.from_sources(sources[:2], [0, 1]), Phrases.from_sources(sources[2:], [2, 5])]
    again = Likeness.measure([*sources, [10, 11], [6, 7, 5]], parts, 7)
    assert np.allclose(again.shared, likeness.shared)
    assert np.allclose(again.known, likeness.known)
    assert Likeness.measure([[1]], [Phrases.from_sources([], [])], 0).known == [0]


def test_memory_leaves_far_states_alone():
    weighting = Weighting(scale=1.0)
    near, far = weighting.memory(np.array([0.0, 100.0], np.float32), np.ones(2), np.ones(2))
    assert near > 0.5 > far == 0.0


def test_tail_and_tidied_states_say_the_same(make, folder: Path, pairs):
    chosen = pairs[:60]
    tail, tidied = (Memory(make(chosen, f"m{tidy}", tidy=tidy), folder, *read_model(folder)) for tidy in (False, True))
    (read,) = read_pairs(tail.model, *tail.tokenizers.encode_sides(*zip(*pairs[100:101], strict=True)))
    sources = tail.tokenizers.source.encode_sources([pairs[100][0]])
    recalls = [memory.recollection().recall(sources) for memory in (tail, tidied)]
    ours, theirs = (recall.recollection.neighbours(read.vectors, read.pairs, recall.likeness) for recall in recalls)
    assert np.allclose(ours.distances, theirs.distances, rtol=1e-2, atol=1e-3)
    assert (recalls[0].likeness.shared == recalls[1].likeness.shared).all()
    assert tail.state_count == tidied.state_count


def test_large_memory_has_small_keys_and_a_fit(make, folder: Path, pairs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_module, "REDUCED_FROM", 200)
    monkeypatch.setattr(memory_module, "KEY_SIZE", 8)
    monkeypatch.setattr("dragoman.memory.base.FEWEST_FITTED", 50)
    chance = Random(1)
    shuffled = [(" ".join(chance.sample(source.split(), len(source.split()))), target) for source, target in pairs]
    memory = Memory(make(shuffled), folder, *read_model(folder))
    assert memory.weighting is not None
    # Those that are held out are not known whole, as they would be if they counted.
    assert memory.weighting.foreign < memory.weighting.familiar < 0.999
    assert memory.recollection().reduction.components.shape[0] == 8


def test_padded_sources_are_read_like_their_ids(make, folder: Path, pairs):
    memory = Memory(make(pairs[:40]), folder, *read_model(folder))
    ids = memory.tokenizers.source.encode_sources([source for source, _ in pairs[30:50]])
    padded, plain = memory.recall(source_batch(ids)).likeness, memory.recollection().recall(ids).likeness
    assert (padded.known == plain.known).all()
    assert (padded.shared == plain.shared).all()


# Faults.


def test_foreign_and_damaged_folders_are_named(make, folder: Path, tmp_path: Path, pairs):
    model = read_model(folder)
    with pytest.raises(DragomanError, match="no memory"):
        Memory(tmp_path / "none", folder, *model)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(DragomanError, match="is no memory"):
        create_memory(tmp_path / "other", folder)
    out = make(pairs[:20])
    with pytest.raises(DragomanError, match="already"):
        create_memory(out, folder)
    record = json.loads((out / "memory.json").read_text())
    for changed, message in (({"model": "0" * 64}, "another model"), ({"format": 99}, "update dragoman")):
        other = shutil.copytree(out, tmp_path / f"copy{message[:5]}")
        (other / "memory.json").write_text(json.dumps({**record, **changed}))
        with pytest.raises(DragomanError, match=message):
            Memory(other, folder, *model)
    for name in ("keys.npy", "tokens.npy", "states.json", "manifest.json"):
        other = shutil.copytree(out, tmp_path / name)
        (file,) = other.glob(f"states-*/{name}")
        file.write_bytes(file.read_bytes()[:-3] + b"xyz")
        with pytest.raises(DragomanError, match="damaged"):
            Memory(other, folder, *model)
    with (out / "pairs.jsonl").open("ab") as file:
        file.write(b'{"source": 3}\n')
    with pytest.raises(DragomanError, match="damaged"):
        Memory(out, folder, *model)


def test_states_that_point_elsewhere_are_refused(make, folder: Path, pairs):
    """A stranger can write a manifest, too."""
    from dragoman.storage.writing import fingerprint

    out = make(pairs[:20])
    (states,) = out.glob("states-*")
    for name, wrong in (
        ("tokens", 10**6), ("tokens", -1), ("pairs", 10**6), ("starts", -5),
        ("phrase_pairs", 10**6), ("phrase_pairs", -1), ("phrase_starts", -5),
    ):  # fmt: skip
        copy = shutil.copytree(out, out.with_name(f"{name}{wrong}"))
        file = copy / states.name / f"{name}.npy"
        array = np.load(file)
        array[0] = wrong
        np.save(file, array)
        manifest = json.loads((copy / states.name / "manifest.json").read_text())
        manifest[file.name] = fingerprint(file)
        (copy / states.name / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(DragomanError, match="damaged"):
            Memory(copy, folder, *read_model(folder))


def test_half_a_line_is_cut_off_by_the_next_writer(make, folder: Path):
    out = make([("one", "eins")])
    with (out / "pairs.jsonl").open("ab") as file:
        file.write(b'{"source": "two", "tar')
    memory = Memory(out, folder, *read_model(folder))
    assert memory.pair_count == 1
    memory.add([ApprovedPair("three", "drei")])
    assert [pair.source for pair in Memory(out, folder, *read_model(folder)).pairs if pair] == ["one", "three"]


def test_full_disk_leaves_the_memory_as_it_was(make, folder: Path, monkeypatch: pytest.MonkeyPatch):
    memory = Memory(make([("one", "eins")]), folder, *read_model(folder))
    before = (memory.folder / "pairs.jsonl").read_bytes()
    written = os.pwrite

    def full(descriptor: int, data: bytes, place: int) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return written(descriptor, data[: len(data) // 2], place)

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="No space"):
        memory.add([ApprovedPair("two two two", "zwei zwei zwei")])
    monkeypatch.undo()
    assert (memory.folder / "pairs.jsonl").read_bytes() == before
    assert memory.pair_count == 1


def test_forgotten_text_is_gone_from_the_disk(make, folder: Path):
    out = make([("one", "secret eins"), ("two", "zwei")])
    reader, writer = (Memory(out, folder, *read_model(folder)) for _ in range(2))
    writer.forget([0])
    assert b"secret" not in (out / "pairs.jsonl").read_bytes()
    for memory in (reader, writer, Memory(out, folder, *read_model(folder))):
        assert memory.exact("one") is None
        assert memory.exact("two").target == "zwei"
        assert memory.recollection().forgotten[0]


@pytest.mark.parametrize("tidy", [True, False])
def test_states_of_a_forgotten_pair_count_no_more(make, folder: Path, pairs, tidy: bool):
    """Its states are still in the index: until the memory is tidied, no neighbour may be one of them."""
    memory = Memory(make(pairs[:20], tidy=tidy), folder, *read_model(folder))
    sources, targets = memory.tokenizers.encode_sides(*zip(pairs[3], strict=True))
    assert any(3 in shares for shares in memory.origins(sources, targets)[0])
    memory.forget([3])
    assert not any(3 in shares for shares in memory.origins(sources, targets)[0])


def test_forgetting_the_last_of_several_brings_back_the_one_before(make, folder: Path):
    memory = Memory(make([("one", "eins"), ("one", "ein")]), folder, *read_model(folder))
    memory.forget([1])
    assert memory.exact("one").target == "eins"
    memory.forget([0])
    assert memory.exact("one") is None


def test_states_that_another_process_replaces_are_read_again(make, folder: Path, monkeypatch: pytest.MonkeyPatch):
    out = make([("one", "eins")])
    (states,) = out.glob("states-*")
    listed = [[out / "states-000000"], [states]]  # the first one is gone by now
    monkeypatch.setattr(Memory, "_states_folders", lambda self: listed.pop(0))
    assert Memory(out, folder, *read_model(folder)).state_count > 0


def test_pair_without_a_side_or_with_an_unknown_tag_is_refused(make, folder: Path):
    memory = Memory(make([]), folder, *read_model(folder))
    for pair in (ApprovedPair("one", " "), ApprovedPair("", "eins"), ApprovedPair("one", "eins", tag="<xx>")):
        with pytest.raises(DragomanError):
            memory.add([pair])
    assert memory.pair_count == 0


def test_other_process_sees_a_pair_at_once(make, folder: Path):
    out = make([("one", "eins")])
    reader = Memory(out, folder, *read_model(folder))
    code = (
        "import sys; from pathlib import Path; from dragoman.memory import ApprovedPair, Memory\n"
        "from dragoman.model_folder import read_model\nout, model = map(Path, sys.argv[1:])\n"
        "Memory(out, model, *read_model(model)).add([ApprovedPair('two', 'zwei')])"
    )
    subprocess.run([sys.executable, "-c", code, str(out), str(folder)], check=True)
    assert reader.exact("two").target == "zwei"


def write_for_ever(path: str, number: int) -> None:
    log = PairLog(Path(path))
    for count in range(10**9):
        log.append([ApprovedPair(f"{number} {count}", "x" * 500)])
        os.write(int(os.environ["ANSWERS"]), b"%d %d\n" % (number, count))


def test_killed_writers_lose_nothing_that_was_answered(make, monkeypatch: pytest.MonkeyPatch):
    path = make([]) / "pairs.jsonl"
    answers, end = os.pipe()
    monkeypatch.setenv("ANSWERS", str(end))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_for_ever, args=(str(path), number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        time.sleep(0.3)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    os.close(end)
    with os.fdopen(answers, "rb") as file:
        answered = {line.decode().strip() for line in file if line.endswith(b"\n")}
    log = PairLog(path)
    log.append([ApprovedPair("last", "one")])
    log.refresh()
    kept = [pair.source for pair in log.pairs]
    assert len(answered) > 10
    assert answered <= set(kept)
    assert len(kept) == len(set(kept)) <= len(answered) + 4
    assert kept[-1] == "last"


def test_threads_that_add_and_translate_each_see_their_own_pair(make, opened):
    translator = opened(make([]))
    wrong: list[str] = []

    def correct(number: int) -> None:
        for count in range(5):
            text = f"one two {number} {count}"
            translator.memory.add([ApprovedPair(text, f"approved {number} {count}")])
            if translator.translate(text).text != f"approved {number} {count}":
                wrong.append(text)

    threads = [threading.Thread(target=correct, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert translator.memory.pair_count == 40


# The command.


def test_remember_makes_extends_lists_and_forgets(dragoman, trained: Path, tmp_path: Path):
    (tmp_path / "a.tsv").write_text("one two\teins zwei\nthree\tdrei\n")
    (tmp_path / "b.tsv").write_text("four\tvier\n")
    out = tmp_path / "memory"
    made = dragoman("remember", "-m", trained, tmp_path / "a.tsv", "--out", out, "--by", "Li")
    assert (made.code, made.out.strip()) == (0, str(out))
    assert "2 pairs" in made.err
    again = dragoman("remember", "-m", trained, tmp_path / "a.tsv", "--out", out)
    assert again.code == 1
    assert "--add" in again.err
    assert dragoman("remember", "-m", trained, tmp_path / "b.tsv", "--out", out, "--add").code == 0
    listed = dragoman("remember", "-m", trained, "--out", out, "--list").out.splitlines()
    assert [row.split("\t")[:4] for row in listed] == [
        ["0", "one two", "eins zwei", f"{tmp_path}/a.tsv:1"],
        ["1", "three", "drei", f"{tmp_path}/a.tsv:2"],
        ["2", "four", "vier", f"{tmp_path}/b.tsv:1"],
    ]
    assert dragoman("remember", "-m", trained, "--out", out, "--forget", "9").code == 2
    assert dragoman("remember", "-m", trained, "--out", out, "--forget", tmp_path / "a.tsv").code == 0
    (left,) = dragoman("remember", "-m", trained, "--out", out, "--list", "--json").out.splitlines()
    assert json.loads(left)["source"] == "four"
    (pairs,) = out.glob("states-*/pairs.npy")
    assert set(np.load(pairs)) == {2}
    assert dragoman("remember", "-m", trained, out, "--out", tmp_path / "other").code == 0  # as for another model
    (moved,) = dragoman("remember", "-m", trained, "--out", tmp_path / "other", "--list", "--json").out.splitlines()
    assert json.loads(moved) == {**json.loads(left), "number": 0}
    ran = dragoman("translate", "-m", trained, "--memory", out, "--output-format", "jsonl", "--origins", "four", "one")
    exact, other = map(json.loads, ran.out.splitlines())
    assert (exact["translation"], exact["flags"], exact["memory"]["number"]) == ("vier", [EXACT], 2)
    assert "memory" not in other
    assert "approved before: 1" in ran.err
    assert "still flagged" not in ran.err or EXACT not in ran.err


def test_remember_training_reads_the_corpora_of_the_run(dragoman, trained: Path, tmp_path: Path):
    out = tmp_path / "memory"
    assert dragoman("remember", "-m", trained, "--training", "--out", out).code == 0
    listed = dragoman("remember", "-m", trained, "--out", out, "--list").out.splitlines()
    assert len(listed) > 100
    copy = shutil.copytree((trained / "best").resolve(), tmp_path / "model")
    refused = dragoman("remember", "-m", copy, "--training", "--out", tmp_path / "other")
    assert refused.code == 2
    assert "run folder" in refused.err


def test_evaluate_and_score_take_a_memory(dragoman, trained: Path, tmp_path: Path, pairs):
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b} x\n" for a, b in pairs[:20]))
    out = tmp_path / "memory"
    assert dragoman("remember", "-m", trained, tmp_path / "test.tsv", "--out", out).code == 0
    ran = dragoman("evaluate", "-m", trained, tmp_path / "test.tsv", "--memory", out, "--json")
    assert json.loads(ran.out)["bleu"]["value"] > 99
    plain, mixed = (
        dragoman("score", "-m", trained, tmp_path / "test.tsv", *more).out.split() for more in ([], ["--memory", out])
    )
    assert sum(map(float, mixed[::2])) > sum(map(float, plain[::2]))
