"""Without positions, self-attention does not know the order of words: a permuted sentence gives permuted vectors."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dragoman.inspection.plots.training import COLOURS
from dragoman.model.positions import Relative
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import HeatMap, heat_maps
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import small

Scheme = Literal["none", "sinusoidal", "learned", "rotary", "relative"]
SCHEMES: tuple[Scheme, ...] = ("none", "sinusoidal", "learned", "rotary", "relative")
LOOKING_BACK = "none, but each word sees only those before it"

LIKES = ("철수", "는", "영희", "를", "좋아한다")  # 철수는 영희를 좋아한다: Cheolsu likes Yeonghui
LIKED = ("영희", "는", "철수", "를", "좋아한다")  # 영희는 철수를 좋아한다: Yeonghui likes Cheolsu
WORDS = {word: id for id, word in enumerate(LIKES, start=3)}
LENGTH, VOCABULARY = 10, 40  # of random sentences


def make_transformer(positions: Scheme, seed: int) -> Transformer:
    """Return a fresh model with these positions, in eval mode. Relative scores, which would begin as zeros, are drawn
    at random.
    """
    torch.manual_seed(seed)
    config = replace(small(32, layers=2), positions=positions)
    model = Transformer(config, VOCABULARY).eval()
    for module in model.modules():
        if isinstance(module, Relative):
            nn.init.normal_(module.scores.weight)
    return model


@torch.no_grad()
def encode(model: Transformer, ids: Tensor) -> Tensor:
    """Return the encoder's vectors (S, M) of the ids (S,) of a sentence."""
    memory = model.start(ids[None]).memory
    assert memory is not None
    return memory


@torch.no_grad()
def decode(model: Transformer, ids: Tensor) -> Tensor:
    """Return the decoder's vectors (S, M) of the ids (S,): each word sees itself and those before it, and always the
    same source.
    """
    return model.vectors(ids[None], model.start(torch.tensor([[3, 4, 5]])))


def largest_change(model: Transformer, ids: Tensor, order: Tensor, looking_back: bool = False) -> float:
    """Return the largest absolute number of f(P x) - P f(x), where P is the permutation `order` of the ids x (S,), and
    f the decoder if `looking_back`, else the encoder. 0: their order makes no difference to any word.
    """
    vectors = decode if looking_back else encode
    return float((vectors(model, ids[order]) - vectors(model, ids)[order]).abs().max())


@dataclass(frozen=True)
class Order:
    """Describe how a model's vectors change with the order of words, over random sentences and permutations."""

    largest: float  # of f(P x) - P f(x)
    smallest: float
    bags: float  # largest difference of the mean vectors of 철수는 영희를 좋아한다 and 영희는 철수를 좋아한다


def sentence_ids(words: tuple[str, ...]) -> Tensor:
    """Return the ids (S,) of Korean words, which must be among WORDS."""
    return torch.tensor([WORDS[word] for word in words])


def measure_order(positions: Scheme, effort: Effort, looking_back: bool = False) -> Order:
    """Measure how far the vectors of fresh models with these positions change with the order of random words, over all
    seeds. looking_back: of the decoder, not the encoder.
    """
    gaps, bags = [], []
    vectors = decode if looking_back else encode
    for seed in effort.seeds:
        model, random = make_transformer(positions, seed), torch.Generator().manual_seed(seed)
        for _ in range(effort.scale(100)):
            ids = torch.randint(3, VOCABULARY, (LENGTH,), generator=random)
            order = torch.randperm(LENGTH, generator=random)
            if bool((ids[order] != ids).any()):
                gaps.append(largest_change(model, ids, order, looking_back))
        bag, reordered = (vectors(model, sentence_ids(words)).mean(0) for words in (LIKES, LIKED))
        bags.append(float((bag - reordered).abs().max()))
    return Order(max(gaps), min(gaps), max(bags))


