"""Read checkpoints of fairseq: a .pt file with its settings inside, a dictionary, and a SentencePiece model.

They are the Transformers of which M2M100 and NLLB-200 are some, with norms before or after each sublayer, and with one
vocabulary for both sides. Sources: fairseq/models/transformer, fairseq/data/dictionary.py and
fairseq/data/multilingual of facebookresearch/fairseq 0.12.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.fields import MAX_LAYERS, MAX_SIZE
from dragoman.data.spm import read_spm
from dragoman.errors import DragomanError
from dragoman.interop.checker import Checker, Settings
from dragoman.interop.huggingface import LANGUAGE
from dragoman.interop.names import fairseq_names
from dragoman.interop.pickled import convert_checkpoint
from dragoman.interop.sources import (
    MAX_LIST,
    MAX_WORDS,
    Foreign,
    Vocabulary,
    arrange,
    check_words,
    read_text,
    source_file,
)
from dragoman.interop.weights import Original, check_tensors, rows_of

WAY_OUT = "convert it to a folder of Hugging Face with the script for M2M100 of transformers, and import that"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # in front of every dictionary
PAD, END = SPECIAL.index("<pad>"), SPECIAL.index("</s>")  # a translation starts with the end
EMBEDDING = "encoder.embed_tokens.weight"
WITHOUT_WEIGHTS = tuple(
    f"{side}.{name}" for side in ("encoder", "decoder") for name in ("version", "embed_positions._float_tensor")
)
ACTIVATIONS: dict[str, Literal["relu", "gelu"]] = {"relu": "relu", "gelu": "gelu"}
REQUIRED: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["required"]
TAGS_NAME: dict[Any, Literal["text", "target"] | None] = {None: None, "src": "text", "tgt": "target"}


def is_fairseq(folder: Path) -> bool:
    """Return whether a folder looks like one of fairseq: it has a .pt file."""
    return any(folder.glob("*.pt"))


def read_fairseq(folder: Path, checker: Checker, scratch: Path) -> Foreign:
    """Return the model in a folder of fairseq. Raise DragomanError with all that speaks against it.

    scratch: a folder for a copy of the weights.
    """
    names = sorted(file.name for file in folder.iterdir())
    files = {
        "checkpoint (.pt)": [name for name in names if name.endswith(".pt")],
        "SentencePiece model (.model, .spm)": [name for name in names if name.endswith((".model", ".spm"))],
        "dictionary (dict.txt)": [name for name in names if re.fullmatch(r"(model_)?dict(\..+)?\.txt", name)],
    }
    for what, several in files.items():
        if len(several) != 1:
            checker.refuse(f"a folder of fairseq needs one {what}, here are {', '.join(several)[:200] or 'none'}")
    checker.finish()
    checkpoint, spm, dictionary = (several[0] for several in files.values())
    model, words = read_spm(source_file(folder, spm)), read_dictionary(source_file(folder, dictionary))
    try:
        tensors, values = convert_checkpoint(source_file(folder, checkpoint), scratch)
    except DragomanError as error:
        raise DragomanError(f"{error}; if it is a checkpoint of fairseq, {WAY_OUT}") from None
    if not values or EMBEDDING not in tensors.shapes:
        checker.refuse(f"{checkpoint}: no checkpoint of a Transformer with the settings of fairseq; {WAY_OUT}")
        checker.finish()
    settings = Settings(checkpoint, values, {}, checker)
    config = read_architecture(settings)
    words = with_languages(words, settings)
    shape = tensors.shapes[EMBEDDING]
    size = shape[0] if len(shape) == 2 else 0
    checker.expect(len(words) <= size <= MAX_WORDS, f"{checkpoint} has {size:,} words, but {dictionary} {len(words):,}")
    tags = {tag[1] or tag[2]: id for word, id in words.items() if (tag := LANGUAGE.fullmatch(word))}
    checker.finish()
    rows = rows_of(size, PAD, END, END)
    both = arrange(Vocabulary(dictionary, model, words, tags), rows)
    original = Original(tensors, fairseq_names, config, rows, rows, both.unsayable)
    check_tensors(original, checker, WITHOUT_WEIGHTS)
    checker.finish()
    checker.note(f"weights and settings read from {checkpoint}, words from {dictionary} and {spm}")
    return Foreign("fairseq", original, both, both, TAGS_NAME[settings.get("encoder_langtok")])


def read_architecture(settings: Settings) -> TransformerConfig:
    """Return the architecture that the settings describe; what we have not got is a reason to refuse."""
    for name, (allowed, why) in REQUIRED.items():
        settings.only(name, None, *allowed, why=why)
    d_model = settings.integer("encoder_embed_dim", 1, MAX_SIZE)
    heads = settings.integer("encoder_attention_heads", 1, MAX_SIZE)
    d_ff = settings.integer("encoder_ffn_embed_dim", 1, MAX_SIZE)
    norm_first = settings.flag("encoder_normalize_before")
    for name, value in (
        ("embed_dim", d_model),
        ("attention_heads", heads),
        ("ffn_embed_dim", d_ff),
        ("normalize_before", norm_first),
    ):
        settings.only(f"decoder_{name}", value, why=f"decoders unlike the encoder, which has {value}")
    settings.only("decoder_output_dim", None, d_model, why="outputs of another size than the vectors between layers")
    settings.only("encoder_langtok", *TAGS_NAME, why="only None, src and tgt can be imported")
    if d_model % heads or d_model % 2 or d_model < 4:
        settings.refuse("encoder_embed_dim", f"an even multiple of the {heads} heads is needed")
        d_model, heads = 4, 1
    return TransformerConfig(
        d_model=d_model,
        encoder_layers=settings.integer("encoder_layers", 1, MAX_LAYERS),
        decoder_layers=settings.integer("decoder_layers", 1, MAX_LAYERS),
        attention=AttentionConfig(heads=heads, bias=True),
        feed_forward=FeedForwardConfig(d_ff, activation=settings.choice("activation_fn", ACTIVATIONS)),
        positions="sinusoidal-halves",
        first_position=PAD + 1,
        norm_first=norm_first,
        norm_epsilon=1e-5,
        scale_embedding=not settings.get("no_scale_embedding"),
        output_bias=True,
    )


def read_dictionary(file: Path) -> dict[str, int]:
    """Return the words with their ids: four special ones and those of the lines.

    A line is a word and how often it occurred. Raise DragomanError where one is none, or a word is there twice.
    """
    words = {word: id for id, word in enumerate(SPECIAL)}
    for number, line in enumerate(read_text(file, MAX_LIST).removesuffix("\n").split("\n"), 1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdigit():
            raise DragomanError(f"{file}:{number}: not a word and how often it occurred")
        if word in words:
            raise DragomanError(f"{file}:{number}: {word[:100]!r} is there twice")
        words[word] = len(words)
    return check_words(file, words)


def with_languages(words: dict[str, int], settings: Settings) -> dict[str, int]:
    """Return words with those that fairseq adds: one for each language of the settings, unless it is there."""
    languages = settings.get("langs") or []
    if isinstance(languages, str):
        languages = languages.split(",")
    elif not isinstance(languages, list) or not all(isinstance(name, str) for name in languages):
        settings.refuse("langs", "a list of names is needed")
        languages = []
    tags = [f"__{name}__" for name in languages]
    for tag in tags:
        settings.checker.expect(bool(LANGUAGE.fullmatch(tag)), f"{settings.file} has a language {tag!r:.100}")
    return words | {tag: id for id, tag in enumerate((tag for tag in tags if tag not in words), len(words))}
