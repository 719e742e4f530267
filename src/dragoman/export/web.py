"""Export a model as a web page that translates in the browser."""

import json
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.export import onnx
from dragoman.export.target import Target
from dragoman.model import Model

PAGE = Path(__file__).parent / "page"
PACKAGES = {"@huggingface/tokenizers": "0.2.0", "onnxruntime-web": "1.30.0"}  # the versions that were tested

USAGE = """
    npm install
    python -m http.server

in this folder, then open http://127.0.0.1:8000/. `npm install` fetches the two packages of `package.json`; everything
else is here. The page translates in the browser, with a greedy search and without a network; it sends nothing.

To publish it, copy the folder to any server of static files. Of `node_modules` the page needs four files:
`onnxruntime-web/dist/ort.wasm.min.mjs`, `ort-wasm-simd-threaded.mjs` and `ort-wasm-simd-threaded.wasm` beside it, and
`@huggingface/tokenizers/dist/tokenizers.min.mjs`.
"""


def write(model: Model, tokenizer: Tokenizer, folder: Path, compute_type: str) -> None:
    """Write the model as ONNX, the page and package.json into a folder."""
    onnx.write(model, tokenizer, folder, compute_type)
    for file in PAGE.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    package = {"private": True, "type": "module", "dependencies": PACKAGES}
    (folder / "package.json").write_text(json.dumps(package, indent=1) + "\n", encoding="utf-8")


def usage(model: Model, compute_type: str) -> str:
    """Return how the folder is used, in Markdown."""
    return USAGE


WEB = Target(
    title="a web page",
    compute_types=("int8", "float32"),
    search=SearchConfig(beam=1),
    check=onnx.ONNX.check,
    write=write,
    open=onnx.ONNX.open,
    usage=usage,
)
