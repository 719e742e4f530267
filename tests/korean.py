"""Find English in Korean texts."""

import re
from collections.abc import Iterable

# Names, code and words of examples, which stay as they are in Korean.
LATIN = {
    *"RNN LSTM GRU Transformer tanh ReLU GELU SiLU relu gelu silu Adam PyTorch CPU MiB ms nat BLEU chrF NaN".split(),
    *"ROC Khandelwal".split(),
    *"pre-norm post-norm tiny True sqrt softmax dot min max sin cos log_k step warmup lookup soft EOS pad".split(),
    *"d_model d_k d_v d_ff max_length nn scaled_dot_product_attention MultiheadAttention newstest Xiong Wu".split(),
    *"W_Q W_K x_i x_j z_n ab apple go home am dog student Thinking Machines train tsv test".split(),
    "rotary-across",
}


def english(texts: Iterable[str]) -> list[str]:
    """Return the texts that have a word in Latin letters that is not one of LATIN; a single letter is no word."""
    without_formulas = (
        re.sub(r"\$[^$]*\$|\b[A-Za-z]+(_[a-zA-Z])?\^[-A-Z\d.]+|\b[\dA-F]{2}\b", "", text) for text in texts
    )
    return [
        text
        for text in without_formulas
        if any(word not in LATIN for word in re.findall(r"[A-Za-z](?:[A-Za-z_-]*[A-Za-z])", text))
    ]
