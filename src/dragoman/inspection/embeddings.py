"""The space of the embeddings: which entries of the vocabulary lie near the words of a sentence.

Shapes: V vocabulary, M d_model, W words, N neighbours.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.alignment.words import token_label
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.inspection.inspection import Inspection, Sentence
from dragoman.model import Model

NEIGHBOURS = 5  # of each word


@dataclass(frozen=True)
class Neighbourhood:
    """The words of one side of a pair among the embeddings of that side."""

    words: list[str]  # W, each once, without EOS
    vectors: Tensor  # (W, M): the mean of the embeddings of a word's subwords
    neighbours: list[list[int]]  # W lists of at most N ids, the nearest first
    labels: list[list[str]]  # of the neighbours
    cosines: list[list[float]]  # between a word and each neighbour
    table: Tensor  # (V, M)

    @property
    def near(self) -> dict[int, str]:
        """Return the labels of all neighbours, each once, by their ids."""
        rows = zip(self.neighbours, self.labels, strict=True)
        return {index: label for row in rows for index, label in zip(*row, strict=True)}

    @property
    def points(self) -> Tensor:
        """Return the words and then those of `near` on the two axes (W + N', 2) along which they vary most."""
        return principal_components(torch.cat([self.vectors, self.table[list(self.near)]]))


def principal_components(x: Tensor) -> Tensor:
    """Return x (B, M) on the two axes (B, 2) along which it varies most; a single point is at 0."""
    if len(x) < 2:
        return x.new_zeros(len(x), 2)
    centred = x - x.mean(0)
    axes = torch.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ axes.T


def neighbourhoods(model: Model, tokenizers: Tokenizers, inspection: Inspection) -> tuple[Neighbourhood, Neighbourhood]:
    """Return the words of source and target among the embeddings of a model with these tokenizers."""
    return (
        neighbourhood(model.source_embedding.weight, inspection.source, tokenizers.source),
        neighbourhood(model.target_embedding.weight, inspection.target, tokenizers.target),
    )


@torch.no_grad()
def neighbourhood(weight: Tensor, sentence: Sentence, tokenizer: SideTokenizer) -> Neighbourhood:
    """Return the words of a sentence among the rows of an embedding (V, M), nearest by cosine.

    Neither a word's own subwords nor entries without text, such as padding, tags and bytes, count as neighbours.
    """
    table = weight.detach().float().cpu()
    token_ids = {word.label: [sentence.ids[position] for position in word.tokens] for word in sentence.words[:-1]}
    vectors = torch.stack([table[ids].mean(0) for ids in token_ids.values()]) if token_ids else table[:0]
    cosines = F.normalize(vectors, dim=-1) @ F.normalize(table, dim=-1).T
    cosines[:, [*tokenizer.special_ids, *tokenizer.byte_values]] = -torch.inf
    if tokenizer.unknown is not None:
        cosines[:, tokenizer.unknown] = -torch.inf
    for row, ids in zip(cosines, token_ids.values(), strict=True):
        row[ids] = -torch.inf
    nearest = cosines.topk(min(NEIGHBOURS, len(table)), dim=-1)
    pairs = [
        [(index, cosine) for index, cosine in zip(*row, strict=True) if cosine > -torch.inf]
        for row in zip(nearest.indices.tolist(), nearest.values.tolist(), strict=True)
    ]
    return Neighbourhood(
        list(token_ids),
        vectors,
        [[index for index, _ in row] for row in pairs],
        [[token_label(tokenizer, index) for index, _ in row] for row in pairs],
        [[cosine for _, cosine in row] for row in pairs],
        table,
    )
