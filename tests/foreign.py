"""Models of other programs with random weights, as folders in their own formats."""

import json
import shutil
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from subwords import trained_spm
from torch import Tensor, nn

from dragoman.data.spm import Kind, parse_spm

if TYPE_CHECKING:  # it takes seconds, and the fuzzer too much memory
    from transformers import M2M100ForConditionalGeneration, MarianMTModel

SOURCE_SPM, TARGET_SPM = trained_spm("bpe", vocabulary=120), trained_spm()
LANGUAGES = ["eng_Latn", "kor_Hang", "spa_Latn"]
STD = 0.25  # of random weights: logits of some nats


def pieces_of(spm: bytes) -> list[str]:
    return [piece.text for piece in parse_spm(spm).pieces if piece.kind is Kind.NORMAL]


def word_list(*spms: bytes, end: int = 0, more: Sequence[str] = ()) -> dict[str, int]:
    """Words as OPUS-MT lists them: </s> and <unk> among the pieces, <pad> last."""
    words = ["<unk>", *more, *dict.fromkeys(piece for spm in spms for piece in pieces_of(spm))]
    words.insert(end, "</s>")
    return {word: id for id, word in enumerate([*words, "<pad>"])}


def randomise(model: nn.Module, end: int) -> None:
    """Draw all weights, so that none is as it was made; outputs end after some words."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_(drawn * STD + ("norm.weight" in name))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=generator) * STD)
            model.final_logits_bias[0, end] += 2


def marian_folder(
    folder: Path,
    *,
    separate: bool = False,
    end: int = 0,
    tags: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
    shard: str | None = None,
    head: str = "tied",
    own_start: bool = False,
    pickled: str = "",
    **changes: Any,
) -> "MarianMTModel":
    """Write a folder of MarianMT and return the model, in float32, as `transformers` reads it from there.

    separate: vocabularies; end: the id of </s>; head: 'tied', 'own', or 'unequal' where the config calls it tied;
    own_start: whether the start is not the padding; pickled: 'new' or 'old' for a pytorch_model.bin.
    """
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    own = {"more": ["<start>"]} if own_start else {"more": tags}
    words = word_list(SOURCE_SPM, end=end, **own) if separate else word_list(SOURCE_SPM, TARGET_SPM, end=end, **own)
    target = word_list(TARGET_SPM, end=end, **own) if separate else words
    settings = {
        "vocab_size": len(words),
        "decoder_vocab_size": len(target),
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 64,
        "pad_token_id": target["<pad>"],
        "decoder_start_token_id": target["<start>" if own_start else "<pad>"],
        "eos_token_id": end,
        "forced_eos_token_id": None,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": head != "own",
        **changes,
    }
    model = MarianMTModel(MarianConfig(**settings)).eval()
    randomise(model, end)
    if head == "unequal":
        drawn = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(2))
        model.lm_head.weight = nn.Parameter(drawn * STD)
        model.all_tied_weights_keys = {}
        model._tied_weights_keys = {}
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    if pickled:
        weights = {name: value.clone() if pickled == "old" else value for name, value in model.state_dict().items()}
        torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=pickled == "new")
        (folder / "model.safetensors").unlink()
    write_words(folder / "vocab.json", words)
    (folder / "source.spm").write_bytes(SOURCE_SPM)
    (folder / "target.spm").write_bytes(TARGET_SPM)
    options: dict[str, Any] = {"source_lang": "en", "target_lang": "ko", "separate_vocabs": separate}
    if separate:
        write_words(folder / "target_vocab.json", target)
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()


def m2m100_folder(
    folder: Path,
    *,
    nllb: bool = False,
    dtype: torch.dtype = torch.float32,
    shard: str | None = None,
    head: str = "tied",
    **changes: Any,
) -> "M2M100ForConditionalGeneration":
    """Write a folder of M2M100 or NLLB and return the model, in float32, as `transformers` reads it from there."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    spm = trained_spm("bpe", vocabulary=120)
    words = {word: id for id, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces_of(spm)])}
    languages = LANGUAGES if nllb else [f"__{language[:2]}__" for language in LANGUAGES]
    rows = len(words) + len(languages) + (1 if nllb else 8)  # <mask>, or words without a text
    settings = {
        "vocab_size": rows,
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "tie_word_embeddings": head != "own",
        **changes,
    }
    model = M2M100ForConditionalGeneration(M2M100Config(**settings)).eval()
    randomise(model, 2)
    with torch.no_grad():
        model.lm_head.weight[2] *= 1.5
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    special: dict[str, Any] = {"additional_special_tokens": [*languages, *(["<mask>"] if nllb else [])]}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text("{}")
    if not nllb:
        write_words(folder / "vocab.json", words)
    return M2M100ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


