"""Cross-entropy with label smoothing (section 5.4)."""

from typing import Any

import torch
from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Sum over N tokens of the cross-entropy between the smoothed label and the prediction, in nats.

    logits (N, V), labels (N,). The smoothed label gives 1 - smoothing to the right word and spreads `smoothing` evenly
    over all V words, the right one included. A sum, so that the caller divides by however many tokens there are in all
    batches and on all machines that share an update.
    """
    return _SmoothedCrossEntropy.apply(logits, labels, smoothing)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Two tensors of the size of the logits, one each way; PyTorch's own loss makes and adds several."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        log_p = logits.log_softmax(-1)
        ctx.save_for_backward(log_p, labels)
        ctx.smoothing = smoothing
        right = log_p.gather(1, labels[:, None]).sum()
        if not smoothing:
            return -right
        return -(1 - smoothing) * right - smoothing / log_p.size(1) * log_p.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_p, labels = ctx.saved_tensors
        gradient = log_p.exp()  # becomes softmax - smoothed label, times the incoming gradient
        gradient.sub_(ctx.smoothing / log_p.size(1)).mul_(grad)
        gradient.scatter_add_(1, labels[:, None], (grad * (ctx.smoothing - 1)).expand(len(labels), 1))
        return gradient, None, None
