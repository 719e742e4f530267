"""Time a model with each engine and data type that can run it here, and score it where there are references."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, get_args

from dragoman.config import ComputeType, EngineName, SearchConfig
from dragoman.data.corpus import Corpus
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.translation.translator import Translator

ALONE, TOGETHER = "one at a time", "in batches"


@dataclass(frozen=True)
class EngineSpeed:
    """Describe what one engine does in one data type; rates are medians, in sentences per second."""

    engine: EngineName
    compute_type: ComputeType
    alone: float
    alone_spread: float  # half the distance from the slowest to the fastest round, as a share of the median
    together: float
    together_spread: float
    bleu: float | None  # None without references


@dataclass(frozen=True)
class EngineComparison:
    """The engines and data types that can run a model, and why the others cannot."""

    rows: tuple[EngineSpeed, ...]
    left_out: dict[str, str]  # engine and type -> the reason, a sentence
    machine: str

    def fastest(self, how: str) -> EngineSpeed:
        """Return the fastest row, ALONE or TOGETHER."""
        return max(self.rows, key=lambda row: row.alone if how == ALONE else row.together)

    def as_dict(self) -> dict[str, Any]:
        fastest = {how: {"engine": row.engine, "compute_type": row.compute_type} for how, row in self.by_way().items()}
        return asdict(self) | {"fastest": {how.replace(" ", "_"): names for how, names in fastest.items()}}

    def by_way(self) -> dict[str, EngineSpeed]:
        """Return the fastest row of ALONE and of TOGETHER."""
        return {how: self.fastest(how) for how in (ALONE, TOGETHER)}

    def __str__(self) -> str:
        scored = self.rows[0].bleu is not None
        columns = ["engine", "type", ALONE, TOGETHER, *["BLEU", "change"] * scored]
        rows = []
        for row in self.rows:
            cells: list[str] = [row.engine, row.compute_type]
            for rate, spread in ((row.alone, row.alone_spread), (row.together, row.together_spread)):
                cells.append(f"{rate:,.1f} ± {100 * spread:.0f} %")
            if row.bleu is not None and self.rows[0].bleu is not None:
                cells += [f"{row.bleu:.1f}", f"{row.bleu - self.rows[0].bleu:+.1f}"]
            rows.append(cells)
        reasons = [f"{names} left out: {reason}" for names, reason in self.left_out.items()]
        return "\n".join([markdown_table(columns, rows), *["", *reasons] * bool(reasons)])


def open_translators(
    folder: str, search: SearchConfig, first_text: str
) -> tuple[dict[tuple[EngineName, ComputeType], Translator], dict[str, str]]:
    """Return a translator for each engine and data type that can run the model on this CPU, and why others cannot.

    Each translates `first_text` once. Raise DragomanError where not even the native engine in float32 can.
    """
    opened: dict[tuple[EngineName, ComputeType], Translator] = {}
    refused: dict[str, list[str]] = {}
    kinds = [kind for kind in get_args(ComputeType) if kind != "auto"]
    for engine, kind in product(get_args(EngineName), kinds):
        try:
            translator = Translator.load(folder, search, device="cpu", engine=engine, compute_type=kind)
            translator.translate(first_text)
            opened[engine, kind] = translator
        except DragomanError as error:
            if not opened:
                raise
            refused.setdefault(str(error), []).append(f"{engine} {kind}")
    return opened, {", ".join(names): reason for reason, names in refused.items()}


def compare_engines(
    folder: str, corpus: Corpus, search: SearchConfig, *, sentences: int, rounds: int, score: bool
) -> EngineComparison:
    """Time a model with each engine and data type, in turns, on the same sources; score all pairs if `score`.

    sentences: how many sources of the corpus are timed, evenly drawn; an eighth of them one at a time. Raise
    DragomanError where the model cannot be opened.
    """
    sources, references = (list(side) for side in zip(*corpus.pairs, strict=True))
    translators, left_out = open_translators(folder, search, sources[0])
    timed = range(0, len(sources), -(-len(sources) // sentences))
    contenders = []
    for translator in translators.values():
        contenders.append(Contender(ALONE, partial(translate_alone, translator, corpus, timed[::8])))
        contenders.append(Contender(TOGETHER, partial(translate_together, translator, corpus, timed)))
    time_in_turn(contenders, rounds)
    rows = []
    for number, ((engine, kind), translator) in enumerate(translators.items()):
        alone, together = contenders[2 * number : 2 * number + 2]
        bleu = None
        if score:
            translations = translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
            bleu = evaluate([translation.text for translation in translations], references).bleu.value
        rows.append(EngineSpeed(engine, kind, alone.median, alone.spread, together.median, together.spread, bleu))
    return EngineComparison(tuple(rows), left_out, describe_machine())


def translate_together(translator: Translator, corpus: Corpus, chosen: Sequence[int]) -> int:
    """Translate the chosen sources of a corpus, given by their places, in batches; return how many there are."""
    sources, tags, target_tags = zip(
        *((corpus.pairs[place][0], corpus.tags[place], corpus.target_tags[place]) for place in chosen), strict=True
    )
    return len(translator.translate(sources, tags, target_tags=target_tags))


def translate_alone(translator: Translator, corpus: Corpus, chosen: Sequence[int]) -> int:
    """Translate the chosen sources of a corpus, given by their places, one after the other; return how many."""
    return sum(translate_together(translator, corpus, [place]) for place in chosen)
