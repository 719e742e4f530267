"""Read models as Marian has them: a .npz file with its settings inside, and the vocabularies that decoder.yml names.

A vocabulary is a list of words (.yml, .json) with SentencePiece models beside it, as OPUS-MT has it, or a SentencePiece
model itself (.spm), as HPLT has it. The positions are Marian's own: halves with d_model/2 - 1 steps. Sources:
src/models/transformer.h and src/common/config_parser.cpp of marian-nmt/marian-dev 1.12.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.fields import MAX_LAYERS, MAX_POSITIONS, MAX_SIZE
from dragoman.data.spm import Kind, SentencePieceModel, read_spm
from dragoman.errors import DragomanError
from dragoman.interop.checker import Checker, Settings
from dragoman.interop.names import marian_names
from dragoman.interop.sources import (
    MAX_LIST,
    MAX_WORDS,
    Foreign,
    Vocabulary,
    arrange,
    check_words,
    language_tags,
    read_text,
    read_words,
    source_file,
)
from dragoman.interop.tensors import Npz
from dragoman.interop.weights import MISSING, Original, check_tensors, rows_of
from dragoman.interop.yml import parse_settings, parse_words

SETTINGS = "special:model.yml"  # an array of bytes in the .npz file
MAX_SETTINGS = 1 << 20  # bytes
ALIGNED_HEAD = 0  # which head guided alignment trains

ACTIVATIONS: dict[str, Literal["relu", "silu"]] = {"swish": "silu", "relu": "relu"}
TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HARMLESS = re.compile("|".join(TABLES["harmless"]))


def is_marian(folder: Path) -> bool:
    """Return whether a folder looks like one of Marian: it has a .npz file."""
    return any(folder.glob("*.npz"))


def read_marian(folder: Path, checker: Checker) -> Foreign:
    """Return the model in a folder of Marian. Raise DragomanError with all that speaks against it."""
    decoder = read_decoder(folder)
    tensors = Npz(source_file(folder, find_model(folder, decoder)))
    if SETTINGS not in tensors.shapes:
        raise DragomanError(f"{tensors.file}: it has no {SETTINGS}: not a model of Marian, or an old one")
    text = tensors.array(SETTINGS).reshape(-1)[: MAX_SETTINGS + 1].tobytes()
    try:
        values = parse_settings(text.split(b"\0")[0].decode())
    except ValueError as error:
        raise DragomanError(f"{tensors.file}: {SETTINGS}: {error}") from None
    settings = Settings(SETTINGS, values, TABLES["defaults"], checker)
    config = read_architecture(settings, tensors)
    refuse_unknown(settings)
    if [name for name in tensors.shapes if "QuantMultA" in name or "quantMult" in name]:
        checker.refuse("8-bit weights (intgemm): import the model that they were made of")
    vocabularies = read_vocabularies(folder, decoder, checker)
    sizes = values.get("dim-vocabs")
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(s) is int and 3 < s <= MAX_WORDS for s in sizes):
        settings.refuse("dim-vocabs", "two numbers of words are needed")
    checker.finish()
    assert isinstance(sizes, list)
    source, target = vocabularies
    for vocabulary, size in zip(vocabularies, sizes, strict=True):
        most = max(vocabulary.words.values())
        checker.expect(most < size, f"{SETTINGS} has {size:,} words, but {vocabulary.file} {most + 1:,}")
    rows, source_rows = (
        rows_of(size, MISSING, MISSING, vocabulary.words["</s>"])
        for vocabulary, size in ((target, sizes[1]), (source, sizes[0]))
    )
    sides = arrange(source, source_rows), arrange(target, rows)
    names = partial(marian_names, norm_first=config.norm_first)
    # Marian never says the unknown word, either, but gives it a share of the probability: its weights stay as they are.
    unsayable = [id for id in sides[1].unsayable if id != sides[1].unknown]
    original = Original(tensors, names, config, source_rows, rows, unsayable, transposed=True)
    check_tensors(original, checker, (SETTINGS,))
    checker.finish()
    return Foreign("Marian", original, *sides, "target", aligned=aligned_head(settings, config))


def read_decoder(folder: Path) -> dict[str, Any]:
    """Return the settings in decoder.yml, or in the one file whose name ends so; none where there is none."""
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith("decoder.yml"))
    name = "decoder.yml" if "decoder.yml" in names else names[0] if len(names) == 1 else None
    if name is None:
        return {}
    file = source_file(folder, name)
    try:
        return parse_settings(read_text(file, MAX_SETTINGS))
    except ValueError as error:
        raise DragomanError(f"{file}: {error}") from None


def names_in(decoder: dict[str, Any], setting: str) -> list[str]:
    """Return the names of the files that a setting of decoder.yml lists, without their folders."""
    listed = decoder.get(setting) or []
    return [Path(str(name)).name for name in (listed if isinstance(listed, list) else [listed])]


def find_model(folder: Path, decoder: dict[str, Any]) -> str:
    """Return the name of the .npz file. Raise DragomanError where there is none, or several and none is named."""
    names = sorted(file.name for file in folder.iterdir() if file.suffix == ".npz")
    listed = names_in(decoder, "models")
    if len(listed) > 1:
        raise DragomanError(
            f"{folder}: cannot be imported: decoder.yml names {len(listed)} models: leave one of them there"
        )
    if listed and listed[0] in names:
        return listed[0]
    names = [name for name in names if not name.endswith(".optimizer.npz")]
    if len(names) != 1:
        raise DragomanError(f"{folder}: cannot be imported: it has {len(names)} .npz files instead of one")
    return names[0]


def read_architecture(settings: Settings, tensors: Npz) -> TransformerConfig:
    """Return the architecture that Marian's settings describe; what we have not got is a reason to refuse."""
    settings.only("type", "transformer", why="only transformers can be imported, no recurrent networks")
    for name, (allowed, why) in TABLES["required"].items():
        settings.only(name, None, *allowed, why=why)
    heads = settings.integer("transformer-heads", 1, MAX_SIZE)
    d_model = settings.integer("dim-emb", 1, MAX_SIZE)
    d_ff = settings.integer("transformer-dim-ffn", 1, MAX_SIZE)
    why = "a feed-forward size of the decoder that is not the encoder's"
    settings.only("transformer-decoder-dim-ffn", None, 0, d_ff, why=why)
    if d_model % heads:
        settings.refuse("dim-emb", f"it is no multiple of the {heads} heads")
        heads = 1
    before, after, top = (
        settings.get(f"transformer-{name}") for name in ("preprocess", "postprocess", "postprocess-top")
    )
    # n: norm, a: add the residual, d: dropout, r: RMS norm, h: highway
    around = [str(steps or "").replace("d", "") for steps in (before, after, top)]
    norm_first = around == ["n", "a", "n"]
    if not norm_first and around != ["", "an", ""]:
        kind = "RMS norms or highways" if set("".join(around)) - set("an") else "norms at other places"
        settings.refuse("transformer-postprocess", f"{kind} ('{before}' before, '{after}' after, '{top}' on top)")
    settings.only("transformer-postprocess-emb", "d", "", why="a norm of the embeddings")
    # Marian up to 1.12 writes that setting, but reads another one: only the table tells whether positions were learned.
    learned = "Wpos" in tensors.shapes
    if settings.flag("transformer-train-position-embeddings") and not learned:
        settings.checker.note("the settings say that positions were learned, but there are none: Marian computed them")
    shape = tensors.shapes["Wpos"] if learned else (1024, d_model)
    length = shape[0] if len(shape) == 2 else 0
    settings.checker.expect(2 <= length <= MAX_POSITIONS, f"Wpos has {length:,} positions")
    if norm_first:
        settings.checker.note(
            "pre-norm, as Marian 1.10 and later train and score it; Marian's decoder leaves the norm out of keys and "
            "values"
        )
    activation = settings.get("transformer-ffn-activation")
    if activation == "gelu":
        settings.refuse("transformer-ffn-activation", "Marian's GELU is another one than everyone's")
    return TransformerConfig(
        d_model=d_model,
        encoder_layers=settings.integer("enc-depth", 1, MAX_LAYERS),
        decoder_layers=settings.integer("dec-depth", 1, MAX_LAYERS),
        attention=AttentionConfig(heads=heads, bias=True),
        feed_forward=FeedForwardConfig(d_ff, ACTIVATIONS.get(str(activation), "relu")),
        positions="learned" if learned else "sinusoidal-halves",
        max_length=max(2, min(length, MAX_POSITIONS)),
        norm_first=norm_first,
        norm_epsilon=1e-6,
        scale_embedding=not learned,
        output_bias=True,
    )


