"""Collect the output of every layer.

Shapes: L layers, B sentences, S or T tokens, M d_model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from dragoman.model.transformer import TokenContext, Transformer


@dataclass
class LayerOutputs:
    """The outputs of all calls of the layers inside `layer_outputs`."""

    encoder_layers: list[Tensor] = field(default_factory=list)
    decoder_layers: list[Tensor] = field(default_factory=list)

    @property
    def encoder(self) -> Tensor:
        """The outputs of the encoder layers, (L, B, S, M), with zeros in padding."""
        return torch.stack(self.encoder_layers)

    @property
    def decoder(self) -> Tensor:
        """The outputs of the decoder layers, (L, B, T, M), with zeros in padding."""
        return torch.stack(self.decoder_layers)


@contextmanager
def layer_outputs(model: Transformer) -> Iterator[LayerOutputs]:
    """Yield an object that collects the outputs of all encoder and decoder layers while the model runs in the block.

    Gradients flow through them. The model's weights and outputs stay as they are.
    """
    collected = LayerOutputs()

    def keep(outputs: list[Tensor]) -> Callable[[nn.Module, tuple, Tensor], None]:
        def hook(layer: nn.Module, arguments: tuple, output: Tensor) -> None:
            context: TokenContext = arguments[1]
            outputs.append(context.packing.unpack(output))

        return hook

    hooks = [layer.register_forward_hook(keep(collected.encoder_layers)) for layer in model.encoder]
    hooks += [layer.register_forward_hook(keep(collected.decoder_layers)) for layer in model.decoder]
    try:
        yield collected
    finally:
        for hook in hooks:
            hook.remove()
