"""The lab: claims about Transformers, from the paper and from common teaching, each tested by a small program.

Each experiment is a module of this package whose function `run` is an `@experiment`; it is loaded when it is run. A
claim is a sentence with two outcomes, and a condition on what was measured that chooses one. To add an experiment,
write the module and add its line here: experiment.py has its parts, drawing.py the usual figures, tasks.py small tasks
to train on; self_focus.py is a short example. Comparisons train on sentence pairs, which the user names: comparing.py
trains, comparisons.py lists them.

Shapes: B sentences, T queries or target words, S keys or source words, H heads, K d_k, V d_v, M d_model or another size
of vectors, N tokens, n positions, D draws of weights.
"""

from pathlib import Path

from dragoman.text import speech

SECTIONS = {
    "Why not recurrence": {
        "long-range": "how much gradient reaches a distant word: RNN, LSTM, both directions, self-attention",
        "recall": "recalling a distant word: accuracy by distance, for each kind of model",
        "activations": "tanh, ReLU and GELU in a plain RNN: its state and gradient over time",
        "context": "one word with several meanings: which encoders tell them apart, by the distance of the clue",
        "parallel": "all words at once, or one after another: time by length",
    },
    "Attention": {
        "worked-examples": "'I go home', 'Thinking Machines' and 'I am dog' in five stages, with all numbers",
        "self-focus": "without query and key matrices each word looks at itself",
        "retrieval": "query, key and value as a soft lookup in a dictionary",
        "shared-projections": "one matrix for query, key and value, or three",
        "scaling": "why scores are divided by the root of d_k: variance, saturation, gradient",
        "unscaled-training": "learning with and without the division, at a large d_k",
        "additive": "additive against dot-product attention: time, memory, quality by d_k",
        "masks": "adding minus infinity before the softmax, and what multiplying by 1e-9 does instead",
        "order": "without positions a sentence is a bag of words",
        "head-by-head": "heads one after another or in one product: the same results, parameters and work; the time",
        "heads": "1 to 32 heads of equal size: what they cost, how they differ, how they learn",
    },
    "Words and positions": {
        "subwords": "from text to ids: words, byte-pair encoding by hand, bytes, shifted targets, masks",
        "embedding": "one-hot vectors times a matrix, or a lookup",
        "sinusoids": "the positional encoding: rows, distances, wavelengths, shifts",
        "position-schemes": "integers, fractions, binary and Gray code, a line, sinusoids: which meet the conditions",
        "learned-positions": "sinusoidal, learned, rotary, relative, none: learning, and longer input than in training",
        "sum-or-concat": "adding positions to words, or concatenating the two",
    },
    "The block": {
        "residuals": "deep stacks with and without x + f(x)",
        "norms": "layer norm and batch norm: padding and the size of the batch",
        "pre-post-norm": "the norm before or after each layer: gradients at the start, learning without warm-up",
        "feed-forward": "two matrices at each position: ReLU and GELU, two convolutions of width one",
    },
    "The whole model": {
        "complexity": "Table 1: operations, sequential steps, longest path; formulas and measured times",
        "restricted": "self-attention within r neighbours",
        "table-3": "the variants of Table 3: sizes beside the paper's",
        "schedule": "the learning rate of equation 3, with and without warm-up",
        "label-smoothing": "smoothed targets: the best loss that can be reached, and what they do to probabilities",
        "length-penalty": "beam search and the length penalty",
        "calibration": "probability is not truth: words, outputs of a search, length; with and without smoothing",
        "memory": "what a memory of approved pairs can do without training, new words, and what it cannot, a new order",
    },
}

EXPERIMENTS = {name: purpose for section in SECTIONS.values() for name, purpose in section.items()}

COMPARISONS = {
    "compare-recurrence": "RNN, GRU and LSTM, with and without attention, and the Transformer",
    "compare-positions": "rotary (also in attention over the source), relative, sinusoidal, learned, none",
    "compare-norms": "the norm before or after each layer, with and without warm-up, at a constant learning rate",
    "compare-heads": "1 to 16 heads of equal total size",
    "compare-scores": "scaled and unscaled dot products, additive attention",
    "compare-smoothing": "with and without label smoothing",
    "compare-tying": "one matrix for embeddings and output, two, or three",
    "compare-dropout": "dropout after each sublayer, none, or inside feed-forward layers too",
    "compare-activations": "ReLU, GELU and SiLU in feed-forward layers",
    "compare-embedding-scale": "embeddings with and without the factor √d_model",
    "compare-shared-projections": "three matrices for query, key and value, two, or one",
    "compare-layer-pool": "the last encoder layer, or a learned mixture of all",
    "compare-embedding-norm": "embeddings with and without a norm of their own",
}

CATALOGUE = Path(__file__).parent / "ko.po"  # all texts in both languages


def speaker(language: speech.Language, name: str = "") -> speech.Say:
    """Return what says in a language the texts of an experiment or comparison; without a name those of the report."""
    return speech.speaker(language, CATALOGUE, catalogue_context(name))


def catalogue_context(name: str) -> str:
    """Return the context that the texts of an experiment have in the catalogue; comparisons share one."""
    return "comparisons" if name in COMPARISONS else name
