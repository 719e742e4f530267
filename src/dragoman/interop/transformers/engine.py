"""Run a folder with Hugging Face's `transformers`, to prove that a model there and ours translate alike."""

import contextlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, batches_by_length
from dragoman.data.tokenizer import EOS
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.transformers.conversion import Layout
from dragoman.interop.verification import Mismatch
from dragoman.interop.weights import UNSAYABLE

TOKENS = 512  # of sources that are searched for at a time, and of targets that are scored, padding included


def import_transformers() -> ModuleType:
    """Import transformers now, not before, and return it. Raise DragomanError where it is not installed."""
    try:
        import transformers
    except ImportError:
        raise DragomanError("Hugging Face's form needs a package: pip install 'dragoman[huggingface]'") from None
    return transformers


@contextlib.contextmanager
def quietly() -> Iterator[ModuleType]:
    """Import transformers, and let it print no progress, advice or warning in the block."""
    transformers = import_transformers()
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def open_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder, as anyone opens it who uses transformers."""
    with quietly() as transformers:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


class TransformersEngine:
    """The engine that searches with `generate` of transformers, greedily or with beams, without a length penalty.

    It searches with the settings in the folder, which has to have none, or after `forget_settings`.
    """

    patience: float | None = None

    def __init__(self, folder: Path, layout: Layout, max_positions: int | None = None):
        """Open a folder, in float32. Raise Mismatch where transformers misses weights in it or does not know some.

        layout: where our words are.
        """
        with quietly() as transformers:
            self.model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, output_loading_info=True
            )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if report[kind]:
                raise Mismatch(f"{kind.replace('_keys', '')} weights: {', '.join(map(str, sorted(report[kind])[:5]))}")
        self.model.eval()
        self.layout, self.max_positions = layout, max_positions
        self.source_rows, self.target_rows = layout.rows("source"), layout.rows("target")

    def forget_settings(self) -> None:
        """Let `generate` search as it does without settings in the folder, and never return the layout's silent rows.

        Folders of others have such settings, from the number of beams to words that must not be repeated.
        """
        self.model.generation_config = import_transformers().GenerationConfig(
            pad_token_id=self.layout.pad,
            eos_token_id=self.layout.end,
            decoder_start_token_id=self.layout.start,
            suppress_tokens=self.layout.silent or None,
            length_penalty=0.0,
            renormalize_logits=True,
        )

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the best hypothesis for each source, with no score. Raise UsageError for any other search."""
        plain = SearchConfig(beam=config.beam, extra_length=config.extra_length, length_penalty=0)
        if config != plain or constraints is not None:
            raise UsageError("transformers searches here without a length penalty, constraints or other settings")
        hypotheses: dict[int, list[Hypothesis]] = {}
        by_length = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        for length, group in itertools.groupby(by_length, lambda row: len(sources[row])):
            # Sources of one length have one limit, and no padding.
            for rows in batches_by_length(list(group), sources, TOKENS):
                with torch.no_grad(), quietly():
                    outputs = self.model.generate(
                        **self.source_batch([sources[row] for row in rows]),
                        num_beams=config.beam,
                        do_sample=False,
                        max_new_tokens=length + config.extra_length,
                        max_length=None,
                        forced_bos_token_id=None,
                    )
                hypotheses |= {
                    row: [self.hypothesis(ids)] for row, ids in zip(rows, outputs[:, 1:].tolist(), strict=True)
                }
        return [hypotheses[row] for row in range(len(sources))]

    def source_batch(self, sources: Sequence[Ids]) -> dict[str, Tensor]:
        """Return sources as transformers takes them: with their ends, padded."""
        rows = [[self.source_rows[id] for id in (*source, EOS)] for source in sources]
        lengths = torch.tensor([[len(row)] for row in rows])
        ids = padded(rows, self.layout.pad)
        return {"input_ids": ids, "attention_mask": (torch.arange(ids.size(1)) < lengths).long()}

    def hypothesis(self, rows: list[int]) -> Hypothesis:
        """Return an output without its end and what follows it."""
        finished = self.layout.end in rows
        if finished:
            rows = rows[: rows.index(self.layout.end)]
        return Hypothesis([self.layout.target[row] for row in rows], float("nan"), finished)

    def log_p(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        scores: dict[int, list[float]] = {}
        for rows in batches_by_length(range(len(targets)), targets, TOKENS):
            labels = [[self.target_rows[id] for id in (*targets[row], EOS)] for row in rows]
            given = padded([[self.layout.start, *ids[:-1]] for ids in labels], self.layout.pad)
            logits = self.logits([sources[row] for row in rows], given)
            log_p = logits.log_softmax(-1).gather(2, padded(labels, self.layout.pad)[..., None])[..., 0]
            scores |= {
                row: row_scores[: len(ids)].tolist() for row, ids, row_scores in zip(rows, labels, log_p, strict=True)
            }
        return [scores[row] for row in range(len(targets))]

    def logits(self, sources: Sequence[Ids], given: Tensor) -> Tensor:
        """Return logits (B, T, rows) after the rows given (B, T); what `generate` never returns is unlikely."""
        with torch.no_grad(), quietly():
            logits = self.model(**self.source_batch(sources), decoder_input_ids=given).logits.clone()
        logits[..., self.layout.silent] += UNSAYABLE
        return logits


def padded(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """Return rows as a tensor (rows, longest), with `pad` behind shorter ones."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
