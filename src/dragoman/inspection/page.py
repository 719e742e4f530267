"""Write an inspection as one HTML file to share, which loads nothing from anywhere."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import torch
from markupsafe import Markup
from torch import Tensor

from dragoman.inspection.export import as_dict
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.occlusion import Occlusion, occlusion
from dragoman.inspection.origins import origins_as_dicts, word_origins
from dragoman.inspection.panels import panel_data
from dragoman.inspection.plots.positions import PositionalEncoding, added_positions
from dragoman.model import Model
from dragoman.model.capture import AttentionKind
from dragoman.translation.translator import Translator

WEB = Path(__file__).parent / "web"
IMPORT = re.compile(r'^import [^;]*"\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)
LEVELS = 255  # weights, from 0 to 1, are rounded to one of these
SHOWN_POSITIONS = 50  # or as many as the sentence has
MAX_SCORED = 3000  # tokens that are scored for the occlusion at most; they take a large model seconds on one core
ROWS_AND_COLUMNS: dict[AttentionKind, tuple[str, str]] = {
    "encoder": ("source", "source"),
    "decoder": ("decoder_input", "decoder_input"),
    "cross": ("target", "source"),
}


def inspection_page(inspection: Inspection, translator: Translator, untrained: Model | None = None) -> str:
    """Return the HTML page of an inspection; `translator` is the one that was inspected.

    untrained: its model before training, None where it is not known. Of a long sentence the page has no occlusion and
    not the stages of all heads, and says so.
    """
    model, source, target = translator.model, inspection.source, inspection.target
    tokens = len(source.words) * (len(source.tokens) + len(target.tokens))
    losses = occlusion(model, inspection) if tokens <= MAX_SCORED else None
    positions = added_positions(model, max(SHOWN_POSITIONS, len(source.tokens)))
    panels = panel_data(translator, inspection, untrained)
    memory = origins_as_dicts(word_origins(translator, inspection)) if translator.memory else None
    return render_page(
        "page",
        ("theme.css", "figures.css", "page.css"),
        data=page_data(inspection, losses, positions) | panels | {"memory": memory},
        strings=page_strings(),
    )


def page_strings() -> dict[str, dict[str, str]]:
    """Return the texts of the page by language and key: those of all pages with inspections, and its own."""
    shared, page_texts = (json.loads(read_web_file(name)) for name in ("strings.json", "page.json"))
    return {language: texts | page_texts[language] for language, texts in shared.items()}


def read_web_file(name: str) -> str:
    """Return the text of a file of the folder `web` of this package."""
    return (WEB / name).read_text(encoding="utf-8")


def render_page(name: str, styles: Sequence[str], **values: Any) -> str:
    """Return a page of the folder `web` with these files as its style, its modules and these values in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html").render(
        style=Markup("".join(map(read_web_file, styles))),  # our own files: not escaped
        dark=Markup(read_web_file("dark.css")),
        script=Markup(page_script(name)),
        policy=page_policy,
        **values,
    )


def page_script(name: str) -> str:
    """Return the JavaScript of a page: its modules in the order of their imports, as one script."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = read_web_file(f"{name}.js")
        for imported in IMPORT.findall(text):
            if imported not in texts:
                add(imported)
        texts[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(name)
    return "\n".join(['"use strict";', *texts.values()])


def page_policy(style: str, dark: str, script: str) -> str:
    """Return the Content-Security-Policy of a page: its own script and styles, by their hashes, and nothing else."""
    styles = f"'{content_hash(style)}' '{content_hash(dark)}'"
    return f"default-src 'none'; img-src data: blob:; style-src {styles}; script-src '{content_hash(script)}'"


def content_hash(text: str) -> str:
    """Return the hash by which a policy names a script or a style that stands in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_data(inspection: Inspection, losses: Occlusion | None, positions: PositionalEncoding | None) -> dict[str, Any]:
    """Return the data of the page, as JSON types: that of `export.as_dict`, and four more.

    They are 'kinds' (see `encode_maps`), 'links' (see `word_links`), 'occlusion' and 'positional_encoding'. losses,
    positions: what the last two are made of, None for a page without them.
    """
    return as_dict(inspection) | {
        "kinds": [encode_maps(inspection, kind) for kind in KINDS if len(inspection.maps(kind))],
        "links": word_links(inspection),
        "occlusion": losses and occlusion_as_dict(losses),
        "positional_encoding": positions and encode_positions(positions),
    }


