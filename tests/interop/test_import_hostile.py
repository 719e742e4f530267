"""Folders and archives of strangers: nothing in them runs, and what is wrong is refused with the name of the file."""

import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import yaml
from foreign import SOURCE_SPM, copy_of, marian_folder, npz_folder, word_list
from safetensors.torch import load_file
from test_spm import HOSTILE as HOSTILE_SPM

from dragoman.data.spm import MAX_SIZE
from dragoman.errors import DragomanError
from dragoman.interop.importing import import_model
from dragoman.interop.pickled import pickled_process
from dragoman.interop.tensors import Npz
from dragoman.model_folder import read_model, verify_files
from dragoman.storage.writing import MANIFEST

MARK = "ran"  # a file that code in a source would write, in the working directory


class Runs:
    """A pickle of it writes a file when it is loaded."""

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {MARK}",)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sources")
    marian_folder(place / "marian", pickled="new")
    npz_folder(place / "npz")
    npz_folder(place / "lists", spm=False)
    return {name: place / name for name in ("marian", "npz", "lists")}


def write(name: str, data: bytes | Callable[[], bytes]) -> Callable[[Path], None]:
    """Replace that file. Data that take long to make come from a function."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data())

    return change


def pickled(content: object, zipped: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def array_file(header: bytes, data: bytes = b"") -> bytes:
    """A .npz with one array whose header is any bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("Wemb.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data)
    return file.getvalue()


def saved(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def compressed() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, Wemb=np.zeros((1000, 1000), np.float32))
    return file.getvalue()


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("Wemb.npy", "Wemc.npy"):
            archive.writestr(name, saved_array())
    return file.getvalue().replace(b"Wemc", b"Wemb")


def saved_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(2, np.float32))
    return file.getvalue()


def long_directory() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(15_000):
            archive.writestr(f"{number:0100}.npy", b"")
    return file.getvalue()


def tensors(**entries: object) -> bytes:
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header


def laughs() -> bytes:
    """Nine lists, each with nine times the one before."""
    lists = [f"l{level}: &l{level} [{', '.join(['*l' + str(level - 1)] * 9)}]" for level in range(1, 10)]
    return "\n".join(["l0: &l0 [ha]", *lists]).encode()


def link(name: str, to: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink() or (folder / name).symlink_to(to)  # type: ignore[func-returns-value]


def pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def index(parts: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "pytorch_model.bin").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))

    return change


F4 = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"

