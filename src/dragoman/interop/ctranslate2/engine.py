"""Search with CTranslate2 instead of PyTorch: nearly always the same words, found faster on CPUs."""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, batches_by_length
from dragoman.data.tokenizer import EOS
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, most_tokens, require_probabilities
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.decoding.torch_engine import SEARCH_TOKENS
from dragoman.errors import UsageError
from dragoman.interop.ctranslate2.conversion import import_ctranslate2

SHARED, SIDES = "shared_vocabulary.json", ("source_vocabulary.json", "target_vocabulary.json")

# CTranslate2's length penalty differs from ours, so hypotheses are ranked here. With 0 it would stop at the first
# hypothesis that ends ahead of the others.
NO_PENALTY = 1e-9
# Without patience in the settings, native search goes on until nothing can overtake the best. CTranslate2 can only
# count what is finished: with this patience the best is hardly ever another one, with 1 in up to four of a hundred
# sentences (alpha 0.6).
PATIENCE = 1.5

IMPOSSIBLE = -1e9  # nats: the score of the hypotheses with which CTranslate2 fills up a list

# Settings that this engine honours, and those that matter only with others that it refuses.
HONOURED = {"beam", "length_penalty", "extra_length", "min_length", "n_best", "patience", "no_repeat_ngram"}
IDLE = {"diversity_penalty", "top_k", "top_p", "seed"}
HONOURED_CONSTRAINTS = {"prefix", "forbidden", "tag"}

# Tokens with padding that a thread gets, as many as are fastest: of sources in a search, of outputs that are scored.
SEARCHED, SCORED = 2048, 256