FAIRSEQ_SETTINGS: dict[str, Any] = {
    "arch": "transformer_wmt_en_de_big",
    "activation_fn": "relu",
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "cross_self_attention": False,
    "decoder_attention_heads": 4,
    "decoder_embed_dim": 24,
    "decoder_ffn_embed_dim": 40,
    "decoder_langtok": True,
    "decoder_layers": 2,
    "decoder_learned_pos": False,
    "decoder_normalize_before": True,
    "decoder_output_dim": 24,
    "dropout": 0.1,
    "encoder_attention_heads": 4,
    "encoder_embed_dim": 24,
    "encoder_ffn_embed_dim": 40,
    "encoder_langtok": "src",
    "encoder_layers": 2,
    "encoder_learned_pos": False,
    "encoder_normalize_before": True,
    "langs": [language[:2] for language in LANGUAGES],
    "layernorm_embedding": False,
    "lr": [0.0005],
    "no_cross_attention": False,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "share_all_embeddings": True,
}


def fairseq_folder(folder: Path, *, norm_first: bool = True, new: bool = False, **changes: Any) -> Any:
    """Write a folder of fairseq and return the same model, as `transformers` computes it: M2M100 or FSMT.

    new: the settings are in 'cfg', as later versions have them; changes: of settings.
    """
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    settings = FAIRSEQ_SETTINGS | {f"{side}_normalize_before": norm_first for side in ("encoder", "decoder")} | changes
    spm = trained_spm("bpe", vocabulary=120)
    pieces = pieces_of(spm)
    size = 4 + len(pieces) + len(LANGUAGES)
    their: dict[str, Any] = {
        "d_model": 24,
        "encoder_layers": settings["encoder_layers"],
        "decoder_layers": settings["decoder_layers"],
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "encoder_attention_heads": settings["encoder_attention_heads"],
        "decoder_attention_heads": settings["decoder_attention_heads"],
        "activation_function": settings["activation_fn"],
        "scale_embedding": not settings["no_scale_embedding"],
    }
    model: Any
    if norm_first:
        model = m2m100_folder(folder.parent / f"{folder.name}-m2m100", **their)
    else:
        vocabularies = {"src_vocab_size": size, "tgt_vocab_size": size, "langs": ["en", "ko"]}
        vocabularies["forced_eos_token_id"] = None
        # With a cache, FSMT looks at the words that follow where it is given all of them.
        model = FSMTForConditionalGeneration(FSMTConfig(**their, **vocabularies, use_cache=False)).eval()
        model.generation_config.use_cache = True
        randomise(model, 2)
        with torch.no_grad():
            model.model.decoder.embed_tokens.weight.copy_(model.model.encoder.embed_tokens.weight)
            model.model.decoder.output_projection.weight = model.model.decoder.embed_tokens.weight
    weights = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":
            weights["decoder.output_projection.weight"] = value
        elif name != "model.shared.weight" and "embed_positions" not in name:
            weights[name.removeprefix("model.")] = value
    for side in ("encoder", "decoder"):
        weights |= {f"{side}.version": torch.tensor([3.0]), f"{side}.embed_positions._float_tensor": torch.zeros(1)}
    args = Namespace(**settings)
    saved = {"args": None, "cfg": {"model": args, "task": {"_name": "translation"}}} if new else {"args": args}
    folder.mkdir(parents=True)
    torch.save(saved | {"model": weights, "extra_state": {"epoch": 1}}, folder / "checkpoint_last.pt")
    (folder / "spm.model").write_bytes(spm)
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    return model


def write_words(file: Path, words: dict[str, int]) -> None:
    file.write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")


def change_config(folder: Path, **changes: Any) -> Path:
    """Change settings of a config.json; None removes one."""
    file = folder / "config.json"
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return folder


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to))


def padded(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


MARIAN_SETTINGS: dict[str, Any] = {
    "bert-train-type-embeddings": True,
    "dec-cell": "gru",
    "dec-depth": 2,
    "dim-emb": 24,
    "dim-rnn": 1024,
    "enc-depth": 2,
    "enc-type": "bidirectional",
    "factors-combine": "sum",
    "input-types": [],
    "lemma-dependency": "",
    "right-left": False,
    "tied-embeddings-all": True,
    "transformer-aan-activation": "swish",
    "transformer-attention-mask": "default",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-decoder-dim-ffn": 0,
    "transformer-dim-aan": 2048,
    "transformer-dim-ffn": 40,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-heads": 4,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "type": "transformer",
    "version": "v1.12.0 65bf82f 2023-02-21 09:56:29 -0800",
}


def as_yml(settings: dict[str, Any]) -> str:
    """Write settings as Marian does."""

    def scalar(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return "~" if value is None else str(value) or '""'

    lines = []
    for name, value in settings.items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"  - {scalar(item)}" for item in value)] if value else [f"{name}:", "  []"]
        else:
            lines.append(f"{name}: {scalar(value)}")
    return "\n".join(lines)


