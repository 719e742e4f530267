"""Words to vectors and back: the embeddings and the output matrix (section 3.4)."""

from torch import nn

from dragoman.config import SharedMatrices
from dragoman.errors import UsageError


def word_matrices(
    vocabulary: int,
    target_vocabulary: int | None,
    d_model: int,
    share: SharedMatrices,
    pad: int,
    output_bias: bool = False,
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """Return the source embedding, the target embedding, and the output that turns vectors into logits.

    vocabulary, target_vocabulary: ids on each side, None for as many as the source's; pad: the id whose vector is zero.
    `share` says which of the three are one matrix: all, both embeddings, target embedding and output, or none.
    Embeddings start small enough for an output that shares them. Raise UsageError where two vocabularies of different
    size should share.
    """
    words = target_vocabulary or vocabulary
    if share in ("all", "embeddings") and words != vocabulary:
        raise UsageError(
            f"share = '{share}' needs one vocabulary for both languages, "
            f"not {vocabulary} source and {words} target words: choose 'output' or 'none'"
        )
    source = word_embedding(vocabulary, d_model, pad)
    target = word_embedding(words, d_model, pad)
    if share in ("all", "embeddings"):
        target.weight = source.weight
    output = nn.Linear(d_model, words, output_bias)
    nn.init.xavier_uniform_(output.weight)
    if output_bias:
        nn.init.zeros_(output.bias)
    if share in ("all", "output"):
        output.weight = target.weight
    return source, target, output


def word_embedding(words: int, d_model: int, pad: int) -> nn.Embedding:
    """Return a new embedding of `words` ids with standard deviation d_model^-0.5, and zeros for the id `pad`."""
    vectors = nn.Embedding(words, d_model, padding_idx=pad)
    nn.init.normal_(vectors.weight, std=d_model**-0.5)
    nn.init.zeros_(vectors.weight[pad].detach())
    return vectors
