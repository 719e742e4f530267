"""Run an exported model with onnxruntime: a model that our searches take, and the engine that searches with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dragoman.data.batches import Ids, batches_by_length, pad_rows, source_batch
from dragoman.data.tokenizer import BOS, PAD
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.interop.onnx.graph import import_onnx

TOKENS = 512  # of targets that are scored at a time, padding included


@dataclass
class State:
    """All that decoding one more token needs; row i belongs to hypothesis i."""

    source: dict[str, np.ndarray]  # the encoder's output and its mask
    cache: dict[str, np.ndarray] = field(default_factory=dict)  # keys and values, by the name of their input

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        index = rows.cpu().numpy()
        self.source = {name: array[index] for name, array in self.source.items()}
        self.cache = {name: array[index] for name, array in self.cache.items()}


class OnnxModel:
    """A model in two files of ONNX, on the CPU."""

    def __init__(self, encoder: Path, decoder: Path):
        """Open the files. Raise DragomanError where onnxruntime refuses one."""
        runtime = import_onnx("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self.encoder, self.decoder = (
            runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"]) for file in (encoder, decoder)
        )
        self.cached = [value for value in self.decoder.get_inputs() if value.name.startswith("past_key_values.")]
        self.returned = ["logits", *(value.name.replace("past_key_values", "present") for value in self.cached)]

    def start(self, source: Tensor) -> State:
        """Encode the source ids (B, S), padded with PAD; return the state before the first target token."""
        mask = (source != PAD).long().numpy()
        (memory,) = self.encoder.run(None, {"input_ids": source.numpy(), "attention_mask": mask})
        empty = {
            value.name: np.zeros(
                (len(source), *(size if isinstance(size, int) else 0 for size in value.shape[1:])), np.float32
            )
            for value in self.cached
        }
        return State({"encoder_hidden_states": memory, "encoder_attention_mask": mask}, empty)

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Return logits (B, T, V) after each of the tokens (B, T), which are then part of the state."""
        feeds = {"input_ids": tokens.numpy(), **state.source, **state.cache}
        logits, *cache = self.decoder.run(self.returned, feeds)
        state.cache = {value.name: array for value, array in zip(self.cached, cache, strict=True)}
        return torch.from_numpy(logits)


class OnnxEngine(TorchEngine):
    """The engine that searches with an exported model: our own search, with onnxruntime in place of PyTorch."""

    patience: float | None = None

    def __init__(self, model: OnnxModel, max_positions: int | None):
        """max_positions: the most tokens of a source or of an output; None: any number."""
        self.model, self.max_positions = model, max_positions
        self.boundaries, self.suppressed, self.device, self.compute_type = None, [], torch.device("cpu"), "float32"

    def log_p(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        scores: dict[int, list[float]] = {}
        for rows in batches_by_length(range(len(targets)), targets, TOKENS):
            labels = torch.from_numpy(pad_rows([targets[row] for row in rows]))
            given = torch.cat([torch.full((len(rows), 1), BOS), labels[:, :-1]], 1)
            logits = self.model.step(given, self.model.start(source_batch([sources[row] for row in rows])))
            log_p = logits.log_softmax(-1).gather(2, labels[..., None])[..., 0]
            scores |= {
                row: row_scores[: len(targets[row]) + 1].tolist() for row, row_scores in zip(rows, log_p, strict=True)
            }
        return [scores[row] for row in range(len(targets))]
