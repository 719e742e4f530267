"""Measure the gradient of the loss in each layer of a model, and how far the layer has moved."""

import math
from collections.abc import Iterable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.data.batches import Batch
from dragoman.model import Model
from dragoman.model.recurrent import Recurrence
from dragoman.model_folder.weights import named_tensors

LayerNumbers = dict[str, float]  # a number for each layer, by its name


def layer_name(model: Model, parameter: str) -> str:
    """Return the layer that a parameter belongs to: 'encoder 1', 'decoder 2', 'decoder norm', ..."""
    part, *inside = parameter.split(".")
    stack = getattr(model, part)
    if isinstance(stack, nn.ModuleList):
        return f"{part} {int(inside[0]) + 1}"
    if isinstance(stack, Recurrence):
        if isinstance(stack.cells, nn.ModuleList):  # cells.3.input.weight
            return f"{part} {int(inside[1]) // stack.directions + 1}"
        return f"{part} {int(inside[1].split('_')[2][1:]) + 1}"  # cells.weight_ih_l0_reverse
    return part.replace("_", " ")


def parameters_by_layer(model: Model) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of each layer, by its name, as `layer_name` gives it.

    A matrix that layers share is an entry of its own, under all their names: 'source embedding = output'.
    """
    layers: dict[str, list[nn.Parameter]] = {}
    for names, tensor in named_tensors(model):
        if isinstance(tensor, nn.Parameter):
            layers.setdefault(" = ".join(layer_name(model, name) for name in names), []).append(tensor)
    return layers


def total_norm(tensors: Iterable[Tensor]) -> float:
    """Return the Euclidean norm of all tensors together, as one long vector."""
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))


def loss_and_gradient_norms(model: Model, batches: Sequence[Batch], smoothing: float) -> tuple[float, LayerNumbers]:
    """Return the training loss on `batches`, in nats per target token, without dropout, and its gradient norm by layer.

    smoothing: of the labels. Leaves the model in evaluation mode and without gradients.
    """
    model.eval().zero_grad()
    tokens, total = sum(batch.tokens for batch in batches), 0.0
    for batch in batches:
        logits = model(batch.source, batch.target, batch.real)
        labels = batch.labels[batch.real]
        loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing) / tokens
        loss.backward()
        total += float(loss.detach())
    norms = {
        name: total_norm(parameter.grad for parameter in parameters if parameter.grad is not None)
        for name, parameters in parameters_by_layer(model).items()
    }
    model.zero_grad()
    return total, norms


def relative_updates(before: Model, after: Model) -> LayerNumbers:
    """Return by layer the norm of the change between two checkpoints, as a share of the norm of the new weights."""
    updates = {}
    for (name, old), new in zip(parameters_by_layer(before).items(), parameters_by_layer(after).values(), strict=True):
        change = total_norm(b.detach() - a.detach() for a, b in zip(old, new, strict=True))
        updates[name] = change / total_norm(new) if change else 0.0
    return updates
