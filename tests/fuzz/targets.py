"""What is fuzzed: one function for each reader of strangers' bytes, and valid samples to start from.

A target takes any bytes. It lets through every exception that a user would see as a traceback, and it checks what the
reader promises: a document comes back byte for byte, and no side of a pair has a line feed.
"""

import atexit
import contextlib
import io
import json
import re
import shutil
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import test_archives
import test_documents
import torch
from conftest import TINY, signed_again, tiny_transformer
from foreign import FAIRSEQ_SETTINGS, MARIAN_SETTINGS, as_yml, npz_folder
from hostile import CLEAN, CODECS, HOSTILE, SOURCE, TARGET, WRITERS, packed, text, tsv
from sentencepiece import SentencePieceProcessor
from subwords import trained_spm
from test_spm import HOSTILE as HOSTILE_MODELS

from dragoman.config import RecurrentConfig, RunConfig, as_dict, read_toml, to_toml, update
from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.formats import read_rows
from dragoman.data.lines import Problem
from dragoman.data.spec import OF_PAIRS, CorpusSpec
from dragoman.data.spm import parse_spm, read_spm
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.documents import read_document
from dragoman.documents.document import has_letter
from dragoman.errors import DragomanError
from dragoman.interop import fairseq, huggingface, marian, pickled_process
from dragoman.interop.checker import Checker, Settings
from dragoman.interop.sources import check_words, read_object, read_text, read_words
from dragoman.interop.tensors import Npz, SafeTensors
from dragoman.interop.yml import parse_settings, parse_words
from dragoman.model import build
from dragoman.model_folder import read_model, verify_files
from dragoman.storage.records import read_listed
from dragoman.storage.writing import MANIFEST
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
    tokenizers, state = Tokenizers.from_tokenizer(tokenizer), {"moment": torch.zeros(2)}
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
    ".xlf": ["<![CDATA[", "]]>", "<g>", "<ph>", "&#11;", 'approved="yes"', 'state="new"', 'xml:space="default"'],
    ".po": ["#~|", "#|", "#.", "#:", "msgctxt", "msgid_plural", "msgstr[1]"],
}
CORPUS_WORDS[".xliff"] = CORPUS_WORDS[".xlf"]


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


def two_files_of_messages(data: bytes) -> None:
    source, _, target = data.partition(b"====")
    check_rows(CorpusSpec((str(written(source, "a.json")), str(written(target, "b.json")))))


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
    mutate = mutate_json if suffix in (".json", ".xcstrings") else None
    return Target(partial(document, suffix), small([*seeds, *utf16]), mutate=mutate)


def archive_target(suffix: str) -> Target:
    """Return the target of an archive, whose members change."""
    with zipfile.ZipFile(io.BytesIO(test_archives.ARCHIVES[suffix])) as archive:
        words = re.findall(r"</?[\w:]+", " ".join(archive.read(name).decode("latin-1") for name in archive.namelist()))
    return Target(partial(document, suffix), [test_archives.ARCHIVES[suffix]], sorted({*words}), mutate_zip)


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


# Models of others: the readers alone, since libFuzzer's records of a whole import take more memory with each input.


def npz(data: bytes) -> None:
    """Read the arrays of Marian and the architecture that its settings describe."""
    with contextlib.suppress(DragomanError):
        found = Npz(written(data, "model.npz"))
        for name in list(found.shapes)[:20]:
            with contextlib.suppress(DragomanError):
                found.read(name)
        if marian.SETTINGS in found.shapes:
            marian_settings(found.array(marian.SETTINGS).tobytes(), found)


def marian_settings(data: bytes, tensors: Any = None) -> None:
    """Read settings as Marian writes them, and the architecture that they describe."""
    text, checker = data.partition(b"\0")[0].decode("utf-8", "replace"), Checker(scratch())
    with contextlib.suppress(DragomanError, ValueError):  # which the importer expects of these two
        values = parse_settings(text)
        settings = Settings(marian.SETTINGS, values, marian.TABLES["defaults"], checker)
        marian.read_architecture(settings, tensors or SimpleNamespace(shapes={}))
        marian.refuse_unknown(settings)
        checker.finish()


