"""The comparisons: what is claimed of variants that differ in one thing, and all of them by name."""

from dataclasses import replace
from typing import Any

from dragoman.config import AttentionConfig, RecurrentConfig
from dragoman_lab.ablation import AblationConfig
from dragoman_lab.comparing import CLEARLY, LEARNED, MODEL, TRAINING, Comparison, Scores, Variant, are_alike
from dragoman_lab.experiment import Claims
from dragoman_lab.shared_projections import ONE, PAIR, SEPARATE

BASE = Variant("transformer")
TRANSFORMER = "Transformer"
CELLS = {  # with nearly as many parameters as BASE
    "RNN": RecurrentConfig("rnn", 268, layers=2),
    "GRU": RecurrentConfig("gru", 184, layers=2),
    "LSTM": RecurrentConfig("lstm", 168, layers=2),
}


def attending_label(cell: str) -> str:
    """Return the label of the recurrent variant of this cell that attends to the source."""
    return f"{cell} with attention"


def claim_recurrence(scores: Scores) -> Claims:
    """Return the claims on recurrent models, with and without attention, and whether each holds."""
    score, kept = scores.bleu, scores.kept
    pairs = [(cell, attending_label(cell)) for cell in CELLS]
    gains = ", ".join(f"{score[cell]:.1f} to {score[attending]:.1f} ({cell})" for cell, attending in pairs)
    left = ", ".join(f"{kept[cell]:.0%} against {kept[attending]:.0%} ({cell})" for cell, attending in pairs)
    best = max(score[attending] for _, attending in pairs)
    return {
        f"Attention over the source [makes|does not make] every recurrent model clearly better: from {gains} "
        "BLEU.": min(score[other] - score[cell] for cell, other in pairs) > CLEARLY,
        "From the shortest to the longest quarter of the sentences, [every|not every] recurrent model loses more BLEU "
        f"without attention than with it. The share of BLEU that remains is {left}, and {kept[TRANSFORMER]:.0%} for "
        "the Transformer.": all(kept[cell] < kept[other] for cell, other in pairs) and scores.highest >= LEARNED,
        "The Transformer is [clearly|not clearly] ahead of every recurrent model after the same steps: "
        f"{score[TRANSFORMER]:.1f} BLEU.": score[TRANSFORMER] - best > CLEARLY,
    }


ACROSS = "rotary-across"


def claim_positions(scores: Scores) -> Claims:
    """Return the claims on position schemes, and whether each holds."""
    score = scores.bleu
    others = max(bleu for name, bleu in score.items() if name != ACROSS)
    return {
        f"Sinusoids [are|are not] clearly better than no positions: {score['sinusoidal']:.1f} against "
        f"{score['none']:.1f} BLEU.": score["sinusoidal"] - score["none"] > CLEARLY,
        f"Learned and sinusoidal positions [are|were not found to be] nearly equal: {score['learned']:.1f} and "
        f"{score['sinusoidal']:.1f} BLEU.": are_alike(score["sinusoidal"], score["learned"]),
        "Encoding distances in attention over the source as well [is|is not] clearly ahead of every other scheme after "
        f"these steps: {score[ACROSS]:.1f} BLEU against {score['rotary']:.1f} (rotary) and {score['relative']:.1f} "
        "(relative).": score[ACROSS] - others > CLEARLY,
    }


STEADY = replace(TRAINING, schedule="constant", learning_rate=0.002, warmup=200)


def claim_norms(scores: Scores) -> Claims:
    """Return the claims on the norm before or after each layer, with and without warm-up, and whether each holds."""
    (warm_pre, cold_pre), (warm_post, cold_post) = (
        [scores.bleu[f"{where}-norm, {warmup}"] for warmup in ("warm-up", "none")] for where in ("pre", "post")
    )
    return {
        f"Post-norm [learns clearly less|does not learn clearly less] without the warm-up: {cold_post:.1f} BLEU "
        f"without it, {warm_post:.1f} with it.": warm_post - cold_post > CLEARLY,
        f"Pre-norm [learns|does not learn] as much without the warm-up: {cold_pre:.1f} BLEU without it, {warm_pre:.1f} "
        "with it.": warm_pre - cold_pre < CLEARLY and cold_pre >= LEARNED,
    }


