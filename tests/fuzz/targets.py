"""What is fuzzed: one function for each reader of strangers' bytes, and valid samples to start from.

A target takes any bytes. It lets through every exception that a user would see as a traceback, and it checks what the
reader promises: a document comes back byte for byte, and no side of a pair has a line feed.
"""

import atexit
import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import test_documents
import torch
from conftest import TINY, signed_again, tiny_transformer
from foreign import SOURCE_SPM, TARGET_SPM, npz_folder, pieces_of, word_list, write_words
from hostile import CLEAN, CODECS, HOSTILE, SOURCE, TARGET, WRITERS, packed, text, tsv
from sentencepiece import SentencePieceProcessor
from subwords import trained_spm
from test_spm import HOSTILE as HOSTILE_MODELS

from dragoman.config import RecurrentConfig, RunConfig, as_dict, read_toml, to_toml, update
from dragoman.data.corpus import Problem, read_rows
from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.spec import OF_PAIRS, CorpusSpec
from dragoman.data.spm import parse_spm, read_spm
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.documents import read_document
from dragoman.documents.document import has_letter
from dragoman.errors import DragomanError
from dragoman.files import MANIFEST, read_listed
from dragoman.interop.checker import Checker
from dragoman.interop.huggingface import read_hugging_face
from dragoman.interop.marian import read_marian
from dragoman.interop.weights import build_model
from dragoman.model import build
from dragoman.model_folder import read_model, verify_files
from dragoman.text.glossary import Glossary, check_terms
from dragoman.training.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint
from fuzz.mutations import Mutator, mutate_header, mutate_json, mutate_packed, mutate_zip

LARGEST_SEED = 20_000  # bytes
ANSWER = 'A </b> "B" & <C> `d` \\ | %s\n--> '  # a translation full of markup
PAIRS = CLEAN[:3]


@dataclass(frozen=True)
class Target:
    """A reader, samples that it reads, words of its format that are in none of them, and how to change a sample."""

    read: Callable[[bytes], None]
    seeds: Sequence[bytes]
    words: Sequence[str] = ()
    mutate: Mutator | None = None  # by default any bytes change

    @property
    def dictionary(self) -> set[str]:
        """The words and marks of the samples."""
        found = {part for seed in self.seeds for part in re.findall(r"[^\s\w]+|\w+", seed.decode("utf-8", "replace"))}
        return {*self.words, *(part for part in found if len(part) < 20 and part.isprintable())}


# Files.