def decoder(data: bytes) -> None:
    """Read which files a decoder.yml names."""
    folder, checker = written(data, "decoder.yml").parent, Checker(scratch())
    with contextlib.suppress(DragomanError):
        found = marian.read_decoder(folder)
        marian.find_model(folder, found)
        marian.read_vocabularies(folder, found, checker)


def word_list_of(name: str, data: bytes) -> None:
    """Read a list of words: each has an id of its own."""
    file = written(data, name)
    with contextlib.suppress(DragomanError, ValueError):  # of `parse_words`, which the importer expects
        words = read_words(file) if name.endswith(".json") else check_words(file, parse_words(read_text(file, 1 << 20)))
        assert sorted(words.values()) == list(range(len(words)))
        assert all(words)


def foreign_config(data: bytes) -> None:
    """Read a config.json of Hugging Face and the architecture that it describes."""
    checker = Checker(scratch())
    with contextlib.suppress(DragomanError):
        values = read_object(written(data, "config.json"))
        for kind, tables in huggingface.KINDS.items():
            settings = Settings("config.json", values, tables["defaults"], checker)
            huggingface.read_architecture(settings, kind)
            huggingface.note_unknown(settings)
        checker.finish()


def added_words(name: str, data: bytes) -> None:
    """Read the words that a tokenizer of Hugging Face adds: no id is there twice."""
    checker, words = Checker(scratch()), {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4}
    folder = written(data, name).parent
    with contextlib.suppress(DragomanError):
        found = words | huggingface.read_added_words(folder, {name}, words, checker)
        checker.finish()
        assert len(set(found.values())) == len(found)


def npz_seed() -> bytes:
    small = {"dim_emb": 4, "transformer_heads": 2, "transformer_dim_ffn": 4, "enc_depth": 1, "dec_depth": 1}
    npz_folder(scratch() / "marian", **small)
    return (scratch() / "marian" / "model.npz").read_bytes()


def checkpoint_of_fairseq(data: bytes) -> None:
    """Rewrite a pickle as its process does, and read the copy and the architecture that the settings describe."""
    copy, checker = written(b"", "0.safetensors"), Checker(scratch())
    copy.unlink()
    try:
        tensors, values = pickled_process.load(str(written(data, "model.pt")))
        aliases = pickled_process.write(tensors, str(copy))
    except Exception:  # of any kind: the process, whose limits are not set here, ends with one line
        return
    with contextlib.suppress(DragomanError):
        found = SafeTensors([copy], aliases)
        for name in list(found.shapes)[:20]:
            found.read(name)
        fairseq.read_architecture(Settings("model.pt", json.loads(json.dumps(values)), {}, checker))
        checker.finish()


def dictionary_of_fairseq(data: bytes) -> None:
    """Read the words of fairseq: each has an id of its own."""
    with contextlib.suppress(DragomanError):
        words = fairseq.read_dictionary(written(data, "dict.txt"))
        assert sorted(words.values()) == list(range(len(words)))


