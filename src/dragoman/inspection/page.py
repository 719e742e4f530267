"""One page to share: everything that an inspection found, in one HTML file that loads nothing from anywhere."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import torch
from markupsafe import Markup
from torch import Tensor

from dragoman.inspection.inspection import KINDS, Inspection, Kind
from dragoman.inspection.occlusion import Occlusion, occlusion
from dragoman.inspection.plots.positions import Encoding, added
from dragoman.inspection.record import record
from dragoman.model import Model

SCRIPTS = ("elements", "map", "attention", "words", "tables", "tree", "page")  # each uses those before it
STEPS = 255  # weights, from 0 to 1, are rounded to one of these
SHOWN_POSITIONS = 50  # or as many as the sentence has
MOST_SCORED = 3000  # tokens, of all the pairs with a source word left out: seconds for a large model on one core
SIDES: dict[Kind, tuple[str, str]] = {
    "encoder": ("source", "source"),
    "decoder": ("read", "read"),
    "cross": ("target", "source"),
}


def page(inspection: Inspection, model: Model) -> str:
    """The whole document. A long sentence is not scored again without each of its words: the page says so."""
    source, target = inspection.source, inspection.target
    tokens = len(source.words) * (len(source.pieces) + len(target.pieces))
    effects = occlusion(model, inspection) if tokens <= MOST_SCORED else None
    positions = added(model, max(SHOWN_POSITIONS, len(source.pieces)))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(read("page.html")).render(
        data=contents(inspection, effects, positions),
        strings=json.loads(read("strings.json")),
        style=Markup(read("page.css")),  # our own files: the only text that is not escaped
        script=Markup(script()),
        fingerprint=fingerprint,
    )


def read(name: str) -> str:
    """A file of the page."""
    return (Path(__file__).parent / "web" / name).read_text(encoding="utf-8")


def script() -> str:
    return "\n".join(read(f"{part}.js") for part in SCRIPTS)


def fingerprint(text: str) -> str:
    """By it the page's policy knows its own script and style: no other ones run, whatever a sentence holds."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def contents(inspection: Inspection, effects: Occlusion | None, positions: Encoding | None) -> dict[str, Any]:
    """The data block of the page."""
    return record(inspection) | {
        "kinds": [maps(inspection, kind) for kind in KINDS if len(inspection.maps(kind))],
        "links": links(inspection),
        "occlusion": effects
        and {
            "rows": effects.target,
            "columns": effects.source,
            "probabilities": effects.probability.tolist(),
            "drops": effects.drop.T.tolist(),
        },
        "positions": positions and table(positions),
    }


def maps(inspection: Inspection, kind: Kind) -> dict[str, Any]:
    """All weights of a kind in one block of bytes, [layer][head][query][key], and its rollouts, [layer][query][key]."""
    found = inspection.maps(kind)
    layers, heads = found.shape[:2]
    rollouts = None
    if len(inspection.encoder):  # a recurrent model has none
        rollouts = packed(torch.stack([inspection.weights(kind, n + 1, None, "rollout") for n in range(layers)]))
    rows, columns = SIDES[kind]
    shape = {"rows": rows, "columns": columns, "layers": layers, "heads": heads}
    return {"name": kind, **shape, "weights": packed(found), "rollout": rollouts}


def packed(weights: Tensor) -> str:
    """One byte for each: off by 1/510 at most."""
    steps = (weights.clamp(0, 1) * STEPS).round().to(torch.uint8)
    return base64.b64encode(steps.contiguous().numpy().tobytes()).decode()


def links(inspection: Inspection) -> dict[str, Any] | None:
    """How much each word of the translation looked at each source word, without the ends, by the model's alignment."""
    which = inspection.alignment
    if which is None:
        return None
    found = inspection.map("cross", which.layer, which.head)
    weights = found.weights[:-1, :-1].flatten().tolist()
    return {"target": found.rows[:-1], "source": found.columns[:-1], "weights": weights}


def table(positions: Encoding) -> dict[str, Any]:
    """A signed table in bytes: 127 is 0, 254 the largest value."""
    most = max(float(positions.table.abs().max()), 1e-6)
    steps = (positions.table / most * 127).round() + 127
    rows, columns = steps.shape
    raw = steps.to(torch.uint8).contiguous().numpy().tobytes()
    found = {"scheme": positions.scheme, "rows": rows, "columns": columns, "most": most}
    return found | {"table": base64.b64encode(raw).decode()}
