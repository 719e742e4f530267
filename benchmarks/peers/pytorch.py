"""Build and train the same Transformer as other PyTorch code does, with PyTorch's own parts."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peers.task import CLIP, RATE, SMOOTHING, Step, TrainingTask, grouped_batches, train_on
from dragoman.config import TransformerConfig
from dragoman.data.batches import Batch
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.interop.names import hugging_face_names
from dragoman.model.positions import sinusoids, sinusoids_in_halves
from dragoman.model.transformer import Transformer
from dragoman.runtime.device import device_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MAX_POSITIONS = 512
KERNELS = {
    "default": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "math": SDPBackend.MATH,
}


def padded_step(
    model: nn.Module,
    dtype: torch.dtype = torch.float32,
    kernel: SDPBackend | None = None,
    rate: Callable[[], float] = lambda: RATE,
) -> Step:
    """Return a step of training: padded logits, F.cross_entropy, clipping, fused AdamW; autocast if not float32.

    The model is set to training mode, and batches are moved to its device. dtype: of autocast; kernel: of attention,
    None for PyTorch's choice; rate: called before each step for its learning rate. On a GPU, a step returns when the
    one before it is over there, so that its launches are hidden.
    """
    device = next(model.parameters()).device
    launched: list[torch.cuda.Event] = []
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True)
    model.train()

    def step(batch: Batch) -> int:
        tokens, batch = batch.tokens, batch.to(device)
        with (
            torch.autocast(device.type, dtype, enabled=dtype != torch.float32),
            sdpa_kernel(kernel) if kernel else contextlib.nullcontext(),
        ):
            logits = model(batch.source, batch.target)
            loss = smoothed_loss(logits, batch.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.param_groups[0]["lr"] = rate()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            launched.append(torch.cuda.Event())
            launched[-1].record()
            if len(launched) > 1:
                launched.pop(0).synchronize()
        return tokens

    return step


def smoothed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over real tokens of the label-smoothed loss; logits (B, T, V), labels (B, T)."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings, positions and a tied output around it."""

    def __init__(self, config: TransformerConfig, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = nn.Buffer(sinusoids(MAX_POSITIONS, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.attention.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.feed_forward.d_ff,
            config.dropout,
            batch_first=True,
        )
        for module in self.transformer.modules():  # dropout only where the paper has it, as in our model
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the vectors (B, T, M) of the ids `tokens` (B, T) with positions, after dropout."""
        x = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: tokens.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) for source (B, S) and target (B, T), which begins with BOS."""
        padding = source == PAD
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.size(1), target.device),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return x @ self.embedding.weight.T


class MarianMT(nn.Module):
    """MarianMTModel of the transformers library. Raise ImportError where that is not installed."""

    def __init__(self, config: TransformerConfig, vocabulary: int, attention: str = "sdpa"):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        if attention == "sdpa in float32":
            attention = float32_attention()
        heads, d_ff = config.attention.heads, config.feed_forward.d_ff
        self.inner: Any = MarianMTModel(
            MarianConfig(
                vocab_size=vocabulary,
                d_model=config.d_model,
                encoder_layers=config.encoder_layers,
                decoder_layers=config.decoder_layers,
                encoder_ffn_dim=d_ff,
                decoder_ffn_dim=d_ff,
                encoder_attention_heads=heads,
                decoder_attention_heads=heads,
                pad_token_id=PAD,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                forced_eos_token_id=None,
                activation_function="relu",
                max_position_embeddings=MAX_POSITIONS,
                scale_embedding=True,
                dropout=config.dropout,
            )
        )
        self.inner.set_attn_implementation(attention)

    @classmethod
    def from_transformer(cls, model: Transformer) -> "MarianMT":
        """Return a MarianMT with the weights of our model: post-norm, with biases and with positions in halves."""
        other = cls(model.config, model.output.weight.size(0))
        weights: dict[str, Tensor] = {}
        for side in ("encoder", "decoder"):
            weights[f"model.{side}.embed_positions.weight"] = sinusoids_in_halves(MAX_POSITIONS, model.config.d_model)
        for ours, value in model.state_dict().items():
            weights |= dict.fromkeys(hugging_face_names(ours), value[None] if ours == "output.bias" else value)
        other.inner.load_state_dict(weights)
        return other

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) for source (B, S) and target (B, T), which begins with BOS."""
        mask = (source != PAD).long()
        return self.inner(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits


def float32_attention() -> str:
    """Register attention in float32, inside autocast to bfloat16, with the transformers library; return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def forward(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *inputs: Any, **more: Any) -> Any:
        with torch.autocast(query.device.type, enabled=False):
            return sdpa_attention_forward(module, query.float(), key.float(), value.float(), *inputs, **more)

    AttentionInterface.register("sdpa_float32", forward)
    AttentionMaskInterface.register("sdpa_float32", sdpa_mask)
    return "sdpa_float32"


def main() -> None:
    """Train a peer without end, as `TrainerProcess` expects it: arguments are its name, its kind, the task's folder.

    The kind is that of MarianMT's attention, or of the attention kernel of torch.nn.Transformer.
    """
    name, kind, folder = sys.argv[1:]
    task = TrainingTask.read(Path(folder))
    torch.set_num_threads(task.threads)
    torch.manual_seed(1)
    dtype = DTYPES[task.precision]
    device = device_of(task.device)
    if name == "torch":
        step = padded_step(TorchTransformer(task.model, task.vocabulary).to(device), dtype, KERNELS[kind])
    else:
        try:
            step = padded_step(MarianMT(task.model, task.vocabulary, kind).to(device), dtype)
        except ImportError:
            sys.exit("pip install 'dragoman[benchmark]' installs it")
    train_on(grouped_batches(task), step)
