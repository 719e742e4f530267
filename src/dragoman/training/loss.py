"""Compute cross-entropy with label smoothing (section 5.4), together with the output matrix before it.

Logits are the largest tensor of training: 25,000 tokens times 37,000 words are 3.7 GB, and PyTorch's own loss makes
several of that size. Here, blocks of rows are computed one after the other and turned into their gradient in place, so
that no more than `BLOCK` logits exist. The steps from logits to gradient take smaller pieces, which stay in cache.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dragoman.data.batches import Batch
from dragoman.model import Model
from dragoman.model.packing import packed_rows

BLOCK = {"cpu": 2**24, "cuda": 2**27}  # logits of a matmul: the more, the faster it is
PIECE = 2**18  # logits of a pass on a CPU, for each thread: 1 MB, which stays in a core's cache


class Objective(nn.Module):
    """The loss of a model on a batch, in nats, summed over its target tokens. Training minimises it."""

    def __init__(self, model: Model, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        """Return the label-smoothed loss of a batch, in nats, summed over its target tokens."""
        state: Any = self.model.start(batch.source)
        vectors = self.model.vectors(batch.target, state, batch.real)
        output = self.model.output
        return output_loss(vectors, output.weight, output.bias, batch.labels[batch.real], self.smoothing)


def output_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Tensor:
    """Return the sum over N tokens of the cross-entropy between smoothed label and prediction, in nats.

    vectors (N, M), the decoder's; weight (V, M) and bias (V,) of the output; labels (N,). The smoothed label gives
    1 - smoothing to the right word and spreads `smoothing` evenly over all V words, the right one included. It is a sum
    so that the caller can divide by the tokens of all micro-batches and processes that share an update. Under autocast
    the matmuls are in its dtype; the softmax is always in the dtype of `weight`.
    """
    return _OutputLoss.apply(vectors, weight, bias, labels, smoothing, torch.is_grad_enabled())


def softmax_loss(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, V) of the loss of `output_loss` by the logits (N, V), and that loss; labels (N, 1)."""
    words = logits.size(-1)
    softmax = logits.softmax(-1)
    log_sum = logits.amax(-1) - softmax.amax(-1).log()  # log of the sum of all exponentials
    loss = log_sum.sum() - (1 - smoothing) * logits.gather(1, labels).sum()
    gradient = softmax  # minus the smoothed label
    if smoothing:
        loss -= smoothing / words * logits.sum()
        gradient -= smoothing / words
    gradient.scatter_add_(1, labels, gradient.new_full(labels.shape, smoothing - 1))
    return gradient, loss


class _OutputLoss(torch.autograd.Function):
    """Compute the gradient in the forward pass already, while the logits are there."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> Tensor:
        """Return the loss, computed in blocks of rows so that the logits of a whole batch are never in memory at once.

        Its gradients by vectors, weight and bias are kept for `backward` where `needs_gradient`.
        """
        device = vectors.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        words, exact = len(weight), torch.promote_types(weight.dtype, torch.float32)
        added = packed_rows(len(vectors), vectors.device) - len(vectors)  # rows of zeros, without a label
        with torch.autocast(device, enabled=False):
            x, w = vectors.to(dtype), weight.to(dtype)
            if added:  # otherwise it would be copied
                x = nn.functional.pad(x, (0, 0, 0, added))
            d_vectors, d_weight = (torch.empty_like(x), torch.zeros_like(weight)) if needs_gradient else (None, None)
            d_bias = torch.zeros_like(bias) if needs_gradient and bias is not None else None
            loss = torch.zeros((), dtype=exact, device=vectors.device)
            rows = max(1, min(BLOCK[device] // words, len(x)))
            rows_of_piece = max(1, PIECE * torch.get_num_threads() // words) if device == "cpu" else rows
            buffer = x.new_empty(rows, words)
            for start in range(0, len(x), rows):
                part, answers = x[start : start + rows], labels[start : start + rows]
                block = torch.mm(part, w.T, out=buffer[: len(part)])
                split = (block[: len(answers)].split(rows_of_piece), answers.split(rows_of_piece))
                for piece, right in zip(*split, strict=True):
                    logits = piece.to(exact)
                    if bias is not None:
                        logits += bias
                    gradient, loss_of_piece = softmax_loss(logits, right[:, None], smoothing)
                    loss += loss_of_piece
                    if d_bias is not None:
                        d_bias += gradient.sum(0)
                    piece.copy_(gradient)
                if d_vectors is None or d_weight is None:
                    continue
                torch.mm(block, w, out=d_vectors[start : start + rows])
                if dtype == d_weight.dtype:
                    d_weight.addmm_(block.T, part)  # without a matrix of its own for the product
                else:
                    d_weight += block.T @ part
        ctx.save_for_backward(None if d_vectors is None else d_vectors[: len(vectors)], d_weight, d_bias)
        ctx.dtype = vectors.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients kept by `forward`, times `grad`."""
        d_vectors, d_weight, d_bias = ctx.saved_tensors
        return (
            (d_vectors * grad).to(ctx.dtype),
            d_weight * grad.to(d_weight.dtype),
            None if d_bias is None else d_bias * grad.to(d_bias.dtype),
            None,
            None,
            None,
        )
