"""Models on the Hugging Face Hub: what is uploaded is opened again as it was; what is downloaded is a stranger's.

The Hub is a server on this machine, which the library of the Hub talks to as to the real one.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import TINY, Ran, save_random, tiny_transformer
from fake_hub import TOKEN, FakeHub, running
from foreign import npz_folder

from dragoman import Tokenizer, Translator, import_model, upload_model
from dragoman.config.languages import LanguagePair
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.sources import download_source
from dragoman.model_folder import fetch_model, read_model
from dragoman.model_folder.folder import download_model
from dragoman.model_folder.manifest import read_manifest
from dragoman.storage.writing import MANIFEST, new_folder
from dragoman.text.languages import languages_json
from dragoman.text.origin import Origin

constants = pytest.importorskip("huggingface_hub.constants", reason="models on the Hub need the extra `hub`")

TEXTS = ["The dog sees 3 red cats.", "The cat likes 5 blue bears."]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub without models, an empty cache, and a token that may write."""
    with running() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # of which the Hub here knows nothing
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        new_process()
        yield server


def new_process() -> None:
    """Let names of models mean what they mean in a new process."""
    download_model.cache_clear()


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, not to be changed."""
    return save_random(TINY, tokenizer, tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module")
def other(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with other weights."""
    return save_random(tiny_transformer(d_ff=24), tokenizer, tmp_path_factory.mktemp("models") / "other")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def changed(files: dict[str, bytes], name: str, at: int = -1) -> dict[str, bytes]:
    """Files with one bit of one of them flipped."""
    data = bytearray(files[name])
    data[at] ^= 1
    return files | {name: bytes(data)}


def test_model_goes_to_the_hub_and_comes_back(hub: FakeHub, model: Path):
    upload = upload_model(model, "hub:me/en-ko")
    assert contents(model).items() <= hub.repositories["me/en-ko"].files.items()
    assert upload.commit == f"{hub.url}/me/en-ko/commit/{hub.repositories['me/en-ko'].names['main']}"
    assert contents(fetch_model(Path("hub:me/en-ko"))) == contents(model)
    ours, theirs = Translator.load(model), Translator.load("hub:me/en-ko")
    assert [one.text for one in theirs.translate(TEXTS)] == [one.text for one in ours.translate(TEXTS)]


def test_upload_leaves_out_what_belongs_to_a_training(hub: FakeHub, model: Path, tmp_path: Path):
    """The rest of a checkpoint is a whole model folder. The control has the state in its manifest."""
    with new_folder(tmp_path / "step-1") as draft:
        for name, data in contents(model).items():
            if name != MANIFEST:
                (draft / name).write_bytes(data)
        for name in ("state.safetensors", "state.json"):
            (draft / name).write_bytes(b"{}")
    assert "state.json" in json.loads((tmp_path / "step-1" / MANIFEST).read_bytes())
    upload_model(tmp_path / "step-1", "hub:me/en-ko")
    assert not {"state.safetensors", "state.json"} & hub.repositories["me/en-ko"].files.keys()
    read_model(Path("hub:me/en-ko"))


def test_page_on_the_hub_is_the_card(hub: FakeHub, model: Path, tmp_path: Path):
    with new_folder(tmp_path / "known") as draft:
        for name, data in contents(model).items():
            (draft / name).write_bytes(data)
        (draft / MANIFEST).unlink()
        (draft / "languages.json").write_text(languages_json(LanguagePair("no", "ko-KR")))
        (draft / Origin.RECORD).write_text(Origin("x", "cc-by-4.0").as_json())
    for folder, facts in ((model, ""), (tmp_path / "known", 'language:\n- "no"\n- "ko"\nlicense: cc-by-4.0\n')):
        upload_model(folder, f"hub:me/{folder.name}")
        page = hub.repositories[f"me/{folder.name}"].files["README.md"].decode()
        start = "---\nlibrary_name: dragoman\npipeline_tag: translation\n"
        assert page.startswith(f"{start}{facts}---\n\n# Random\n")
        assert f'dragoman translate -m hub:me/{folder.name} "A sentence."' in page