class CTranslate2Engine:
    """The engine that searches with CTranslate2, as `Engine` describes.

    Outputs, too, have at most `max_positions` tokens, and that of an empty source is empty.

    Scores are always those of the model. A beam search with a minimum length, forbidden words or no repeats may find
    other words than the native search: CTranslate2 redistributes the probability of what it excludes.
    """

    patience: float | None = PATIENCE

    def __init__(
        self,
        folder: Path,
        compute_type: str = "float32",
        threads: int = 1,
        replicas: int = 1,
        suppressed: Sequence[int] = (),
    ):
        """Load a copy that `convert` wrote for this `compute_type`.

        threads: among how many the sources of a search are shared; replicas: how many searches may go on at a time,
        each with so many threads; suppressed: tokens that no output has.
        """
        self.folder, self.suppressed, self.threads = folder, [[id] for id in suppressed], threads
        # Threads that shared a matmul would wait for each other after it, often for longer than it takes.
        self.translator = import_ctranslate2().Translator(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=replicas * threads, intra_threads=1
        )
        self.source_pieces, self.pieces = read_vocabularies(folder)
        self.ids = {piece: id for id, piece in enumerate(self.pieces)}
        self.max_positions: int | None = json.loads((folder / "config.json").read_text(encoding="utf-8"))["longest"]

    def __repr__(self) -> str:
        return f"CTranslate2 engine in {self.translator.compute_type}"

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each source, best first; raise UsageError for what CTranslate2 cannot do.

        Raise DragomanError where the model's probabilities are not numbers.
        """
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        self.check(sources, config, constraints)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for group in group_alike(constraints):
            of_thread = min(SEARCHED, SEARCH_TOKENS // config.beam)
            for rows in batches_by_length(group, sources, of_thread * self.threads):
                batch, rules = [sources[row] for row in rows], [constraints[row] for row in rows]
                hypotheses |= zip(rows, self._search_batch(batch, config, rules), strict=True)
        return [hypotheses[row] for row in range(len(sources))]

    def check(self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints]) -> None:
        """Raise UsageError naming the setting, constraint or length that this engine does not support."""
        for spec in dataclasses.fields(SearchConfig):
            if spec.name not in HONOURED | IDLE and getattr(config, spec.name) != spec.default:
                raise UsageError(
                    f"the CTranslate2 engine does not support the setting '{spec.name}': use the native one"
                )
        for spec in dataclasses.fields(Constraints):
            used = any(getattr(constraint, spec.name) != spec.default for constraint in constraints)
            if used and spec.name not in HONOURED_CONSTRAINTS:
                raise UsageError(f"the CTranslate2 engine does not support {spec.name}: use the native one")
        max_length = max(map(len, sources), default=0) + 1
        if self.max_positions and max_length > self.max_positions:
            raise UsageError(
                f"a source has {max_length} tokens, EOS included; this model takes at most {self.max_positions}"
            )

    def _search_batch(
        self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each source of a batch, whose constraints are of one kind (see `group_alike`)."""
        limits = [
            most_tokens(ids, config, given, self.max_positions) for ids, given in zip(sources, constraints, strict=True)
        ]
        candidates = self._collect(sources, config, constraints, max(limits))
        # CTranslate2 has one limit for a batch. A source with outputs that reach its own limit is searched for again
        # with that limit. A greedy search finds the same words with any limit, only fewer of them.
        too_long = [
            row
            for row, limit in enumerate(limits)
            if limit < max(limits) and max(map(token_count, candidates[row]), default=0) >= limit
        ]
        within_limit: dict[int, list[Hypothesis]] = {}
        if too_long and config.beam == 1:
            shortened = [[truncate(hypothesis, limits[row]) for hypothesis in candidates[row]] for row in too_long]
            within_limit |= zip(
                too_long,
                self._rescore([sources[row] for row in too_long], shortened, [constraints[row] for row in too_long]),
                strict=True,
            )
        else:
            for limit in sorted({limits[row] for row in too_long}):
                rows = [row for row in too_long if limits[row] == limit]
                batch, rules = [sources[row] for row in rows], [constraints[row] for row in rows]
                within_limit |= zip(rows, self._collect(batch, config, rules, limit), strict=True)
        candidates = [within_limit.get(row, hypotheses) for row, hypotheses in enumerate(candidates)]
        redistributed = config.min_length or config.no_repeat_ngram or self.suppressed
        if redistributed or any(constraint != UNCONSTRAINED for constraint in constraints):
            candidates = self._rescore(sources, candidates, constraints)
        ranked = [rank(hypotheses, config) for hypotheses in candidates]
        require_probabilities(ranked)
        return ranked

    def _collect(
        self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints], limit: int
    ) -> list[list[Hypothesis]]:
        """Return all hypotheses that CTranslate2 finds within its patience, with their log-probabilities as scores.

        limit: the most tokens of an output, EOS included.
        """
        patience = 1.0 if config.beam == 1 else config.patience or PATIENCE
        count = math.ceil(patience * config.beam)
        prefixes = [self.spell((*constraint.tag, *constraint.prefix)) for constraint in constraints]
        results = self.translator.translate_batch(
            [self.spell_source(ids) for ids in sources],
            target_prefix=prefixes if any(prefixes) else None,
            suppress_sequences=[self.spell(ids) for ids in (*constraints[0].forbidden, *self.suppressed)] or None,
            beam_size=config.beam,
            patience=count / config.beam,
            num_hypotheses=count,
            length_penalty=NO_PENALTY,
            no_repeat_ngram_size=config.no_repeat_ngram,
            min_decoding_length=min(config.min_length, limit),
            max_decoding_length=limit,
            max_input_length=0,
            max_batch_size=-(-len(sources) // self.threads),
            return_end_token=True,
            return_scores=True,
        )
        return [
            [
                self._hypothesis(pieces, score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
                if score > IMPOSSIBLE
            ]
            for result in results
        ]

    def _rescore(
        self, sources: list[Ids], candidates: list[list[Hypothesis]], constraints: list[Constraints]
    ) -> list[list[Hypothesis]]:
        """Return the same hypotheses, each with its log-probability under the model as its score, in nats.

        It is summed over tokens, EOS included, but not those of the tag in the constraints. That of a search is higher
        where CTranslate2 excluded tokens, because it gives their probability to others.
        """
        owners = [row for row, hypotheses in enumerate(candidates) for _ in hypotheses]
        flat = [hypothesis for hypotheses in candidates for hypothesis in hypotheses]
        results = self.log_p([sources[row] for row in owners], [hypothesis.tokens for hypothesis in flat])
        rescored: list[list[Hypothesis]] = [[] for _ in sources]
        for row, hypothesis, log_p in zip(owners, flat, results, strict=True):
            score = sum(log_p[len(constraints[row].tag) : token_count(hypothesis)])
            rescored[row].append(dataclasses.replace(hypothesis, score=score))
        return rescored

    def log_p(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        results = self.translator.score_batch(
            [self.spell_source(ids) for ids in sources],
            [self.spell(ids) for ids in targets],
            max_batch_size=SCORED,
            batch_type="tokens",
            max_input_length=0,
        )
        return [result.log_probs for result in results]

    def spell_source(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of the token ids of a source, with EOS behind them, which is how CTranslate2 takes them."""
        return [self.source_pieces[id] for id in (*ids, EOS)]

    def spell(self, ids: Sequence[int]) -> list[str]:
        return [self.pieces[id] for id in ids]

    def _hypothesis(self, pieces: list[str], score: float) -> Hypothesis:
        """Return the hypothesis that pieces spell, without EOS; finished if they end with EOS, or if there are none."""
        ids = [self.ids[piece] for piece in pieces]
        return Hypothesis([id for id in ids if id != EOS], score, ids[-1:] in ([], [EOS]))


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Return the subwords of the source and of the target, by id, in a copy that `convert` wrote."""
    sides = (SHARED, SHARED) if (folder / SHARED).exists() else SIDES
    source, target = (list[str](json.loads((folder / name).read_text(encoding="utf-8"))) for name in sides)
    return source, target


def group_alike(constraints: Sequence[Constraints]) -> list[list[int]]:
    """Return the indices of the sources, in groups that may be searched for together. constraints: one for each source.

    In a batch CTranslate2 forbids the same sequences everywhere, and sources with a prefix change the results of those
    without one.
    """

    def kind(row: int) -> tuple:
        return constraints[row].forbidden, bool(constraints[row].tag or constraints[row].prefix)

    return [list(group) for _, group in itertools.groupby(sorted(range(len(constraints)), key=kind), kind)]


def token_count(hypothesis: Hypothesis) -> int:
    """Return the number of tokens: with EOS if the hypothesis is finished, without if it was cut off."""
    return len(hypothesis.tokens) + hypothesis.finished


def truncate(hypothesis: Hypothesis, limit: int) -> Hypothesis:
    """Return the hypothesis with at most `limit` tokens, EOS included.

    A longer one is cut and unfinished, its score stays.
    """
    if token_count(hypothesis) <= limit:
        return hypothesis
    return dataclasses.replace(hypothesis, tokens=hypothesis.tokens[:limit], finished=False)


def rank(hypotheses: list[Hypothesis], config: SearchConfig) -> list[Hypothesis]:
    """Return the `n_best` hypotheses by the length penalty of our own search, best first, with scores divided by it."""
    scored = [
        dataclasses.replace(h, score=h.score / length_penalty(token_count(h), config.length_penalty))
        for h in hypotheses
    ]
    return sorted(scored, key=lambda h: -h.score)[: config.n_best]