def refuse_unknown(settings: Settings) -> None:
    """Add a reason for each setting that nobody has read, may shape the model and is not switched off."""
    settings.get("dim-vocabs")
    if settings.get("transformer-ffn-activation") not in (*ACTIVATIONS, "gelu"):
        settings.refuse("transformer-ffn-activation", f"only {', '.join(ACTIVATIONS)} can be imported")
    for name, value in settings.values.items():
        if name not in settings.read and not HARMLESS.fullmatch(name) and value not in (None, False, 0, "", []):
            settings.refuse(name[:100], "an unknown setting, which may shape the model")


def aligned_head(settings: Settings, config: TransformerConfig) -> tuple[int, int] | None:
    """Return the layer and the head of guided alignment, from 0; None where the model has none or it is not known.

    Marian writes the layer of every model, so 'last' alone says nothing.
    """
    layer = settings.get("transformer-guided-alignment-layer")
    if isinstance(layer, str) and layer.isdigit():
        layer = int(layer)
    if type(layer) is int and 1 <= layer <= config.decoder_layers:
        return layer - 1, ALIGNED_HEAD
    return None


def read_vocabularies(folder: Path, decoder: dict[str, Any], checker: Checker) -> Sequence[Vocabulary]:
    """Return the vocabularies of source and target; none where something is missing, which is then a reason."""
    names = sorted(file.name for file in folder.iterdir())
    listed = names_in(decoder, "vocabs")
    if not listed:
        listed = guess_vocabularies(names)
    missing = [name for name in listed if name not in names]
    if not listed or missing or len(listed) not in (1, 2):
        checker.refuse(
            f"the vocabularies {', '.join(missing)} are missing"
            if missing
            else "decoder.yml, which names the vocabularies, is missing"
        )
        return ()
    vocabularies = []
    for name, side in zip((listed[0], listed[-1]), ("source", "target"), strict=True):
        if name.endswith((".yml", ".yaml", ".json")):
            vocabularies += read_list(folder, name, side, names, checker)
        elif name.endswith((".fsv", ".txt")):
            checker.refuse(
                f"{name}: {'factored vocabularies' if name.endswith('.fsv') else 'lists of words as plain text'}"
            )
        else:
            vocabularies.append(own_vocabulary(name, read_spm(source_file(folder, name)), checker))
    return vocabularies if len(vocabularies) == 2 else ()