def write_npz(file: Path, arrays: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
    text = np.frombuffer((as_yml(settings) + "\0").encode(), np.int8)
    np.savez(file, **arrays, **{"special:model.yml": text})  # type: ignore[arg-type]


def npz_folder(
    folder: Path, *, joint: bool = True, spm: bool = True, tied: str = "all", learned: bool = False, **changes: Any
) -> dict[str, np.ndarray]:
    """Write a folder of Marian and return its weights.

    joint: one vocabulary for both sides; learned: positions, in a table that Marian's own settings do not speak of;
    spm: it is a SentencePiece model, else a list beside two of them; tied: 'all',
    'target' or 'none'; changes: of settings, with '_' for '-'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = MARIAN_SETTINGS | {name.replace("_", "-"): value for name, value in changes.items()}
    if spm:
        models = [own_spm(), own_spm() if joint else own_spm("bpe")]
        vocabs = ["joint.spm"] * 2 if joint else ["src.spm", "trg.spm"]
        for name, data in zip(vocabs, models, strict=True):
            (folder / name).write_bytes(data)
        sizes = [len(parse_spm(data).pieces) for data in models]
    else:
        both = word_list(SOURCE_SPM, TARGET_SPM)
        lists = [both, both] if joint else [word_list(SOURCE_SPM), word_list(TARGET_SPM)]
        vocabs = ["opus.vocab.yml"] * 2 if joint else ["opus.src.vocab.yml", "opus.trg.vocab.yml"]
        for name, words in zip(vocabs, lists, strict=True):
            text = "".join(f"{json.dumps(word, ensure_ascii=False)}: {id}\n" for word, id in words.items())
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "source.spm").write_bytes(SOURCE_SPM)
        (folder / "target.spm").write_bytes(TARGET_SPM)
        sizes = [len(words) for words in lists]
    settings |= {"dim-vocabs": sizes}
    (folder / "decoder.yml").write_text(as_yml({"relative-paths": True, "models": ["model.npz"], "vocabs": vocabs}))
    arrays = npz_arrays(settings, sizes, tied)
    if learned:
        arrays["Wpos"] = arrays["Wemb"][:64].copy()
    write_npz(folder / "model.npz", arrays, settings)
    return arrays


def own_spm(algorithm: str = "unigram") -> bytes:
    """A SentencePiece model as Marian trains it: </s> is 0, <unk> is 1, and there is no start."""
    return trained_spm(algorithm, vocabulary=120, eos_id=0, unk_id=1, bos_id=-1)


def npz_arrays(settings: dict[str, Any], sizes: Sequence[int], tied: str) -> dict[str, np.ndarray]:
    """Draw the weights of a model of Marian, by its names."""
    random = np.random.default_rng(1)
    size, d_ff = settings["dim-emb"], settings["transformer-dim-ffn"]
    norm_first = settings["transformer-preprocess"] == "n"
    arrays: dict[str, np.ndarray] = {}

    def draw(name: str, *shape: int, add: float = 0.0) -> None:
        arrays[name] = (random.normal(0, STD, shape) + add).astype(np.float32)

    def norm(name: str, suffix: str = "") -> None:
        draw(f"{name}_ln_scale{suffix}", 1, size, add=1)
        draw(f"{name}_ln_bias{suffix}", 1, size)

    for side, depth in (("encoder", settings["enc-depth"]), ("decoder", settings["dec-depth"])):
        for layer in range(1, depth + 1):
            for attention in ("self", "context")[: 1 + (side == "decoder")]:
                for letter in "qkvo":
                    draw(f"{side}_l{layer}_{attention}_W{letter}", size, size)
                    draw(f"{side}_l{layer}_{attention}_b{letter}", 1, size)
                norm(f"{side}_l{layer}_{attention}_Wo", "_pre" * norm_first)
            draw(f"{side}_l{layer}_ffn_W1", size, d_ff)
            draw(f"{side}_l{layer}_ffn_b1", 1, d_ff)
            draw(f"{side}_l{layer}_ffn_W2", d_ff, size)
            draw(f"{side}_l{layer}_ffn_b2", 1, size)
            norm(f"{side}_l{layer}_ffn_ffn", "_pre" * norm_first)
        if norm_first:
            norm(f"{side}_top")
    if tied == "all":
        draw("Wemb", sizes[0], size)
    else:
        draw("encoder_Wemb", sizes[0], size)
        draw("decoder_Wemb", sizes[1], size)
    if tied == "none":
        draw("decoder_ff_logit_out_W", size, sizes[1])
    draw("decoder_ff_logit_out_b", 1, sizes[1])
    return arrays