def pt_seed(**more: Any) -> bytes:
    """A checkpoint with two matrices, one of them under two names."""
    weights = {"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.float16)}
    saved = io.BytesIO()
    torch.save({"model": weights | {"c": weights["a"]}, **more}, saved)
    return saved.getvalue()


CONFIGS = [
    {"model_type": kind, "vocab_size": 99, "d_model": 16, "encoder_layers": 1, "activation_function": "relu", **more}
    for kind, more in (("marian", {"pad_token_id": 98}), ("m2m_100", {"scale_embedding": False, "num_beams": 5}))
]
WORDS = {"</s>": 0, "<unk>": 1, "\u2581a": 2, ">>de<<": 3, '"': 4, "<pad>": 5}
YML = b'</s>: 0\n<unk>: 1\n"\\u2581a": 2\n? "long"\n: 3\n\'it\'\'s\': 4\n">>de<<": 5\n'
DECODER = b"relative-paths: true\nmodels:\n  - model.npz\nvocabs: [joint.spm, joint.spm]\nbeam-size: 6\n"
LISTED = {"additional_special_tokens": ["__de__", {"content": "eng_Latn"}], "bos_token": "<s>"}
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
    tokenise(
        (spec,),
        Tokenizers.from_tokenizer(Tokenizer.load(checkpoint() / "tokenizer.json")),
        100,
        scratch() / "seed.arrow",
    )
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
    messages = (
        json.dumps({"a": dict(enumerate(side)), "b_one": side[:1]}).encode() for side in zip(*PAIRS, strict=True)
    )
    glossary_lines = "# a comment\ncat\tKatze|Kater\nUSA\tUSA\texact\n강아지\tdog\tany\n".encode()
    progress = json.dumps(asdict(TrainingProgress(scores=["BLEU 1"], machine={"threads": 1}))).encode()
    return {
        **{f"corpus{suffix}": corpus_target(suffix) for suffix in OF_PAIRS},
        "corpus.tsv.gz": corpus_target(".tsv.gz", mutate=partial(mutate_packed, codec="gzip")),
        "corpus.tsv.zst": corpus_target(".tsv.zst", mutate=partial(mutate_packed, codec="zstd")),
        "corpus.two-files": Target(two_files, [sources + b"====" + targets]),
        "corpus.messages": Target(two_files_of_messages, [b"====".join(messages)]),
        "document.txt": document_target(".txt"),
        "document.md": document_target(".md"),
        "document.html": document_target(".html"),
        "document.srt": document_target(".srt"),
        "document.vtt": document_target(".vtt"),
        "document.ass": document_target(".ass"),
        "document.docx": archive_target(".docx"),
        "document.odt": archive_target(".odt"),
        "document.epub": archive_target(".epub"),
        "document.po": document_target(".po"),
        "document.xliff": document_target(".xlf", ".xliff"),
        "document.xml": document_target(".xml"),
        "document.properties": document_target(".properties"),
        "document.strings": document_target(".strings"),
        "document.stringsdict": document_target(".stringsdict"),
        "document.resx": document_target(".resx"),
        "document.xcstrings": document_target(".xcstrings"),
        "document.json": document_target(".json"),
        "document.csv": document_target(".csv"),
        "document.ts": document_target(".ts"),
        "document.ftl": document_target(".ftl"),
        "document.yml": document_target(".yml"),
        "glossary": Target(glossary, [glossary_lines]),
        "settings": Target(toml, settings()),
        "config": Target(partial(model, "config.json"), descriptions(), mutate=mutate_json),
        "safetensors": Target(partial(model, "model.safetensors"), [part("model.safetensors")], mutate=mutate_header),
        "tokenizer": Target(tokenizer, [part("tokenizer.json")], mutate=mutate_json),
        "spm": Target(sentencepiece_model, sentencepiece_seeds()),
        "import.npz": Target(npz, [npz_seed()], mutate=mutate_zip),
        "import.settings": Target(marian_settings, [as_yml(MARIAN_SETTINGS).encode()]),
        "import.decoder": Target(decoder, [DECODER]),
        "import.list.yml": Target(partial(word_list_of, "vocab.yml"), [YML]),
        "import.list.json": Target(
            partial(word_list_of, "vocab.json"), [json.dumps(WORDS).encode()], mutate=mutate_json
        ),
        "import.config": Target(foreign_config, [json.dumps(each).encode() for each in CONFIGS], mutate=mutate_json),
        "import.added": Target(
            partial(added_words, "tokenizer_config.json"), [json.dumps(ADDED).encode()], mutate=mutate_json
        ),
        "import.listed": Target(
            partial(added_words, "special_tokens_map.json"), [json.dumps(LISTED).encode()], mutate=mutate_json
        ),
        "import.pt": Target(
            checkpoint_of_fairseq,
            [pt_seed(args=Namespace(**FAIRSEQ_SETTINGS)), pt_seed(cfg={"model": FAIRSEQ_SETTINGS})],
            [
                "torch._utils",
                "_rebuild_tensor_v2",
                "FloatStorage",
                "argparse",
                "Namespace",
                "collections",
                "OrderedDict",
            ],
            mutate=mutate_zip,
        ),
        "import.dictionary": Target(dictionary_of_fairseq, ["\u2581a 12\nb 3\n__de__ 1\nmadeupword0000 0\n".encode()]),
        "manifest": Target(manifest, [part(MANIFEST)], mutate=mutate_json),
        "state": Target(state, [progress], mutate=mutate_json),
        "arrow": Target(arrow, [arrow_seed()]),
    }
