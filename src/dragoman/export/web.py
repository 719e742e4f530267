"""Export a model as a web page that translates in the browser."""

import json
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.errors import DragomanError
from dragoman.export import onnx
from dragoman.export.readme import read_usage
from dragoman.export.sentencepiece import sentencepiece_sides
from dragoman.export.target import Exported, Target
from dragoman.text.tags import DefaultTags

PAGE = Path(__file__).parent / "page"
PACKAGES = {"@huggingface/tokenizers": "0.2.0", "onnxruntime-web": "1.30.0"}  # the versions that were tested


def check(exported: Exported) -> None:
    """Raise DragomanError for a model that the page cannot run, with what to do."""
    onnx.check(exported)
    if sentencepiece_sides(exported.tokenizers):
        raise DragomanError(
            "its subwords are SentencePiece's, and nothing in a browser gives the same ones: export it to ONNX, or "
            "distill a student with subwords of its own"
        )
    if not exported.tokenizers.is_one or exported.tags.target:
        raise DragomanError("a page needs one tokenizer for both sides and no target tag: export it to ONNX")


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write the model as ONNX, the page, the default tag and package.json into a folder."""
    onnx.write(exported, folder, compute_type)
    for file in PAGE.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / DefaultTags.RECORD).write_text(exported.tags.as_json(), encoding="utf-8")
    package = {"private": True, "type": "module", "dependencies": PACKAGES}
    (folder / "package.json").write_text(json.dumps(package, indent=1) + "\n", encoding="utf-8")


def usage(exported: Exported, compute_type: str) -> str:
    return read_usage("web")


WEB = Target(
    title="a web page",
    compute_types=("int8", "float32"),
    search=SearchConfig(beam=1),
    check=check,
    write=write,
    check_subwords=onnx.ONNX.check_subwords,
    open=onnx.ONNX.open,
    usage=usage,
)