def claim_heads(scores: Scores) -> Claims:
    """Return the claims on the number of heads, and whether each holds."""
    score, highest = scores.bleu, scores.highest
    return {
        f"One head is [clearly|not clearly] worse than the best number, {max(score, key=score.__getitem__)}: "
        f"{score['1']:.1f} against {highest:.1f} BLEU.": highest - score["1"] > CLEARLY,
        f"With 16 heads quality [drops|does not clearly drop]: {score['16']:.1f} BLEU.": highest - score["16"]
        > CLEARLY,
    }


SMALL, LARGE = 32, 128  # d_k with 4 heads and with one
DOT, UNSCALED, ADDITIVE = (f"{score}, d_k {SMALL}" for score in ("scaled", "unscaled", "additive"))
DOT_LARGE, UNSCALED_LARGE = (f"{score}, d_k {LARGE}" for score in ("scaled", "unscaled"))


def claim_scores(scores: Scores) -> Claims:
    """Return the claims on kinds of attention scores, and whether each holds."""
    score = scores.bleu
    return {
        "Without the division by the root of d_k, learning is [clearly|not clearly] worse at d_k = 128: "
        f"{score[UNSCALED_LARGE]:.1f} against {score[DOT_LARGE]:.1f} BLEU (at d_k = 32: {score[UNSCALED]:.1f} against "
        f"{score[DOT]:.1f}).": score[DOT_LARGE] - score[UNSCALED_LARGE] > CLEARLY,
        f"Additive and scaled dot-product attention [are|were not shown to be] equally good: {score[ADDITIVE]:.1f} "
        f"and {score[DOT]:.1f} BLEU.": are_alike(score[DOT], score[ADDITIVE]),
    }


def claim_smoothing(scores: Scores) -> Claims:
    """Return the claims on label smoothing, and whether each holds."""
    score, loss = scores.bleu, scores.loss
    return {
        f"Label smoothing [improves|does not clearly improve] BLEU: {score['0.1']:.1f} against "
        f"{score['0']:.1f}.": score["0.1"] - score["0"] > CLEARLY,
        f"Label smoothing [hurts|does not hurt] the loss on dev sentences: {loss['0.1']:.3f} against {loss['0']:.3f} "
        "nats per token.": loss["0.1"] > loss["0"],
    }


def claim_tying(scores: Scores) -> Claims:
    """Return the claim on one matrix for embeddings and output, and whether it holds."""
    score, size = scores.bleu, scores.size
    better = score["all"] > max(score["none"], LEARNED)
    return {
        "One matrix for both embeddings and the output [costs no quality|was not shown to cost no quality]: "
        f"{score['all']:.1f} BLEU with {size['all']:,} parameters, against {score['none']:.1f} with three matrices and "
        f"{size['none']:,} parameters.": better or are_alike(score["all"], score["none"])
    }


def claim_dropout(scores: Scores) -> Claims:
    """Return the claims on dropout, and whether each holds."""
    score = scores.bleu
    return {
        f"Dropout after each sublayer [helps|does not clearly help]: {score['0.1']:.1f} BLEU with 0.1, "
        f"{score['0']:.1f} without.": score["0.1"] - score["0"] > CLEARLY,
        "Dropout inside the feed-forward layers as well [adds to that|adds nothing clear]: "
        f"{score['0.1, feed-forward too']:.1f} BLEU.": score["0.1, feed-forward too"] - score["0.1"] > CLEARLY,
    }


def claim_activations(scores: Scores) -> Claims:
    """Return the claim on the activation of the feed-forward layers, and whether it holds."""
    score = scores.bleu
    each = ", ".join(f"{bleu:.1f} ({name})" for name, bleu in score.items())
    return {
        f"ReLU, GELU and SiLU [are alike|were not found to be alike]: {each} BLEU.": are_alike(
            min(score.values()), max(score.values())
        )
    }