def describe_maps(inspection: Inspection, kind: AttentionKind) -> dict[str, Any]:
    """Return what the page has to know of one kind of attention besides its weights.

    Its keys: 'name', 'rows' and 'columns' (fields of `Inspection`), 'layers' and 'heads'.
    """
    layers, heads = inspection.maps(kind).shape[:2]
    rows, columns = ROWS_AND_COLUMNS[kind]
    return {"name": kind, "rows": rows, "columns": columns, "layers": layers, "heads": heads}


def encode_maps(inspection: Inspection, kind: AttentionKind) -> dict[str, Any]:
    """Return a dict of one kind of attention for the page, with its weights and rollouts as bytes in base64.

    Its keys: those of `describe_maps`, 'weights' [layer][head][query][key], and 'rollout' [layer][query][key], None for
    a recurrent model.
    """
    followed = rollouts(inspection, kind)
    return describe_maps(inspection, kind) | {
        "weights": encode(weight_bytes(inspection.maps(kind))),
        "rollout": None if followed is None else encode(weight_bytes(followed)),
    }


def rollouts(inspection: Inspection, kind: AttentionKind) -> Tensor | None:
    """Return the rollouts (L, queries, keys) of a kind up to each layer; None for a recurrent model, which has none."""
    if not len(inspection.encoder):
        return None
    layers = range(1, len(inspection.maps(kind)) + 1)
    return torch.stack([inspection.weights(kind, layer, None, "rollout") for layer in layers])


def weight_bytes(weights: Tensor) -> bytes:
    """Return weights from 0 to 1 as one byte each, off by 1/510 at most."""
    return (weights.clamp(0, 1) * LEVELS).round().to(torch.uint8).contiguous().numpy().tobytes()


def encode(raw: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(raw).decode()


def occlusion_as_dict(losses: Occlusion) -> dict[str, Any]:
    """Return what each word of a translation loses, as JSON types.

    Its keys: 'rows' and 'columns', the words of the translation and of the source, 'probabilities' [row], given the
    whole source, and 'drops' [row][column].
    """
    return {
        "rows": losses.target,
        "columns": losses.source,
        "probabilities": losses.probability.tolist(),
        "drops": losses.drop.T.tolist(),
    }


def word_links(inspection: Inspection) -> dict[str, Any] | None:
    """Return the weights between words of the alignment head, for the links of the page; None without such a head.

    The keys of the dict: 'target' and 'source', the labels of the words without EOS, and 'weights' [target, source],
    flat.
    """
    head = inspection.alignment
    if head is None:
        return None
    words = inspection.map("cross", head.layer, head.head)
    weights = words.weights[:-1, :-1].flatten().tolist()  # without EOS
    return {"target": words.rows[:-1], "source": words.columns[:-1], "weights": weights}


def encode_positions(positions: PositionalEncoding) -> dict[str, Any]:
    """Return a table of vectors as a dict for the page: 'scheme', 'rows', 'columns', 'largest' and 'table'.

    The table is one byte per number, in base64: 127 is 0, 254 is 'largest', the largest absolute value.
    """
    largest = max(float(positions.table.abs().max()), 1e-6)
    levels = (positions.table / largest * 127).round() + 127
    rows, columns = levels.shape
    raw = levels.to(torch.uint8).contiguous().numpy().tobytes()
    size = {"scheme": positions.scheme, "rows": rows, "columns": columns, "largest": largest}
    return size | {"table": encode(raw)}