def guess_vocabularies(names: Sequence[str]) -> list[str]:
    """Return the names of the vocabularies of source and target where no decoder.yml says them; none if unclear."""
    lists = [
        name for name in names if name.endswith((".vocab.yml", ".vocab.json")) or name in ("vocab.yml", "vocab.json")
    ]
    pieces = [name for name in names if name.endswith((".spm", ".vocab"))]
    for candidates in (lists, pieces):
        if len(candidates) == 1:
            return candidates
        sides = [[name for name in candidates if re.search(side, name)] for side in (r"src|source", r"trg|tgt|target")]
        if all(len(side) == 1 for side in sides) and len(candidates) == 2:
            return [side[0] for side in sides]
    return []


def read_list(folder: Path, name: str, side: str, names: Sequence[str], checker: Checker) -> list[Vocabulary]:
    """Return the vocabulary in a list, with the SentencePiece model of a side; none where a reason is against it."""
    file = source_file(folder, name)
    if name.endswith(".json"):
        words = read_words(file)
    else:
        try:
            words = check_words(file, parse_words(read_text(file, MAX_LIST)))
        except ValueError as error:
            raise DragomanError(f"{file}: {error}") from None
    spm = next((each for each in (f"{side}.spm", "spm.model") if each in names), None)
    if spm is None:
        why = ": text that is cut by Moses or BPE with '@@'" if any("@@" in word for word in words) else ""
        checker.refuse(f"{side}.spm is missing{why}: {name} alone does not say how to cut text")
        return []
    for special in ("</s>", "<unk>"):
        if special not in words:
            checker.refuse(f"{name} has no '{special}'")
            return []
    return [Vocabulary(name, read_spm(source_file(folder, spm)), words, language_tags(words))]


def own_vocabulary(name: str, model: SentencePieceModel, checker: Checker) -> Vocabulary:
    """Return the vocabulary that a SentencePiece model itself is, with the ids that it has."""
    words = {piece.text: id for id, piece in enumerate(model.pieces)}
    unknown = next(piece.text for piece in model.pieces if piece.kind is Kind.UNKNOWN)
    end = model.names[2]
    checker.expect(end in words, f"{name} has no end of sentences, '{end[:100]}'")
    words = {{unknown: "<unk>", end: "</s>"}.get(word, word): id for word, id in words.items()}
    return Vocabulary(name, model, words, language_tags(words))