def claim_embedding_scale(scores: Scores) -> Claims:
    """Return the claim on the factor in front of embeddings, and whether it holds."""
    score = scores.bleu
    return {
        f"Without the factor √d_model a model learns [clearly worse|not clearly worse]: {score['none']:.1f} against "
        f"{score['√d_model']:.1f} BLEU.": score["√d_model"] - score["none"] > CLEARLY
    }


def claim_shared_projections(scores: Scores) -> Claims:
    """Return the claims on one matrix for queries and keys, and for values too, and whether each holds."""
    score, size = scores.bleu, scores.size
    return {
        f"One matrix for query and key [is|is not] clearly worse than two: {score[PAIR]:.1f} against "
        f"{score[SEPARATE]:.1f} BLEU.": score[SEPARATE] - score[PAIR] > CLEARLY,
        f"One matrix for query, key and value [is|is not] clearly worse than three: {score[ONE]:.1f} BLEU, with "
        f"{size[ONE]:,} parameters instead of {size[SEPARATE]:,}.": score[SEPARATE] - score[ONE] > CLEARLY,
    }


def claim_layer_pool(scores: Scores) -> Claims:
    """Return the claim on a mixture of encoder layers, and whether it holds."""
    score = scores.bleu
    return {
        "A mixture of all encoder layers [is|is not] clearly better than the last one: "
        f"{score['mixture']:.1f} against {score['last layer']:.1f} BLEU.": score["mixture"] - score["last layer"]
        > CLEARLY
    }


def claim_embedding_norm(scores: Scores) -> Claims:
    """Return the claim on a norm of the embeddings, and whether it holds."""
    score = scores.bleu
    return {
        f"A norm of the embeddings [helps|does not clearly help]: {score['norm']:.1f} against {score['none']:.1f} "
        "BLEU.": score["norm"] - score["none"] > CLEARLY
    }


def variant_with_change(change: Any) -> Variant:
    """Return the variant with a change of the architecture that `AblationConfig` has a name for."""
    return Variant(change, AblationConfig(**vars(MODEL), change=change))


def variant_with_feed_forward(name: str, **changes: Any) -> Variant:
    """Return the variant of this run folder `name` whose feed-forward layers have these other settings."""
    return Variant(name, replace(MODEL, feed_forward=replace(MODEL.feed_forward, **changes)))


def variant_with_heads(name: str, heads: int, score: Any = "dot") -> Variant:
    """Return the variant of this run folder `name` with so many heads and this kind of score ("dot", "unscaled" or
    "additive").
    """
    return Variant(name, replace(MODEL, attention=AttentionConfig(heads=heads, score=score)))