@cache
def scratch() -> Path:
    """Return a folder for files that lie in memory where the system has such a place."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def written(data: bytes, name: str) -> Path:
    """Write a file of this name and return its path."""
    path = scratch() / name
    path.unlink(missing_ok=True)  # not under the feet of one that is mapped
    path.write_bytes(data)
    return path


@cache
def checkpoint() -> Path:
    """Return the folder of a checkpoint, whose files are changed one at a time."""
    tokenizer = Tokenizer.train(text for pair in CLEAN for text in pair)
    model = build(TINY, len(tokenizer))
    tokenizers, state = Tokenizers.of(tokenizer), {"moment": torch.zeros(2)}
    save_checkpoint(scratch() / "run", model, tokenizers, state, TrainingProgress(), "# card\n", 1)
    return (scratch() / "run" / "last").resolve()


def with_file(data: bytes, name: str) -> Path:
    """Return a checkpoint folder with another file of this name, signed as a stranger would do it."""
    folder = scratch() / f"with-{name}"
    if not folder.exists():
        shutil.copytree(checkpoint(), folder)
    (folder / name).write_bytes(data)
    if name != MANIFEST:
        signed_again(folder)
    return folder


# Corpora.

CORPUS_WORDS = {
    ".tmx": ["<![CDATA[", "]]>", "<bpt>", "&#10;", "&amp;", 'encoding="utf-16"'],
    ".po": ["#~|", "#|", "#.", "#:", "msgctxt", "msgid_plural", "msgstr[1]"],
}


def check_rows(spec: CorpusSpec) -> None:
    """Read all rows; what cannot be one is only counted."""
    problems: list[Problem] = []
    last = 0
    with contextlib.suppress(DragomanError):
        for row in read_rows(spec, problems.append):
            assert "\n" not in row.source
            assert "\n" not in row.target
            (row.source + row.target).encode()
            assert row.number >= last
            last = row.number
    assert all(str(problem) or problem.kind for problem in problems)


def corpus(suffix: str, data: bytes) -> None:
    columns = ("en", "ko") if suffix == ".tmx" and b"fr" in data else None
    check_rows(CorpusSpec((str(written(data, f"a{suffix}")),), columns=columns))


def two_files(data: bytes) -> None:
    source, _, target = data.partition(b"====")
    check_rows(CorpusSpec((str(written(source, "a.en")), str(written(target, "a.ko")))))


def corpus_target(suffix: str, mutate: Mutator | None = None) -> Target:
    kind, _, codec = suffix[1:].partition(".")
    hostile = [data for each in HOSTILE for name, data in each.files.items() if name == f"a{suffix}"]
    seeds = [packed(WRITERS[kind](PAIRS), CODECS[codec and f".{codec}"]), *hostile]
    return Target(partial(corpus, suffix), small(seeds), CORPUS_WORDS.get(suffix, []), mutate)


def small(seeds: Sequence[bytes]) -> list[bytes]:
    return sorted({seed for seed in seeds if len(seed) <= LARGEST_SEED}, key=len)


# Documents.


def document(suffix: str, data: bytes) -> None:
    """The bytes come back; texts are what they should be; any translations can be filled in, and read again."""
    keys = ("1",) if suffix == ".csv" else ()
    found = read_document(data, suffix, keys)
    assert found.fill(found.texts) == data
    assert all(text == text.strip() and has_letter(text) for text in found.texts)
    for translate in (str.swapcase, lambda text: ANSWER, lambda text: f"{text[::-1]}{ANSWER}"):
        with contextlib.suppress(DragomanError):  # its encoding cannot write the translation
            filled = found.fill([translate(text) for text in found.texts])
            again = read_document(filled, suffix, keys)
            assert again.fill(again.texts) == filled


def document_target(*suffixes: str) -> Target:
    suffix = suffixes[0]
    fixtures = [test_documents.FIXTURES[each] for each in suffixes]
    lines = [line for fixture in fixtures for line in fixture.splitlines(keepends=True)]
    long = [frame.format(unit * 9) for each, frame, unit in test_documents.LONG if each == suffix]
    deep = [unit * 9 for unit in test_documents.DEEP.get(suffix, [])]
    seeds = [text.encode() for text in (*fixtures, *lines, *long, *deep)]
    utf16 = [fixture.encode("utf-16") for fixture in fixtures]
    mutate = mutate_json if suffix == ".json" else None
    return Target(partial(document, suffix), small([*seeds, *utf16]), mutate=mutate)


# Settings and models.


def toml(data: bytes) -> None:
    """What is read can be written and is then read the same."""
    with contextlib.suppress(DragomanError):
        config = update(RunConfig(), read_toml(written(data, "settings.toml")), "settings.toml")
        again = update(RunConfig(), read_toml(written(to_toml(config).encode(), "again.toml")), "again.toml")
        assert again == config


def model(name: str, data: bytes) -> None:
    """Read a model with another file in its folder."""
    with contextlib.suppress(DragomanError):
        read_model(with_file(data, name))


def manifest(data: bytes) -> None:
    folder = with_file(data, MANIFEST)
    with contextlib.suppress(DragomanError):
        read_listed(folder / "state.json")
        verify_files(folder)


def state(data: bytes) -> None:
    """What is read of a checkpoint can be saved again."""
    with contextlib.suppress(DragomanError):
        progress = load_checkpoint(with_file(data, "state.json")).progress
        assert TrainingProgress(**json.loads(json.dumps(asdict(progress)))) is not None
        f"{progress.step:08d} {progress.best_score:.2f} {progress.best_loss:.2f} {progress.seconds:.0f}"


def tokenizer(data: bytes) -> None:
    with contextlib.suppress(DragomanError):
        found = Tokenizer.load(written(data, "tokenizer.json"))
        for each in (SOURCE, TARGET, "\0 e\u0301 😀"):
            found.decode(found.encode(each))


def sentencepiece_model(data: bytes) -> None:
    """What is read can be written and read again; the library loads it and cuts any line."""
    with contextlib.suppress(DragomanError):
        found = read_spm(written(data, "source.spm"))
        anew = found.to_bytes()
        assert parse_spm(anew).to_bytes() == anew
        SentencePieceProcessor(model_proto=anew).encode([SOURCE, TARGET, "\0 e\u0301 ①②", ""])


def foreign_file(folder: Callable[[], Path], name: str, data: bytes) -> None:
    """Read a model of others with another file in its folder; one that is let through can be built."""
    place = folder()
    (place / name).unlink(missing_ok=True)  # not under the feet of one that is mapped
    (place / name).write_bytes(data)
    with contextlib.suppress(DragomanError):
        if (place / "config.json").exists():
            read_hugging_face(place, Checker(place), False, scratch())
        else:
            build_model(read_marian(place, Checker(place)).original)


@cache
def marian() -> Path:
    """Return a folder of Marian with a SentencePiece model as vocabulary, made as small as can be."""
    return marian_of("marian", spm=True)


@cache
def marian_with_lists() -> Path:
    """Return a folder of Marian with a list of words for each side."""
    return marian_of("lists", spm=False)


def marian_of(name: str, *, spm: bool) -> Path:
    small = {"dim_emb": 4, "transformer_heads": 2, "transformer_dim_ffn": 4, "enc_depth": 1, "dec_depth": 1}
    npz_folder(scratch() / name, joint=spm, spm=spm, tied="all" if spm else "target", **small)
    return scratch() / name


@cache
def hugging_face() -> Path:
    """Return a folder of MarianMT whose weights are missing, which is said last."""
    folder = scratch() / "marianmt"
    folder.mkdir()
    words = word_list(SOURCE_SPM, TARGET_SPM)
    config = {"model_type": "marian", "vocab_size": len(words), "pad_token_id": words["<pad>"], "d_model": 4}
    config |= {"decoder_start_token_id": words["<pad>"], "eos_token_id": 0, "activation_function": "swish"}
    config |= {f"{side}_layers": 1 for side in ("encoder", "decoder")}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text('{"separate_vocabs": false}')
    (folder / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    write_words(folder / "vocab.json", words)
    for name, spm in (("source.spm", SOURCE_SPM), ("target.spm", TARGET_SPM)):
        (folder / name).write_bytes(spm)
    return folder


@cache
def nllb() -> Path:
    """Return a folder of NLLB whose weights are missing."""
    folder = scratch() / "nllb"
    folder.mkdir()
    spm = trained_spm("bpe", vocabulary=120)
    config = {"model_type": "m2m_100", "vocab_size": len(pieces_of(spm)) + 7, "d_model": 16}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    (folder / "special_tokens_map.json").write_text('{"additional_special_tokens": ["eng_Latn", "kor_Hang"]}')
    (folder / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    return folder


def foreign_target(folder: Callable[[], Path], name: str, mutate: Mutator | None = None) -> Target:
    words = ["__de__", "eng_Latn", '"content"', '"id"', "? ", ": ", "</s>", "<unk>"]
    return Target(partial(foreign_file, folder, name), [(folder() / name).read_bytes()], words, mutate)


ADDED = {"added_tokens_decoder": {"5": {"content": "__de__"}}, "extra_special_tokens": [{"content": "__ko__"}]}


def arrow(data: bytes) -> None:
    with contextlib.suppress(DragomanError):
        found = Pairs.open(written(data, "pairs.arrow"))
        for index in range(min(len(found), 3)):
            found.ids(index)
            found.location(index)


def glossary(data: bytes) -> None:
    with contextlib.suppress(DragomanError):
        found = Glossary.read(written(data, "glossary.tsv"))
        text = data.decode("utf-8", "replace")
        check_terms(found.find(text), text.swapcase())


def arrow_seed() -> bytes:
    spec = CorpusSpec((str(written(tsv(PAIRS), "a.tsv")),), tag="")
    tokenise((spec,), Tokenizers.of(Tokenizer.load(checkpoint() / "tokenizer.json")), 100, scratch() / "seed.arrow")
    return (scratch() / "seed.arrow").read_bytes()


def sentencepiece_seeds() -> list[bytes]:
    plain = [trained_spm(normalisation="identity"), trained_spm("bpe", "identity", byte_fallback=True, vocabulary=420)]
    return plain + small([data for data, _ in HOSTILE_MODELS.values()])


def descriptions() -> list[bytes]:
    models = [TINY, tiny_transformer(positions="rotary"), RecurrentConfig(cell="gru", d_model=16)]
    words = json.loads(part("config.json"))["vocabulary"]
    return [json.dumps({**as_dict(model), "vocabulary": words, "pad": 0}).encode() for model in models]


def part(name: str) -> bytes:
    return (checkpoint() / name).read_bytes()


def settings() -> list[bytes]:
    run = RunConfig(train=("a.tsv", "weight=2"), dev=("b.tsv",), out="runs/x", model=TINY)
    return [to_toml(run).encode(), b'[model]\nkind = "recurrent"\ncell = "gru"\n', b"a.b = 1979-05-27T07:32:00Z\n"]


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    sources, targets = (text(side) for side in zip(*PAIRS, strict=True))
    glossary_lines = "# a comment\ncat\tKatze|Kater\nUSA\tUSA\texact\n강아지\tdog\tany\n".encode()
    progress = json.dumps(asdict(TrainingProgress(scores=["BLEU 1"], machine={"threads": 1}))).encode()
    return {
        **{f"corpus{suffix}": corpus_target(suffix) for suffix in OF_PAIRS},
        "corpus.tsv.gz": corpus_target(".tsv.gz", mutate=partial(mutate_packed, codec="gzip")),
        "corpus.tsv.zst": corpus_target(".tsv.zst", mutate=partial(mutate_packed, codec="zstd")),
        "corpus.two-files": Target(two_files, [sources + b"====" + targets]),
        "document.txt": document_target(".txt"),
        "document.md": document_target(".md"),
        "document.html": document_target(".html"),
        "document.srt": document_target(".srt"),
        "document.vtt": document_target(".vtt"),
        "document.po": document_target(".po"),
        "document.xliff": document_target(".xlf", ".xliff"),
        "document.json": document_target(".json"),
        "document.csv": document_target(".csv"),
        "glossary": Target(glossary, [glossary_lines]),
        "settings": Target(toml, settings()),
        "config": Target(partial(model, "config.json"), descriptions(), mutate=mutate_json),
        "safetensors": Target(partial(model, "model.safetensors"), [part("model.safetensors")], mutate=mutate_header),
        "tokenizer": Target(tokenizer, [part("tokenizer.json")], mutate=mutate_json),
        "spm": Target(sentencepiece_model, sentencepiece_seeds()),
        "import.npz": foreign_target(marian, "model.npz", mutate_zip),
        "import.decoder": foreign_target(marian, "decoder.yml"),
        "import.list.yml": foreign_target(marian_with_lists, "opus.src.vocab.yml"),
        "import.list.json": foreign_target(hugging_face, "vocab.json", mutate_json),
        "import.config": foreign_target(hugging_face, "config.json", mutate_json),
        "import.config.nllb": foreign_target(nllb, "config.json", mutate_json),
        "import.tokens": foreign_target(nllb, "special_tokens_map.json", mutate_json),
        "import.added": Target(
            partial(foreign_file, nllb, "tokenizer_config.json"), [json.dumps(ADDED).encode()], mutate=mutate_json
        ),
        "manifest": Target(manifest, [part(MANIFEST)], mutate=mutate_json),
        "state": Target(state, [progress], mutate=mutate_json),
        "arrow": Target(arrow, [arrow_seed()]),
    }