def test_hub_names_work_in_all_commands(hub: FakeHub, model: Path, dragoman: Callable[..., Ran]):
    ran = dragoman("upload", "-m", model, "hub:me/en-ko", "--private")
    assert (ran.code, ran.out) == (0, "hub:me/en-ko\n")
    assert f"{hub.url}/me/en-ko/commit/" in ran.err
    assert hub.repositories["me/en-ko"].private
    for words in (["translate", "-m", "{}", *TEXTS], ["info", "{}", "--json"], ["score", "-m", "{}", "pairs.tsv"]):
        Path("pairs.tsv").write_text("The dog.\t개.\n")
        here, there = (
            dragoman(*(word.format(name) for word in words), *(["--threads", 1] if words[0] != "info" else []))
            for name in (model, "hub:me/en-ko")
        )
        assert (here.code, here.out) == (there.code, there.out)
        assert here.code == 0
    assert dragoman("verify", "hub:me/en-ko").out.startswith("ok")
    assert dragoman("average", model, "hub:me/en-ko", "--out", "mean").code == 0
    assert read_model(Path("mean"))[0].state_dict().keys() == read_model(model)[0].state_dict().keys()


def test_server_takes_names_with_and_without_tags(hub: FakeHub, model: Path):
    models = pytest.importorskip("dragoman.server.models", reason="the server needs the extra `serve`")
    hub.put("me/en-ko", contents(model))
    folder = fetch_model(Path("hub:me/en-ko"))
    (plain,) = models.parse_model("en-ko=hub:me/en-ko")
    (tagged,) = models.parse_model("en-ko=hub:me/en-ko@main:de")
    assert (plain.folder, plain.tag, plain.name) == (folder, "", "en-ko")
    assert (tagged.folder, tagged.tag) == (folder, "de")
    with pytest.raises(UsageError, match="does not record its languages"):
        models.parse_model("hub:me/en-ko")


def test_revision_stays_what_it_was(hub: FakeHub, model: Path, other: Path):
    first = hub.put("me/en-ko", contents(model), "v1")
    second = hub.put("me/en-ko", contents(other), "v2")
    for name, expected in (("@v1", model), ("@v2", other), ("", other), (f"@{first}", model)):
        assert contents(fetch_model(Path(f"hub:me/en-ko{name}"))) == contents(expected), name
    assert fetch_model(Path("hub:me/en-ko@v2")).name == second


def test_hub_name_means_one_version_in_a_process(hub: FakeHub, model: Path, other: Path):
    hub.put("me/en-ko", contents(model))
    before = fetch_model(Path("hub:me/en-ko"))
    hub.put("me/en-ko", contents(other))
    assert fetch_model(Path("hub:me/en-ko")) == before
    new_process()
    assert fetch_model(Path("hub:me/en-ko")) != before