ONE_HEAD = variant_with_heads("heads-1", 1)
COMPARISONS = {
    "compare-recurrence": Comparison(
        "Recurrent models and the Transformer",
        "section 1",
        "A recurrent model forgets long sentences. Attention over the source helps it, and attention alone is even "
        "better.",
        {
            TRANSFORMER: BASE,
            **{attending_label(label): Variant(f"{model.cell}-dot", model) for label, model in CELLS.items()},
            **{label: Variant(f"{m.cell}-none", replace(m, attention="none")) for label, m in CELLS.items()},
        },
        claim_recurrence,
    ),
    "compare-positions": Comparison(
        "Positions",
        "section 3.5, Table 3 E",
        "Without positions a model does not know word order; learned ones are nearly equal to sinusoids. (Our own "
        "claim: encoding distances in attention over the source as well is better than both.)",
        {
            ACROSS: BASE,
            **{
                name: Variant(f"positions-{name}", replace(MODEL, positions=name))
                for name in ("rotary", "relative", "sinusoidal", "learned", "none")
            },
        },
        claim_positions,
    ),
    "compare-norms": Comparison(
        "The norm before or after a layer, with and without warm-up",
        "sections 3.1, 5.3; Xiong et al. 2020",
        "The Transformer needs a warm-up (with the norm after each layer, as in the paper).",
        {
            f"{where}-norm, {'warm-up' if warmup > 1 else 'none'}": Variant(
                f"{where}-norm-{warmup}", replace(MODEL, norm_first=where == "pre"), replace(STEADY, warmup=warmup)
            )
            for where in ("pre", "post")
            for warmup in (STEADY.warmup, 1)
        },
        claim_norms,
        f", all with a constant learning rate of {STEADY.learning_rate:g} (after the warm-up)",
    ),
    "compare-heads": Comparison(
        "One head or many of the same total size",
        "section 3.2.2, Table 3 A",
        "One head is worse than the best setting, and with too many heads quality drops as well.",
        {"1": ONE_HEAD, "2": variant_with_heads("heads-2", 2), "4": BASE}
        | {"8": variant_with_heads("heads-8", 8), "16": variant_with_heads("heads-16", 16)},
        claim_heads,
    ),
    "compare-scores": Comparison(
        "Scaled, unscaled and additive attention",
        "section 3.2.1",
        "Dot products of large vectors must be scaled down; additive attention is as good, but slower.",
        {
            DOT: BASE,
            UNSCALED: variant_with_heads("unscaled", 4, "unscaled"),
            ADDITIVE: variant_with_heads("additive", 4, "additive"),
            DOT_LARGE: ONE_HEAD,
            UNSCALED_LARGE: variant_with_heads("unscaled-1", 1, "unscaled"),
        },
        claim_scores,
    ),
    "compare-smoothing": Comparison(
        "Label smoothing",
        "section 5.4",
        "Label smoothing hurts perplexity but improves accuracy and BLEU.",
        {"0.1": BASE, "0": Variant("smoothing-0", training=replace(TRAINING, label_smoothing=0.0))},
        claim_smoothing,
    ),
    "compare-tying": Comparison(
        "One matrix for embeddings and output",
        "section 3.4",
        "Both embeddings and the output can share one matrix.",
        {
            "all": BASE,
            "output": Variant("share-output", replace(MODEL, share="output")),
            "none": Variant("share-none", replace(MODEL, share="none")),
        },
        claim_tying,
    ),
    "compare-dropout": Comparison(
        "Dropout after sublayers and inside feed-forward layers",
        "section 5.4, Table 3 D",
        "Dropout after each sublayer avoids overfitting; some implementations drop inside feed-forward layers as well.",
        {
            "0.1": BASE,
            "0": Variant("dropout-0", replace(MODEL, dropout=0.0)),
            "0.1, feed-forward too": variant_with_feed_forward("dropout-inner", dropout=0.1),
        },
        claim_dropout,
    ),
    "compare-activations": Comparison(
        "The activation of feed-forward layers",
        "section 3.3",
        "ReLU may be replaced with GELU.",
        {
            name: BASE
            if name == MODEL.feed_forward.activation
            else variant_with_feed_forward(f"activation-{name}", activation=name)
            for name in ("relu", "gelu", "silu")
        },
        claim_activations,
    ),
    "compare-embedding-scale": Comparison(
        "The factor in front of embeddings",
        "section 3.4",
        "Embeddings are multiplied by the root of d_model.",
        {"√d_model": BASE, "none": Variant("embedding-scale-none", replace(MODEL, scale_embedding=False))},
        claim_embedding_scale,
    ),
    "compare-shared-projections": Comparison(
        "One matrix for query, key and value, or three",
        "common teaching; section 3.2.2",
        "Query, key and value have three roles, so they need three matrices.",
        {
            SEPARATE: BASE,
            PAIR: variant_with_change("query-key"),
            ONE: variant_with_change("query-key-value"),
        },
        claim_shared_projections,
    ),
    "compare-layer-pool": Comparison(
        "The last encoder layer, or a mixture of all",
        "common teaching; section 3.1",
        "Lower layers know what the last one has lost, so a learned mixture of all of them tells the decoder more.",
        {"last layer": BASE, "mixture": variant_with_change("layer-pool")},
        claim_layer_pool,
    ),
    "compare-embedding-norm": Comparison(
        "A norm of the embeddings",
        "common teaching; section 3.4",
        "A norm between embeddings and first layer makes training steadier; the paper has none.",
        {"none": BASE, "norm": variant_with_change("embedding-norm")},
        claim_embedding_norm,
    ),
}
