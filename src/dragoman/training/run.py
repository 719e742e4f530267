"""Collect everything that a training run works on, and save it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from dragoman.confidence.estimate import Confidence
from dragoman.config import RunConfig
from dragoman.config.languages import parse_pair
from dragoman.console import format_duration
from dragoman.data.corpus import Corpus
from dragoman.data.dataset import SOURCE, TARGET, Pairs
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.model import Model
from dragoman.model_folder import add_record
from dragoman.model_folder.weights import all_finite
from dragoman.text import languages, scripts
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.word_forms import WordForms
from dragoman.training.card import card_of_run
from dragoman.training.checkpoint import TrainingProgress, save_checkpoint
from dragoman.training.distributed import ProcessGroup
from dragoman.training.extent import measure_extent, measure_words, read_texts, target_scripts
from dragoman.training.journal import Journal
from dragoman.training.learner import Learner
from dragoman.training.limits import Saved, divergence
from dragoman.translation.calibration import FEWEST_JUDGED, measure_alignment, measure_confidence, measure_copies
from dragoman.translation.engines import torch_engine
from dragoman.translation.translator import Translator


@dataclass
class Run:
    """Everything that a training run works on."""

    config: RunConfig
    group: ProcessGroup
    pairs: Pairs
    dev: Pairs
    dev_corpus: Corpus
    tokenizers: Tokenizers
    learner: Learner
    progress: TrainingProgress
    journal: Journal
    inherited: Mapping[str, str] = field(default_factory=dict)
    "records of the model that the run started from, by name, which its checkpoints keep"
    saved: Saved = Saved()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.config.out)

    @cached_property
    def scripts(self) -> list[str]:
        """Return the writing systems of the target language, for the faults of a translation."""
        others = [target for _, target in self.dev_corpus.pairs]
        return target_scripts(self.pairs, self.tokenizers.target, others)

    @cached_property
    def extent(self) -> SourceExtent:
        """Return how much text a training source has, for the choice of what to translate at once."""
        return measure_extent(self.pairs, self.tokenizers.source)

    @cached_property
    def known_words(self) -> KnownWords:
        """Return the words of the training sources, to tell names from them, and names that may stand in for others."""
        return measure_words(self.pairs, self.tokenizers)

    def full_model(self) -> Model:
        """Return the model to validate and to save, as `Learner.full_model` does. All processes must call this.

        Raise DragomanError where a weight is not finite in any of them.
        """
        model = self.learner.full_model()
        if not all(self.group.gather(all(map(all_finite, model.parameters())))):
            self.journal.flush()
            raise DragomanError(
                f"at step {self.progress.step:,}, weights are infinite or not numbers: "
                f"{divergence(self.config.training)}; the last checkpoint is kept"
            )
        return model

    def save(self, passing: bool = False) -> None:
        """Write a checkpoint and note it in `saved`. All processes must call this; the first one writes.

        passing: the next checkpoint replaces this one, which is there only in case the run is killed. Raise
        DragomanError, and write nothing, where a weight is not finite.
        """
        model, state = self.full_model(), self.learner.state()
        self.progress.passing = passing
        if self.group.first:
            # Measured for the best model alone, because that is the one that will be used.
            is_best = self.progress.best_step == self.progress.step
            measured = np.arange(len(self.dev) if is_best else 0)
            sources, targets = ([ids.tolist() for ids in self.dev.rows(measured, side)] for side in (SOURCE, TARGET))
            alignment = measure_alignment(model.eval(), sources, targets) if is_best else None
            card = card_of_run(self.config, self.pairs, self.progress, alignment)
            records = {scripts.RECORD: json.dumps(self.scripts), SourceExtent.RECORD: self.extent.as_json()}
            words = self.known_words
            engine = torch_engine([model], self.tokenizers.target)
            copied = measure_copies(engine, self.tokenizers, sources, words.copied)
            records |= {KnownWords.RECORD: KnownWords(words.words, copied).as_text(), **self.inherited}
            if self.config.languages:
                records[languages.RECORD] = languages.languages_json(parse_pair(self.config.languages))
            if alignment:
                records[alignment.RECORD] = alignment.as_json()
            keep = self.config.training.keep
            save_checkpoint(self.folder, model, self.tokenizers, state, self.progress, card, keep, records)
        self.saved = Saved(self.progress.step, self.progress.validated, self.progress.seconds)

    def add_confidence(self) -> None:
        """Measure how sure the best model may be of its translations, and note it in its folder, once.

        The dev pairs took no part in training, but in choosing this model.
        """
        best = (self.folder / "best").resolve()
        few = len(self.dev_corpus.pairs) < FEWEST_JUDGED
        if not self.group.first or few or Confidence.load(best):
            return
        began = time.monotonic()
        targets = read_texts(self.pairs, self.tokenizers.target, TARGET)
        tags = list(zip(self.dev_corpus.tags, self.dev_corpus.target_tags, strict=True))
        words = WordForms.from_texts(targets).packed()
        confidence = measure_confidence(
            Translator.load(best, device=self.group.device), self.dev_corpus.pairs, tags, words
        )
        if confidence:
            add_record(best, Confidence.RECORD, confidence.as_json())
            seconds = format_duration(time.monotonic() - began)
            self.journal.log(f"confidence: {confidence.reliability}, measured in {seconds}")
