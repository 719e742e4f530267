"""Write a model as one HTML page to learn from: Figure 1 to click, films, sliders, attention with one's own numbers.

The page has the weights and computes everything itself (web/transformer.js), so it can be made anew from what is in it:
`read_shown_model`.
"""

import ast
import base64
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.config import TransformerConfig, as_dict, model_config
from dragoman.data.batches import Ids
from dragoman.decoding.search import next_log_p
from dragoman.errors import UsageError
from dragoman.inspection.inspection import Inspection
from dragoman.inspection.model_figure import FRAME, TOTAL, WIDTH, Sort, draw_figure
from dragoman.inspection.page import encode, read_web_file, render_page
from dragoman.inspection.roles import ROLES
from dragoman.model import Model, build_empty, parameter_count
from dragoman.model.attention import MultiHeadAttention, causal_mask, explicit_attention
from dragoman.model.positions import Sinusoidal, sinusoids
from dragoman.model.transformer import FeedForward, Residual, Transformer
from dragoman.translation.translator import Translator

STYLES = ("theme.css", "figures.css", "roles.css", "model.css")
MOST_PARAMETERS = 2_000_000  # of a model that a page has, 11 MB of it: more would take seconds for each change
SUPPORTED = {  # by setting: what the page can compute
    "positions": ("sinusoidal", "rotary", "rotary-across", "none"),
    "attention.score": ("dot", "unscaled"),
    "feed_forward.activation": ("relu", "silu"),
}
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)

# The code that computes each box.
CODE: dict[Sort, tuple[Callable[..., Any], ...]] = {
    "embedding": (Transformer.embed,),
    "positions": (sinusoids, Sinusoidal.embed),
    "self": (MultiHeadAttention.project, MultiHeadAttention.forward, explicit_attention),
    "masked": (causal_mask, MultiHeadAttention.forward, explicit_attention),
    "cross": (MultiHeadAttention.project, MultiHeadAttention.forward, explicit_attention),
    "feed-forward": (FeedForward.forward,),
    "add-norm": (Residual.forward,),
    "norm": (Residual.forward,),
    "add": (Residual.forward,),
    "linear": (Transformer.step,),
    "softmax": (next_log_p,),
}


@dataclass(frozen=True)
class ShownModel:
    """A model, and the pair that its page begins with. The ids have no EOS."""

    name: str
    model: Transformer
    source_pieces: list[str]
    target_pieces: list[str]
    source: Ids
    reference: Ids  # what the film of a training step teaches
    words: list[str]  # that a source may consist of; empty where they are not known


def show_model(translator: Translator, inspection: Inspection, words: Iterable[str] = ()) -> ShownModel:
    """Return what the page of the model of an inspection shows; its film teaches the translation that was inspected.

    translator: the one that was inspected; words: those that a source may consist of. Raise UsageError for a model that
    the page cannot compute.
    """
    check_model(translator.model)
    assert isinstance(translator.model, Transformer)
    if inspection.target_tag:
        raise UsageError("the page of a model begins translations without a tag: leave out --target-tag")
    source, target = (list(side.pieces) for side in (translator.tokenizers.source, translator.tokenizers.target))
    ids = inspection.source.ids, inspection.target.ids
    return ShownModel(inspection.model, translator.model, source, target, *ids, list(words))


def check_model(model: Model) -> None:
    """Raise UsageError for a model that the page cannot compute, with the setting that it does not know."""
    if type(model) is not Transformer or type(model.config) is not TransformerConfig:
        raise UsageError("the page of a model shows a Transformer as in the paper, not a recurrent model or a variant")
    settings: Any = as_dict(model.config)
    for setting, known in SUPPORTED.items():
        value: Any = settings
        for part in setting.split("."):
            value = value[part]
        if value not in known:
            raise UsageError(f"the page of a model cannot compute {setting} = '{value}', only {', '.join(known)}")
    if (count := parameter_count(model)) > MOST_PARAMETERS:
        raise UsageError(f"the model has {count:,} parameters; a page has {MOST_PARAMETERS:,} at most")


def model_page(shown: ShownModel) -> str:
    """Return the HTML page of a model. The same model gives the same bytes."""
    return render_page(
        "model",
        STYLES,
        data=page_data(shown),
        strings=json.loads(read_web_file("model.json")),
        figure=draw_figure(shown.model),
        size={"box": WIDTH, "frame": WIDTH + sum(FRAME), "total": TOTAL},
        code={sort: [describe_code(function) for function in functions] for sort, functions in CODE.items()},
        roles=ROLES,
    )


def page_data(shown: ShownModel) -> dict[str, Any]:
    """Return the data of the page, as JSON types: the fields of `ShownModel`, with the weights in base64 (float32)."""
    first = {id(parameter): name for name, parameter in shown.model.named_parameters()}
    named = dict(shown.model.named_parameters(remove_duplicate=False))
    distinct = {name: parameter for name, parameter in named.items() if first[id(parameter)] == name}
    flat = torch.cat([parameter.detach().float().flatten() for parameter in distinct.values()])
    return {
        "name": shown.name,
        "config": as_dict(shown.model.config),
        "source_pieces": shown.source_pieces,
        "target_pieces": None if shown.target_pieces == shown.source_pieces else shown.target_pieces,
        "source": shown.source,
        "reference": shown.reference,
        "words": shown.words,
        "parameters": [[name, *shape_of(parameter)] for name, parameter in distinct.items()],
        "shared": {name: first[id(parameter)] for name, parameter in named.items() if name not in distinct},
        "weights": encode(flat.cpu().numpy().astype("<f4").tobytes()),
    }


def shape_of(parameter: Tensor) -> tuple[int, int]:
    """Return rows and columns of a parameter; a vector is one row."""
    rows, columns = parameter.shape if parameter.dim() == 2 else (1, len(parameter))
    return rows, columns


def read_shown_model(page: str) -> ShownModel:
    """Return the model that a page of ours shows."""
    match = DATA.search(page)
    assert match
    data = json.loads(match[1])
    config = model_config(data["config"], "the page")
    source, target = data["source_pieces"], data["target_pieces"] or data["source_pieces"]
    model = build_empty(config, len(source), len(target))
    assert isinstance(model, Transformer)
    flat = torch.frombuffer(bytearray(base64.b64decode(data["weights"])), dtype=torch.float32)
    sizes = [rows * columns for _, rows, columns in data["parameters"]]
    state = model.state_dict()
    for (name, *_), values in zip(data["parameters"], flat.split(sizes), strict=True):
        state[name].copy_(values.view_as(state[name]))
    return ShownModel(data["name"], model.eval(), source, target, data["source"], data["reference"], data["words"])


def describe_code(function: Callable[..., Any]) -> dict[str, str]:
    """Return where a function is, and its source without docstring, as 'place' and 'text'."""
    text = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    lines = text.rstrip().splitlines()
    docstring = definition.body[0]
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    module = function.__module__.replace(".", "/")
    return {"place": f"src/{module}.py, {function.__qualname__}", "text": "\n".join(lines)}
