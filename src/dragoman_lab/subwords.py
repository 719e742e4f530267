"""From text to ids: dictionaries of words, byte-pair encoding by hand and by the library, bytes, and what the model is
given.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers
import torch

from dragoman.data.batches import Batch
from dragoman.data.tokenizer import BYTE, PAD, RESERVED, SPECIAL, Tokenizer, train_bpe
from dragoman.model.attention import decoder_mask, padding_mask
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

# Word forms and how often they come, all in one text: the first merges follow from these counts.
COUNTS = {"사과는": 6, "사과를": 5, "사람은": 4, "사람을": 3, "나는": 8}
MERGES = 4

# Nouns and verbs of simple Korean sentences. A particle has one form after a consonant and one after a vowel.
NOUNS = "나 너 우리 학생 선생님 친구 아이 사과 빵 물 책 편지 학교 집 시장 공원 영화 노래 자전거 꽃".split()
PARTICLES = (("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("도", "도"), ("에서", "에서"), ("의", "의"))
STEMS = "먹 읽 찾 받 좋아하 배우 만나 가르치 기다리 그리".split()
ENDINGS = "고 지만 는다 던 기 게 자 네".split()
LINES = 4000  # sentences to learn from
SIZES = (340, 400, 450, 520)  # of vocabularies of subwords, the reserved entries included

SENTENCES = ("나는 사과가 좋다", "나는 좋다")  # "I like apples", "I like it": what the model is given
OUTSIDE = ("Привет, 세계!", "👩‍🔬 100 %", "ㅋㅋㅋ 값싼 뷁")  # characters that the texts do not have


def with_particle(noun: str, forms: tuple[str, str]) -> str:
    """Return a noun with a particle in the form that follows its last sound."""
    has_final = (ord(noun[-1]) - ord("가")) % 28 > 0
    return noun + forms[not has_final]


def word_forms() -> list[str]:
    """Return all forms of the nouns and verbs."""
    nouns = [with_particle(noun, forms) for noun in NOUNS for forms in PARTICLES]
    return [*nouns, *(stem + ending for stem in STEMS for ending in ENDINGS)]


def draw_sentences(forms: Sequence[str], count: int, random: np.random.Generator) -> list[str]:
    """Return `count` sentences of three forms each, drawn evenly."""
    return [" ".join(random.choice(forms, 3)) for _ in range(count)]


def merges_by_hand(counts: dict[str, int], steps: int) -> list[tuple[str, str, int]]:
    """Return the first merges of byte-pair encoding and how often their pair comes (Sennrich et al. 2016).

    counts: of each word. At each step the most frequent pair of neighbouring pieces becomes one piece.
    """
    words, merges = {word: list(word) for word in counts}, []
    for _ in range(steps):
        pairs = Counter[tuple[str, str]]()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        (left, right), count = pairs.most_common(1)[0]
        merges.append((left, right, count))
        for pieces in words.values():
            index = 0
            while index < len(pieces) - 1:
                if (pieces[index], pieces[index + 1]) == (left, right):
                    pieces[index : index + 2] = [left + right]
                index += 1
    return merges


def merges_by_library(counts: dict[str, int], steps: int) -> list[tuple[str, str]]:
    """Return the first merges that the library learns, whose training every model here goes through."""
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    texts = [word for word, count in counts.items() for _ in range(count)]
    alphabet = sorted({character for word in counts for character in word})
    return train_bpe(learner, texts, len(alphabet) + steps, alphabet)[1]


def unknown_share(known: set[str], texts: Sequence[str]) -> float:
    """Return the share, 0 to 1, of the words of texts that a dictionary does not have."""
    words = [word for text in texts for word in text.split()]
    return sum(word not in known for word in words) / len(words)


def cut_at_the_particle(tokenizer: Tokenizer, forms: Sequence[tuple[str, str]]) -> float:
    """Return the share, 0 to 1, of forms (stem, ending) of which a piece ends where the stem does."""
    hits = 0
    for stem, ending in forms:
        pieces = [tokenizer.pieces[id] for id in tokenizer.encode(stem + ending)]
        ends = {len("".join(pieces[: index + 1]).strip()) for index in range(len(pieces))}
        hits += len(stem) in ends
    return hits / len(forms)


def readable(piece: str) -> str:
    """Return a piece as tables show it: its space as an underscore."""
    return piece.replace(" ", "_")


def claims(
    by_hand: Sequence[tuple[str, str, int]],
    by_library: Sequence[tuple[str, str]],
    unknown: float,
    lost: float,
    lengths: tuple[float, float],
    cut: float,
    restored: int,
) -> Claims:
    """Return each claim and whether it holds. by_hand, by_library: merges; unknown: share of the words of new sentences
    that a dictionary does not have; lost: share of new sentences that do not come back from their subwords; lengths:
    characters and pieces of a word, on average; cut: share of new forms that are cut at the particle or ending;
    restored: how many of OUTSIDE come back as they were.
    """
    merges = ", ".join(f"{left}+{right} ({count})" for left, right, count in by_hand)
    return {
        f"Merging the most frequent pair {len(by_hand)} times by hand gives {merges}: [the library learns the same "
        "merges|the library learns others].": [merge[:2] for merge in by_hand] == list(by_library),
        f"Of the words in new sentences, a dictionary of all words of the training text does not know "
        f"{unknown:.0%}: [it needs an unknown word|it hardly needs an unknown word].": unknown >= 0.05,
        f"{1 - lost:.0%} of the same sentences come back from their subwords letter by letter: [nothing is "
        "unknown|something is lost].": lost == 0,
        f"A word of {lengths[0]:.1f} characters is {lengths[1]:.1f} subwords on average: [sequences are shorter than "
        "with characters|sequences are no shorter than with characters].": lengths[1] < 0.8 * lengths[0],
        f"{cut:.0%} of forms that never came in training are cut where a particle or an ending begins: [subwords found "
        "these parts by counting alone|subwords did not find these parts].": cut >= 0.5,
        f"{restored} of {len(OUTSIDE)} texts with characters that were never seen come back as they were: [bytes spell "
        "what the vocabulary lacks|bytes do not spell everything].": restored == len(OUTSIDE),
    }


@experiment(
    "From text to ids",
    "section 5.1",
    "A dictionary of words never has them all, least of all in a language whose words have many forms. Byte-pair "
    "encoding learns pieces of words, finds parts that recur, and knows no unknown word.",
)
def run(effort: Effort) -> Findings:
    """Learn vocabularies of words and of subwords from Korean sentences, and read new ones with both. Of `effort` only
    the first seed is used.
    """
    random = np.random.default_rng(effort.seeds[0])
    forms = word_forms()
    random.shuffle(forms)
    seen, unseen = forms[: len(forms) * 4 // 5], set(forms[len(forms) * 4 // 5 :])
    texts = draw_sentences(seen, LINES, random)
    new = draw_sentences(forms, 500, random)
    words = Counter(word for text in texts for word in text.split())
    learned = {size: Tokenizer.train(texts, size) for size in SIZES}
    middle = learned[SIZES[1]]

    per_word: dict[int, float] = {}
    rows: list[tuple[int, float, float, int]] = []
    for size, tokenizer in learned.items():
        ids = [id for text in new for id in tokenizer.encode(text)]
        per_word[size] = len(ids) / sum(len(text.split()) for text in new)
        entries = size - len(RESERVED)
        known = {word for word, _ in words.most_common(entries)}
        rows.append((entries, unknown_share(known, new), per_word[size], sum(id < len(RESERVED) for id in ids)))
    characters = sum(len(word) for text in new for word in text.split()) / sum(len(text.split()) for text in new)
    splits = [
        *((noun, with_particle(noun, particle)[len(noun) :]) for noun in NOUNS for particle in PARTICLES),
        *((stem, ending) for stem in STEMS for ending in ENDINGS),
    ]
    hidden = [(stem, ending) for stem, ending in splits if stem + ending in unseen]
    by_hand, by_library = merges_by_hand(COUNTS, MERGES), merges_by_library(COUNTS, MERGES)
    restored = sum(middle.decode(middle.encode(text)) == unicodedata.normalize("NFC", text) for text in OUTSIDE)

    reader = Tokenizer.train([*texts, *SENTENCES * 3], SIZES[1])
    encoded = [reader.encode(text) for text in SENTENCES]
    batch = Batch.from_pairs(encoded, encoded)
    labels = [[readable(reader.pieces[id]) for id in row] for row in batch.target.tolist()]
    ids_rows = [
        (text, position, readable(reader.pieces[given]), given, readable(reader.pieces[wanted]), wanted)
        for text, target, answer in zip(SENTENCES, batch.target.tolist(), batch.labels.tolist(), strict=True)
        for position, (given, wanted) in enumerate(zip(target, answer, strict=True))
    ]
    masks = [padding_mask(batch.target, PAD)[1, 0], decoder_mask(batch.target, PAD)[1, 0]]
    shown = [mask.expand(batch.target.size(1), -1).to(torch.get_default_dtype()) for mask in masks]
    titles = "padding mask (encoder)", "padding and look-ahead mask (decoder)"

    def spelled(text: str) -> str:
        return " ".join(f"{BYTE[piece]:02X}" if piece in BYTE else readable(piece) for piece in pieces_of(text))

    def pieces_of(text: str) -> list[str]:
        return [middle.pieces[id] for id in middle.encode(text)]

    sizes = [row[0] for row in rows]
    axis: dict[str, Any] = {"x": "entries of the vocabulary", "ticks": sizes}
    return Findings(
        f"{len(NOUNS)} nouns with {len(PARTICLES)} particles and {len(STEMS)} verbs with {len(ENDINGS)} endings: "
        f"{len(forms)} word forms, of which {len(seen)} come in the {len(texts)} sentences to learn from and all in "
        f"the {len(new)} new ones. Vocabularies of {sizes[0]} to {sizes[-1]} entries besides {len(SPECIAL)} special "
        f"ones and 256 bytes; seed {effort.seeds[0]}.",
        claims(
            by_hand,
            by_library,
            unknown_share(set(words), new),
            sum(middle.decode(middle.encode(text)) != text for text in new) / len(new),
            (characters, per_word[SIZES[1]]),
            cut_at_the_particle(middle, hidden),
            restored,
        ),
        {
            "Merges by hand": Table(
                "step | left | right | how often the pair comes | the library's merge",
                [
                    (step, *merge, "+".join(other))
                    for step, (merge, other) in enumerate(zip(by_hand, by_library, strict=True), 1)
                ],
            ),
            "Words and subwords, by the size of the vocabulary": Table(
                "entries | share of unknown words | subwords per word | bytes in new sentences", rows
            ),
            "Texts with characters that were never seen": Table(
                "text | pieces (bytes as hexadecimal numbers) | number",
                [(text, spelled(text), len(pieces_of(text))) for text in OUTSIDE],
            ),
            "What the decoder is given, and what it has to answer": Table(
                "sentence | position | given | id | to answer | its id", ids_rows
            ),
        },
        {
            "vocabularies": Figure(
                "Left: the share of unknown words in new sentences with a dictionary of the most frequent words. "
                "Right: subwords per word.",
                lines(
                    Panel({"words": (sizes, [row[1] for row in rows])}, y="unknown words", ylim=(0, None), **axis),
                    Panel({"subwords": (sizes, list(per_word.values()))}, y="per word", ylim=(1, None), **axis),
                ),
            ),
            "masks": Figure(
                f"The masks of '{SENTENCES[1]}', padded to the length of '{SENTENCES[0]}': dark is allowed. A row is "
                "what a token may attend to.",
                heat_maps(
                    *(
                        HeatMap(mask, title, labels[1], labels[1], x="key", y="query")
                        for mask, title in zip(shown, titles, strict=True)
                    )
                ),
            ),
        },
    )