# In which folder, what a stranger does, the file that is named, and why it is refused.
HOSTILE: dict[str, tuple[str, Callable[[Path], None], str, str]] = {
    "a pickle that runs": ("marian", write("pytorch_model.bin", pickled(Runs())), "pytorch_model.bin", "Unpickling"),
    "an old one": ("marian", write("pytorch_model.bin", pickled(Runs(), False)), "pytorch_model.bin", "Unpickling"),
    "a bare one": ("marian", write("pytorch_model.bin", pickle.dumps(Runs())), "pytorch_model.bin", "Unpickling"),
    "one among tensors": (
        "marian",
        write("pytorch_model.bin", pickled({"a": torch.zeros(2), "b": Runs()})),
        "pytorch_model.bin",
        "Unpickling",
    ),
    "numbers that are not there": (
        "marian",
        write("pytorch_model.bin", pickled({"a": torch.zeros(1).expand(1 << 40)})),
        "pytorch_model.bin",
        "more numbers than bytes",
    ),
    "no tensors": ("marian", write("pytorch_model.bin", pickled({"a": [1, 2]})), "pytorch_model.bin", "no tensor"),
    "a list": ("marian", write("pytorch_model.bin", pickled([torch.zeros(2)])), "pytorch_model.bin", "no dictionary"),
    "a sparse tensor": (
        "marian",
        write("pytorch_model.bin", pickled({"a": torch.eye(3).to_sparse()})),
        "pytorch_model.bin",
        "not weights",
    ),
    "nothing in it": ("marian", write("pytorch_model.bin", b""), "pytorch_model.bin", "not weights"),
    "half of it": (
        "marian",
        write("pytorch_model.bin", pickled({"a": torch.zeros(1000)})[:2000]),
        "pytorch_model.bin",
        "not weights",
    ),
    "a part elsewhere": ("marian", index({"a": "../../../etc/passwd"}), "marian", "not the name of a file"),
    "a part that is missing": ("marian", index({"a": "no.safetensors"}), "no.safetensors", "missing"),
    "parts that are no names": ("marian", index({"a": 1}), "index.json", "no weight_map"),
    "a long header": ("marian", write("model.safetensors", b"\xff" * 8 + b"{}"), "model.safetensors", "its header has"),
    "no header": (
        "marian",
        write("model.safetensors", b"\x02"),
        "model.safetensors",
        "its header has|not a safetensors",
    ),
    "a tensor of 2^60 numbers": (
        "marian",
        write("model.safetensors", tensors(a={"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]})),
        "model.safetensors",
        "not a safetensors file",
    ),
    "tensors beyond the end": (
        "marian",
        write("model.safetensors", tensors(a={"dtype": "F32", "shape": [9], "data_offsets": [0, 36]})),
        "model.safetensors",
        "not a safetensors file",
    ),
    "no JSON": ("marian", write("config.json", b"{"), "config.json", "not JSON"),
    "deep JSON": ("marian", write("config.json", b"[" * 100_000), "config.json", "not JSON"),
    "a list of settings": ("marian", write("config.json", b"[]"), "config.json", "not an object"),
    "settings of 2 MB": ("marian", write("config.json", b" " * (2 << 20) + b"{}"), "config.json", "1,048,576 bytes"),
    "settings that are no UTF-8": ("marian", write("config.json", b'{"a": "\xff"}'), "config.json", "not JSON"),
    "a link to another file": ("marian", link("config.json", "/etc/passwd"), "config.json", "symbolic link"),
    "a link to a device": ("marian", link("vocab.json", "/dev/zero"), "vocab.json", "symbolic link"),
    "a pipe": ("marian", pipe, "config.json", "not a file"),
    "a folder": (
        "marian",
        lambda f: ((f / "vocab.json").unlink(), (f / "vocab.json").mkdir()),
        "vocab.json",
        "not a file",
    ),  # type: ignore[dict-item,return-value]
    "words in words": ("marian", write("vocab.json", b'{"a": {"b": 1}}'), "vocab.json", "the id of 'a'"),
    "a million words": (
        "marian",
        write("vocab.json", lambda: b"{%s}" % b", ".join(b'"%d": %d' % (id, id) for id in range(2_100_000))),
        "vocab.json",
        "more than",
    ),
    "a surrogate": ("marian", write("vocab.json", b'{"\\ud800": 0}'), "vocab.json", "is no word"),
    "10 million pieces": (
        "marian",
        write("source.spm", lambda: b"\x0a\x00" * 10_000_000),
        "source.spm",
        f"more than {MAX_SIZE:,} bytes",
    ),
    "a pickle in an array": (
        "npz",
        write("model.npz", saved(Wemb=np.array([Runs()], object))),
        "model.npz",
        "has no numbers but '|O'",
    ),
    "an array without numbers": ("npz", write("model.npz", saved(Wemb=np.array(["a"]))), "model.npz", "no numbers but"),
    "a header that is code": ("npz", write("model.npz", array_file(b"__import__('os')\n")), "model.npz", "is no array"),
    "a shape of 2^80": ("npz", write("model.npz", array_file(F4 % (b"9" * 24 + b","))), "model.npz", "do not fit"),
    "a negative shape": ("npz", write("model.npz", array_file(F4 % b"-1,")), "model.npz", "is no array"),
    "a bomb of zeros": ("npz", write("model.npz", compressed), "model.npz", "is compressed"),
    "a name that is there twice": ("npz", write("model.npz", twice()), "model.npz", "there twice"),
    "many arrays": ("npz", write("model.npz", long_directory), "model.npz", "list of files is too long"),
    "an array before the file": (
        "npz",
        write("model.npz", saved(Wemb=np.zeros((3, 2), np.float32))[:-6] + struct.pack("<IH", 12284, 0)),
        "model.npz",
        "begins before the file",
    ),
    "no archive": ("npz", write("model.npz", b"PK\x03\x04" + bytes(50)), "model.npz", "not a sound .npz"),
    "no settings": ("npz", write("model.npz", saved(Wemb=np.zeros((3, 2), np.float32))), "model.npz", "not a model of"),
    "settings of one byte": (
        "npz",
        write("model.npz", saved(**{"special:model.yml": np.array(97, np.int8)})),
        "model.npz",
        "line 1",
    ),
    "nested settings": (
        "npz",
        write("model.npz", saved(**{"special:model.yml": np.frombuffer(b"a:\n  b: 1\n", np.int8)})),
        "model.npz",
        "line 2",
    ),
    "an alias in YAML": ("npz", write("decoder.yml", b"models: &a [x]\nvocabs: *a\n"), "decoder.yml", "does not write"),
    "a tag in YAML": (
        "npz",
        write("decoder.yml", b"models: !!python/object:os.system [x]\n"),
        "decoder.yml",
        "not write",
    ),
    "an anchor in a list": ("lists", write("opus.vocab.yml", b"a: &a 0\nb: *a\n"), "opus.vocab.yml", "does not write"),
    "a billion laughs": ("npz", write("decoder.yml", laughs), "decoder.yml", "does not write"),
    "100,000 lists in lists": ("npz", write("decoder.yml", b"vocabs: " + b"[" * 100_000), "decoder.yml", "line 1"),
    "100,000 mappings": ("lists", write("opus.vocab.yml", b"{" * 100_000), "opus.vocab.yml", "line 1"),
    "two documents": ("npz", write("decoder.yml", b"models: a\n---\nmodels: b\n"), "decoder.yml", "line 3"),
    "a byte that is no character": ("npz", write("decoder.yml", b"models: a\0\n"), "decoder.yml", "not YAML"),
    "settings of 2 MB in YAML": (
        "npz",
        write("decoder.yml", b"a: " + b"b" * (2 << 20)),
        "decoder.yml",
        "1,048,576 bytes",
    ),
    "an id of 5,000 digits": (
        "lists",
        write("opus.vocab.yml", b"a: " + b"9" * 5_000 + b"\n"),
        "opus.vocab.yml",
        "line 1: 'a' is no word with an id",
    ),
    "a million words of two lines": (
        "lists",
        write("opus.vocab.yml", lambda: b"a: 0\n" * 2_000_001),
        "opus.vocab.yml",
        "more than 2,000,000 lines",
    ),
    "a vocabulary elsewhere": ("npz", write("decoder.yml", b"vocabs:\n  - /etc/passwd\n"), "npz", "passwd are missing"),
    "no words": ("marian", write("vocab.json", b"{}"), "vocab.json", "it has no words"),
    "an empty list": ("lists", write("opus.vocab.yml", b"\n"), "opus.vocab.yml", "it has no words"),
    "a character beyond all": (
        "lists",
        write("opus.vocab.yml", b'"</s>": 0\n"\\UFFFFFFFF": 1\n'),
        "opus.vocab.yml",
        "not YAML",
    ),
    "a hole in a list": (
        "lists",
        write("opus.vocab.yml", b'"</s>": 0\n<unk>: 1\na: 3\n'),
        "opus.vocab.yml",
        "'a' is 3",
    ),
    "a negative id": ("lists", write("opus.vocab.yml", b'"</s>": 0\n<unk>: -1\n'), "opus.vocab.yml", "'<unk>' is -1"),
    "a double id": (
        "lists",
        write("opus.vocab.yml", b'"</s>": 0\n<unk>: 1\na: 1\n'),
        "opus.vocab.yml",
        "the same id, 1",
    ),
    "a double word": (
        "lists",
        write("opus.vocab.yml", b"a: 0\na: 1\n"),
        "opus.vocab.yml",
        "line 2: 'a' is there twice",
    ),
    "no id": ("lists", write("opus.vocab.yml", b"a: b: c\n"), "opus.vocab.yml", "line 1"),
    "a list that is no UTF-8": ("lists", write("opus.vocab.yml", b"\xff: 0\n"), "opus.vocab.yml", "not UTF-8"),
}


HOSTILE |= {
    f"SentencePiece: {name}": ("marian", write("source.spm", data), "source.spm", words)
    for name, (data, words) in HOSTILE_SPM.items()
}


# Each pickle is read by a process of its own, whose start takes seconds; it has limits of its own.
IN_A_PROCESS_OF_ITS_OWN = "pytorch_model.bin"
FAST_PICKLES = ("a pickle that runs",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if file == IN_A_PROCESS_OF_ITS_OWN and name not in FAST_PICKLES else ()
        )
        for name, (_, _, file, _) in HOSTILE.items()
    ],
)
def test_hostile_source(name: str, sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kind, change, file, words = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    folder = copy_of(sources[kind], tmp_path / kind)
    change(folder)
    with pytest.raises(DragomanError, match=words) as refused:
        import_model(folder, tmp_path / "out")
    assert file in str(refused.value)
    assert len(str(refused.value)) < 700
    assert [path.name for path in tmp_path.iterdir()] == [kind]


def test_pickle_that_runs_would_leave_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The control for the test above."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Runs()))
    assert (tmp_path / MARK).exists()


def archive(tmp_path: Path, folder: Path, inside: str = "", **more: bytes) -> Path:
    with zipfile.ZipFile(tmp_path / "their.zip", "w", zipfile.ZIP_DEFLATED) as found:
        for file in folder.iterdir():
            found.write(file, inside + file.name)
        for name, data in more.items():
            found.writestr(name, data)
    return tmp_path / "their.zip"


@pytest.mark.parametrize("inside", ["", "opus-2020/"])
def test_zip_file_is_imported(inside: str, sources: dict[str, Path], tmp_path: Path):
    import_model(archive(tmp_path, sources["lists"], inside), tmp_path / "out")
    import_model(sources["lists"], tmp_path / "other")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "other"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


ARCHIVES = {
    "escaping names": ({"../evil": b"x"}, "leads elsewhere"),
    "absolute names": ({"/tmp/evil": b"x"}, "leads elsewhere"),
    "folders in folders": ({"a/b/c": b"x"}, "leads elsewhere"),
    "two folders": ({"a/b": b"x"}, "in 2 folders"),
    "a bomb": ({"big": bytes(120 << 20)}, "would take"),
    "many files": ({f"f{number}": b"" for number in range(1001)}, "has 1,0"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archive(name: str, sources: dict[str, Path], tmp_path: Path):
    more, words = ARCHIVES[name]
    file = archive(tmp_path, sources["npz"], **more)
    with pytest.raises(DragomanError, match=words) as refused:
        import_model(file, tmp_path / "out")
    assert str(file) in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["their.zip"]


def test_link_in_an_archive(tmp_path: Path):
    entry = zipfile.ZipInfo("config.json")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "their.zip", "w") as found:
        found.writestr(entry, "/etc/passwd")
    with pytest.raises(DragomanError, match="is a link or a device"):
        import_model(tmp_path / "their.zip", tmp_path / "out")
    (tmp_path / "their.zip").write_bytes(b"no zip")
    with pytest.raises(DragomanError, match="not a zip file"):
        import_model(tmp_path / "their.zip", tmp_path / "out")


def test_archive_with_damaged_data(tmp_path: Path):
    file = tmp_path / "their.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as found:
        found.writestr("config.json", "{}")
    data = bytearray(file.read_bytes())
    data[30 + len("config.json")] = 0xFF  # the first byte behind the header
    file.write_bytes(data)
    with pytest.raises(DragomanError, match=r"their\.zip: not a zip file that can be unpacked: Error -3"):
        import_model(file, tmp_path / "out")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archive_that_could_only_be_unpacked_at_once(compression: int, sources: dict[str, Path], tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "their.zip", "w", compression) as found:
        for file in sources["npz"].iterdir():
            found.write(file, file.name)
    with pytest.raises(DragomanError, match="is not compressed with deflate"):
        import_model(tmp_path / "their.zip", tmp_path / "out")


def test_links_into_the_cache_of_the_hub_are_followed(sources: dict[str, Path], tmp_path: Path):
    """There a folder of `snapshots` has links into the folder `blobs`."""
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "abc", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    copy_of(sources["npz"], blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert import_model(snapshot, tmp_path / "out") == tmp_path / "out"


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_changed_bits_are_refused(count: int, sources: dict[str, Path], tmp_path: Path):
    """In any file of an imported folder but its card, which people may edit."""
    out = import_model(sources["npz"], tmp_path / "out")
    random = Random(0)
    files = [file for file in out.iterdir() if file.name != "card.md"]
    for _ in range(count):
        file = random.choice(files)
        data = bytearray(before := file.read_bytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        file.write_bytes(data)
        with pytest.raises(DragomanError, match=re.escape(str(file if file.name != MANIFEST else out))):
            verify_files(out)
        with pytest.raises(DragomanError):
            read_model(out)
        file.write_bytes(before)
    verify_files(out)
    read_model(out)


def test_arrays_are_those_of_numpy(tmp_path: Path):
    """Of every kind and order that others write."""
    arrays = {
        "a": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b": np.asfortranarray(np.arange(12, dtype=np.float16).reshape(3, 4)),
        "c": np.arange(5, dtype=np.int8),
        "d": np.float64(3.5),
        "e": np.zeros((0, 4), np.float32),
        "f": np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
    }
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    found = Npz(tmp_path / "a.npz")
    assert found.shapes == {name: np.shape(value) for name, value in arrays.items()}
    for name, value in arrays.items():
        assert np.array_equal(found.array(name), value)
        assert found.array(name).dtype == np.asarray(value).dtype


MEASURE = """
import resource, sys, time
from pathlib import Path
from dragoman.errors import DragomanError
from dragoman.interop.importing import import_model
def peak(): return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
before, began = peak(), time.process_time()
try:
    import_model(Path(sys.argv[1]), Path(sys.argv[2]))
except DragomanError:
    print(time.process_time() - began, (peak() - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, found in HOSTILE.items() if found[2] != IN_A_PROCESS_OF_ITS_OWN])
def test_hostile_source_costs_little(name: str, sources: dict[str, Path], tmp_path: Path):
    kind, change, _, _ = HOSTILE[name]
    folder = copy_of(sources[kind], tmp_path / kind)
    change(folder)
    check_cost(name, folder, tmp_path / "out")


def check_cost(name: str, source: Path, out: Path) -> None:
    command = [sys.executable, "-c", MEASURE, str(source), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, ran.stdout.split())
    print(f"{name}: {seconds:.2f} s, {megabytes:.0f} MB")
    assert seconds < 1
    assert megabytes < 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archive_costs_little(name: str, sources: dict[str, Path], tmp_path: Path):
    check_cost(name, archive(tmp_path, sources["npz"], **ARCHIVES[name][0]), tmp_path / "out")


def cost_of_reading(pickle_file: Path, out: Path) -> tuple[float, float]:
    """The seconds of computing and the megabytes of the process that reads a pickle."""
    command = [sys.executable, "-I", pickled_process.__file__, str(pickle_file), str(out)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(running.pid, 0)
    running.returncode = 0  # it was waited for
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, found in HOSTILE.items() if found[2] == IN_A_PROCESS_OF_ITS_OWN])
def test_hostile_pickle_costs_little_more_than_the_start_of_its_process(
    name: str, sources: dict[str, Path], tmp_path: Path
):
    torch.save({"a": torch.zeros(2)}, tmp_path / "sound.bin")
    start = cost_of_reading(tmp_path / "sound.bin", tmp_path / "sound.safetensors")
    assert (tmp_path / "sound.safetensors").exists()
    folder = copy_of(sources["marian"], tmp_path / "marian")
    HOSTILE[name][1](folder)
    seconds, megabytes = cost_of_reading(folder / "pytorch_model.bin", tmp_path / "out")
    print(f"{name}: {seconds - start[0]:.2f} s, {megabytes - start[1]:.0f} MB")
    assert seconds - start[0] < 1
    assert megabytes - start[1] < 50


@pytest.mark.slow
def test_process_for_pickles_has_limits(sources: dict[str, Path], tmp_path: Path):
    """A pickle whose tensors would need more memory than its file is worth is refused within seconds."""
    folder = copy_of(sources["marian"], tmp_path / "marian")
    value = torch.zeros(1).expand(1 << 33)
    torch.save({"a": value}, folder / "pytorch_model.bin")
    began = time.monotonic()
    with pytest.raises(DragomanError, match=r"pytorch_model\.bin: not weights that can be read"):
        import_model(folder, tmp_path / "out")
    assert time.monotonic() - began < 60


def test_list_of_words_of_marian_is_read_as_it_was_written(tmp_path: Path):
    from dragoman.interop.yml import parse_words

    words = word_list(SOURCE_SPM)
    odd = ['"', "'", ":", "a: b", "#", "- x", "?", "\\", "\x85", "\u2028", "☺", "true", "1", "[x]", "{", "x: 5", "\t"]
    words |= {word: len(words) + number for number, word in enumerate(odd)}
    text = "".join(f"{json.dumps(word)}: {id}\n" for word, id in words.items())
    assert parse_words(text) == words
    assert parse_words("it's: 0\n'a''b': 1\n? \"long\"\n: 2\nwo:rd: 3\n\"\\x85\": 4\n? x\n: 5\n") == {
        "it's": 0,
        "a'b": 1,
        "long": 2,
        "wo:rd": 3,
        "\x85": 4,
        "x": 5,
    }


def test_yaml_words_that_look_like_other_types_stay_text(tmp_path: Path):
    """Words are words, and settings have the types that Marian gives them."""
    from dragoman.interop.yml import parse_settings, parse_words

    odd = "no yes on Off null ~ 1_000 0x1 010 1e3 .inf 2020-01-01 12:30:45 = <<".split()
    text = "".join(f"{word}: {id}\n" for id, word in enumerate(odd))
    assert list(parse_words(text)) == odd
    assert list(map(str, yaml.safe_load(text.split("=")[0]))) != odd[:-2]  # the control
    assert parse_settings("".join(f"s{id}: {word}\n" for id, word in enumerate(odd))) == {
        **{f"s{id}": word for id, word in enumerate(odd)},
        "s4": None,
        "s5": None,
        "s8": 10,
        "s9": 1000.0,
    }
    assert parse_settings("a: true\nb: 'true'\nc: \"1\"\nd: [1, '1', x]\ne:\n  - 2\nf: []\ng:\n") == {
        "a": True,
        "b": "true",
        "c": "1",
        "d": [1, "1", "x"],
        "e": [2],
        "f": [],
        "g": None,
    }