def test_downloaded_files_are_of_one_commit(hub: FakeHub, model: Path, other: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where somebody uploads another version between the manifest and the rest."""

    def meanwhile(folder: Path) -> dict[str, tuple[int, str]]:
        hub.put("me/en-ko", contents(other))
        return read_manifest(folder)

    hub.put("me/en-ko", contents(model))
    monkeypatch.setattr("dragoman.model_folder.folder.read_manifest", meanwhile)
    assert contents(fetch_model(Path("hub:me/en-ko"))) == contents(model)


def test_download_takes_what_the_manifest_lists_and_only_once(hub: FakeHub, model: Path):
    files = contents(model)
    strange = {
        "pytorch_model.bin": b"pickle",
        "modeling.py": b"code",
        "extra/config.json": b"{}",
        ".gitattributes": b"",
    }
    hub.put("me/en-ko", files | strange)
    folder = fetch_model(Path("hub:me/en-ko"))
    assert sorted(hub.downloads()) == sorted(files)
    new_process()
    fetch_model(Path("hub:me/en-ko"))
    assert sorted(hub.downloads()) == sorted(files)
    assert contents(folder) == files


def test_download_without_a_network_uses_the_cache(hub: FakeHub, model: Path, monkeypatch: pytest.MonkeyPatch):
    """Also for a model without a card."""
    hub.put("me/en-ko", contents(model))
    hub.put("me/bare", {name: data for name, data in contents(model).items() if name != "card.md"})
    before = fetch_model(Path("hub:me/en-ko")), fetch_model(Path("hub:me/bare"))
    hub.down = True
    new_process()
    assert fetch_model(Path("hub:me/en-ko")) == before[0]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    new_process()
    assert (fetch_model(Path("hub:me/en-ko")), fetch_model(Path("hub:me/bare"))) == before
    assert "card.md" not in contents(before[1])


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_downloaded_file_that_was_changed_is_refused(name: str, hub: FakeHub, model: Path):
    hub.put("me/en-ko", changed(contents(model), name, 100))
    with pytest.raises(DragomanError, match=rf"{name}: damaged: expected SHA-256"):
        Translator.load("hub:me/en-ko")


def test_downloaded_card_may_be_changed(hub: FakeHub, model: Path):
    """The control for the test above."""
    hub.put("me/en-ko", changed(contents(model), "card.md"))
    Translator.load("hub:me/en-ko")


@pytest.mark.parametrize("listed", ["../../../evil", "/evil", "a/b", ""])
def test_manifest_with_paths_downloads_nothing(listed: str, hub: FakeHub, model: Path):
    files = contents(model)
    manifest = json.loads(files[MANIFEST])
    manifest[listed] = manifest["config.json"]
    hub.put("me/en-ko", files | {MANIFEST: json.dumps(manifest).encode()})
    with pytest.raises(DragomanError, match="is not a file name"):
        fetch_model(Path("hub:me/en-ko"))
    assert hub.downloads() == [MANIFEST]


def test_link_out_of_the_cache_is_refused(hub: FakeHub, model: Path, tmp_path: Path):
    """The links of the cache itself are not, which the other tests show."""
    hub.put("me/en-ko", contents(model))
    folder = fetch_model(Path("hub:me/en-ko"))
    assert (folder / "config.json").is_symlink()
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(model / "config.json")
    with pytest.raises(DragomanError, match="a symbolic link that leads out of the folder"):
        read_model(Path("hub:me/en-ko"))


def test_files_that_repositories_share_are_followed(hub: FakeHub, model: Path, tmp_path: Path):
    """The library keeps large files once, beside the repositories, and links to them; there alone they may be."""
    hub.put("me/en-ko", contents(model))
    weights = fetch_model(Path("hub:me/en-ko")) / "model.safetensors"
    for place in ("blobs/ab", "elsewhere"):
        shared = tmp_path / "cache" / place / "model"
        shared.parent.mkdir(parents=True)
        blob = weights.parent / weights.readlink()
        blob.resolve().rename(shared)
        blob.unlink(missing_ok=True)
        blob.symlink_to(shared)
        if place == "elsewhere":
            with pytest.raises(DragomanError, match="a symbolic link that leads out of the folder"):
                read_model(Path("hub:me/en-ko"))
        else:
            read_model(Path("hub:me/en-ko"))


def test_repository_without_a_model_folder_should_be_imported(hub: FakeHub):
    hub.put("them/opus", {"config.json": b"{}", "model.safetensors": b"large"})
    with pytest.raises(DragomanError, match=re.escape("dragoman import hub:them/opus OUT")):
        Translator.load("hub:them/opus")
    assert hub.downloads() == []


def test_hub_errors_are_one_sentence(
    hub: FakeHub, model: Path, dragoman: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
):
    """For commands; and nowhere is the token."""
    hub.put("me/en-ko", contents(model), "v1")
    hub.put("me/short", contents(model))
    hub.put("me/gated", contents(model), gated=True)
    hub.put("me/secret", contents(model), private=True)

    def said(name: str) -> str:
        ran = dragoman("info", name)
        assert ran.code in (1, 2)
        assert TOKEN not in ran.err
        return ran.err.splitlines()[-1]

    assert "hub:me/none: no such model on the Hub, or a private one" in said("hub:me/none")
    assert "hub:me/en-ko@v9: no such revision" in said("hub:me/en-ko@v9")
    for name in ("hub:me", "hub:a/b/c", "hub:a b/c", "hub:", "hub:a/b@"):
        assert f"{name}: a model on the Hugging Face Hub is hub:USER/NAME" in said(name)
    assert "hub:a/-b: not a name that the Hub allows" in said("hub:a/-b")
    hub.short.add("config.json")
    assert "hub:me/short@" in (line := said("hub:me/short"))
    assert "config.json was not downloaded completely: try again" in line
    monkeypatch.setenv("HF_TOKEN", "hf_a token of nobody")
    assert "hub:me/secret: no such model on the Hub, or a private one" in said("hub:me/secret")
    assert f"its owners want to be asked first, on {hub.url}/me/gated" in said("hub:me/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_gehört_niemandem")
    assert "contains characters that are not allowed in a token" in (line := said("hub:me/secret"))
    assert "niemandem" not in line
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "the Hub cannot be reached, and no earlier download of manifest.json is in the cache" in said(
        "hub:me/secret"
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'dragoman[hub]'" in said("hub:me/en-ko")


def test_hub_answers_are_reported(hub: FakeHub, model: Path, monkeypatch: pytest.MonkeyPatch):
    hub.down = True
    with pytest.raises(DragomanError, match=r"^hub:me/en-ko: the Hub answers 500: our disks are full$"):
        upload_model(model, "hub:me/en-ko")
    hub.down = False
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(DragomanError, match=r"^hub:me/en-ko: the Hub answers 401: Invalid credentials") as raised:
        upload_model(model, "hub:me/en-ko")
    assert "hf_wrong" not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"


def test_upload_that_is_refused_sends_nothing(
    hub: FakeHub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name, data in changed(contents(model), "model.safetensors").items():
        (damaged / name).write_bytes(data)
    hub.put("me/public", contents(model))
    hub.put("me/bert", {"config.json": b"{}", "vocab.txt": b""})
    for folder, name, private, why in (
        (damaged, "hub:me/en-ko", False, "damaged"),
        (model, "me/en-ko", False, "is hub:USER/NAME"),
        (model, "hub:me/en-ko@v2", False, "leave out @v2"),
        (model, "hub:me/public", True, "it is there already, and public"),
        (model, "hub:me/bert", False, "it holds something else, config.json"),
    ):
        with pytest.raises(DragomanError, match=re.escape(why)):
            upload_model(folder, name, private=private)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(DragomanError, match="uploading needs a token with write access"):
        upload_model(model, "hub:me/public")
    assert not [line for line in hub.asked if line.startswith("PUT") or "/commit/" in line]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    upload_model(model, "hub:me/public")  # the control
    assert [line for line in hub.asked if "/commit/" in line]


def test_model_of_others_is_imported(hub: FakeHub, tmp_path: Path):
    """As from a folder, but that its card and its origin name the commit."""
    pytest.importorskip("sentencepiece", reason="imports need the extra `import`")
    npz_folder(tmp_path / "opus")
    commit = hub.put("them/opus", contents(tmp_path / "opus"), "v1")
    here, there = (
        import_model(tmp_path / "opus", tmp_path / "here"),
        import_model("hub:them/opus@v1", tmp_path / "there"),
    )
    differing = {name for name, data in contents(here).items() if contents(there)[name] != data}
    assert differing == {"card.md", Origin.RECORD, MANIFEST}
    assert Origin.load(there) == Origin(f"hub:them/opus@{commit}")
    assert f"Imported from hub:them/opus@{commit} (" in (there / "card.md").read_text()


@pytest.mark.parametrize(
    ("read", "not_read"),
    [
        (
            "config.json model.safetensors vocab.json source.spm target.spm README.md",
            "pytorch_model.bin tf_model.h5 modeling.py rust_model.ot onnx/model.safetensors .gitattributes",
        ),
        ("config.json pytorch_model.bin sentencepiece.bpe.model", "training_args.bin flax_model.msgpack run.sh"),
        ("model.npz decoder.yml opus.vocab.yml source.spm target.spm", "model.pt postprocess.sh"),
        ("checkpoint.pt dict.txt spm.model", "train.txt fairseq/model.pt"),
    ],
)
def test_import_downloads_only_what_it_reads_of_a_model(read: str, not_read: str, hub: FakeHub):
    """No code; pickles only where there are no other weights."""
    hub.put("them/opus", {name: name.encode() for name in f"{read} {not_read}".split()})
    assert contents(download_source("hub:them/opus")) == {name: name.encode() for name in read.split()}


def test_import_of_a_missing_model_is_refused(hub: FakeHub, model: Path, tmp_path: Path):
    hub.put("them/gguf", {"model.gguf": b"x"})
    hub.put("me/en-ko", contents(model))
    for name, why in (
        ("hub:them/none", "no such model on the Hub"),
        ("hub:them/gguf@v9", "no such revision"),
        ("hub:them/gguf", "no file of a model that an import reads"),
        ("hub:me/en-ko", "use it as it is, with -m hub:me/en-ko"),
    ):
        with pytest.raises(DragomanError, match=re.escape(why)):
            import_model(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_environment_says_where_the_hub_is(hub: FakeHub, tmp_path: Path):
    """In a new process, which imports the library of the Hub only where such a name is used."""
    hub.put("me/en-ko", {"card.md": b"# Mine"}, private=True)
    code = (
        "import sys, dragoman.storage.hub as hub\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "print(hub.Repository.parse('hub:me/en-ko').download('card.md').read_text())"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "# Mine\n", "")