def claims(orders: dict[str, Order]) -> Claims:
    """Return each claim and whether it holds. orders: by position scheme, and for LOOKING_BACK."""
    least = min(orders[name].smallest for name in SCHEMES if name != "none")
    back = orders[LOOKING_BACK]
    return {
        "Without positions a permuted sentence gives [the same vectors, permuted: it is a bag of words|other vectors] "
        f"(largest difference {orders['none'].largest:.1e}).": max(orders["none"].largest, orders["none"].bags) < 1e-4,
        "With [every kind|not every kind] of positions, order makes a difference: even in the sentence that changes "
        f"least, some number in its vectors changes by {least:.2g}.": least > 1e-2,
        "The look-ahead mask alone, even without positions, [tells|does not tell] a decoder the order, which is seldom "
        f"mentioned (the difference is at least {back.smallest:.2g}).": back.smallest > 1e-2,
    }


@experiment(
    "Without positions a sentence is a bag of words",
    "section 3.5",
    "Self-attention takes all words at once and knows nothing of their order, yet order changes the meaning: "
    "철수는 영희를 좋아한다 (Cheolsu likes Yeonghui) is not 영희는 철수를 좋아한다 (Yeonghui likes Cheolsu). So "
    "positions must be added.",
)
def run(effort: Effort) -> Findings:
    """Measure how far vectors of untrained models change with the order of words, for each position scheme."""
    orders: dict[str, Order] = {name: measure_order(name, effort) for name in SCHEMES}
    orders[LOOKING_BACK] = measure_order("none", effort, looking_back=True)
    return Findings(
        f"Untrained Transformers of 2 layers, d_model 32, 32-bit numbers; {effort.scale(100)} random sentences of "
        f"{LENGTH} words in random order for each seed; {effort}. Relative scores are drawn at random, because "
        "untrained ones are zero and carry no order.",
        claims(orders),
        {
            "How much the vectors of a permuted sentence differ from the permuted vectors of the sentence": Table(
                "positions | largest difference | smallest, over sentences | difference of the means of "
                "철수는 영희를 좋아한다 and 영희는 철수를 좋아한다",
                [(name, *vars(order).values()) for name, order in orders.items()],
            )
        },
        {
            "order-of-words": Figure(
                "The largest number in f(P x) - P f(x): without positions only rounding is left.",
                lambda figure: draw_gaps(figure, orders),
            ),
            "who-likes-whom": Figure(
                "Cosines between the words of the two sentences: without positions, each word has the same vector in "
                "both.",
                heat_maps(cosine_map("none", effort.seeds[0]), cosine_map("sinusoidal", effort.seeds[0])),
            ),
        },
    )


def draw_gaps(figure: Any, orders: dict[str, Order]) -> None:
    """Draw the largest change of each model as a bar on a matplotlib figure, on a logarithmic axis."""
    axes = figure.subplots()
    gaps = [order.largest for order in orders.values()]
    bars = axes.barh(range(len(orders)), gaps, color=COLOURS[0], edgecolor="black")
    axes.bar_label(bars, [f"{gap:.2g}" for gap in gaps], fontsize=8, padding=3)
    axes.set_yticks(range(len(orders)), list(orders))
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(1e-8, 1e3), xlabel="largest difference")
    axes.xaxis.set_major_formatter("{x:g}")


def cosine_map(positions: Scheme, seed: int) -> HeatMap:
    """Return the heat map of the cosines of the encoder's vectors of two sentences: each word of "Cheolsu likes
    Yeonghui" (rows) and of "Yeonghui likes Cheolsu", in Korean.
    """
    model = make_transformer(positions, seed)
    likes, liked = (nn.functional.normalize(encode(model, sentence_ids(words)), dim=-1) for words in (LIKES, LIKED))
    title = "Without positions" if positions == "none" else f"With {positions} positions"
    return HeatMap(
        likes @ liked.T, title, LIKES, LIKED, ".4g", "영희는 철수를 좋아한다", "철수는 영희를 좋아한다", signed=True
    )
