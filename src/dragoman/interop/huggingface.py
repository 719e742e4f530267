"""Read models as Hugging Face's `transformers` has them: MarianMT (OPUS-MT), M2M100, NLLB-200, SMaLL-100, our exports.

They compute what `transformers` does. What shapes the model is read from config.json, with the defaults of its class
where a setting is missing; which matrices are tied is read from the tensors. Sources: modeling_marian.py,
tokenization_marian.py, modeling_m2m_100.py, tokenization_m2m_100.py and tokenization_nllb.py of
huggingface/transformers 5.23.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.fields import MAX_LAYERS, MAX_SIZE, quote_value
from dragoman.config.model import MAX_FIRST_POSITION
from dragoman.data.spm import Kind, read_spm
from dragoman.data.tokenizer import BOS, EOS, PAD, Tokenizer
from dragoman.errors import DragomanError
from dragoman.interop.checker import Checker, Settings
from dragoman.interop.names import POSITION_TABLES, hugging_face_names
from dragoman.interop.pickled import convert_pickles
from dragoman.interop.sources import (
    MAX_LIST,
    MAX_WORDS,
    Foreign,
    Subwords,
    Vocabulary,
    arrange,
    language_tags,
    read_object,
    read_words,
    source_file,
)
from dragoman.interop.tensors import SafeTensors, Tensors
from dragoman.interop.tokenizer_json import FILE, TARGET_FILE, read_written
from dragoman.interop.weights import MISSING, Original, check_tensors, columns_in_pairs, rows_of
from dragoman.model.positions import sinusoids, sinusoids_in_halves
from dragoman.storage.records import MAX_RECORD_SIZE

GENERATION, M2M100_SPM = "generation_config.json", "sentencepiece.bpe.model"
OUTPUT_BIAS = "final_logits_bias"
POSITION_ERROR = 2e-3  # 16 bits are as coarse as that
EPSILONS = (1e-5, 1e-6)  # of norms: the first is that of `transformers`, the other that of Marian, too close to matter
LANGUAGE = re.compile(r"__([\w.-]{1,40})__|([a-z]{2,3}_[A-Z][a-z]{3})")  # of M2M100 and of NLLB

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KINDS: dict[str, dict[str, Any]] = {name: TABLES[name] for name in ("marian", "m2m_100")}  # by model_type
ACTIVATIONS: dict[str, Any] = TABLES["activations"]  # ours by theirs
HARMLESS = set(TABLES["harmless"].split())
MAX_SHOWN = 20  # unknown settings; more are only counted


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder looks like one of `transformers`: it has a config.json."""
    return (folder / "config.json").exists()


def read_hugging_face(folder: Path, checker: Checker, marian_positions: bool, scratch: Path) -> Foreign:
    """Return the model in a folder of `transformers`. Raise DragomanError with all that speaks against it.

    marian_positions: whether a MarianMT gets the positions that Marian trained it with, not those of `transformers`;
    scratch: a folder for copies of weights.
    """
    values = read_object(source_file(folder, "config.json"))
    kind = str(values.get("model_type"))
    refuse_other_files(folder, checker)
    if kind not in KINDS:
        why = TABLES["refused"].get(kind, "only marian and m2m_100 (M2M100, NLLB-200, SMaLL-100) can be imported")
        checker.refuse(f"config.json has model_type = {kind!r:.100}: {why}")
        checker.finish()
    settings = Settings("config.json", values, KINDS[kind]["defaults"], checker)
    config = read_architecture(settings, kind)
    pad, start, end = (settings.integer(f"{name}_token_id", 0, MAX_WORDS) for name in ("pad", "decoder_start", "eos"))
    size = target_size = settings.integer("vocab_size", 4, MAX_WORDS)
    if settings.get("decoder_vocab_size") is not None:
        target_size = settings.integer("decoder_vocab_size", 4, MAX_WORDS)
    note_unknown(settings)
    for name, id in (("pad_token_id", pad), ("decoder_start_token_id", start), ("eos_token_id", end)):
        checker.expect(id < target_size, f"config.json has {name} = {id:,}, but {target_size:,} words")
    checker.expect(kind == "marian" or not marian_positions, "the positions of Marian are for MarianMT alone")
    words = read_words_of(folder, kind, (size, target_size), (pad, start, end), checker)
    config = replace(config, output_bias=kind == "marian" or bool(words.unsayable))
    tensors = open_weights(folder, checker, scratch)
    columns = None
    if kind == "marian" and not marian_positions and not has_positions_of_marian(tensors, config, checker):
        columns = columns_in_pairs(config.d_model)
    elif kind == "marian":
        config = replace(config, positions="sinusoidal-halves")
    elif OUTPUT_BIAS in tensors.shapes and tensors.read(OUTPUT_BIAS).any():
        checker.refuse(
            f"the tensor '{OUTPUT_BIAS}' is a bias in the output, which transformers leaves out of an M2M100"
        )
    original = Original(tensors, hugging_face_names, config, *words.rows, words.unsayable, columns)
    check_tensors(original, checker, (*POSITION_TABLES, OUTPUT_BIAS))
    checker.finish()
    return Foreign(KINDS[kind]["form"], original, words.sides[0], words.sides[1], words.tags_name)


@dataclass(frozen=True)
class Words:
    """The words of both sides, and where they are in the matrices of the original: see `Original` and `Foreign`."""

    sides: tuple[Subwords, Subwords] | tuple[Tokenizer, Tokenizer]
    rows: tuple[list[int], list[int]]
    unsayable: list[int]
    tags_name: Literal["text", "target"] | None


def read_words_of(
    folder: Path, kind: str, sizes: tuple[int, int], special: tuple[int, int, int], checker: Checker
) -> Words:
    """Return the words in a folder. Raise DragomanError with all reasons so far if there are any.

    sizes: rows of the source's and the target's matrices; special: rows of padding, start and end.
    """
    if tokenizers := read_own_subwords(folder, sizes, special, checker):
        checker.finish()
        rows, target_rows = (rows_of(size, *special) for size in sizes)
        return Words(tokenizers, (rows, target_rows), [], None)
    names = {file.name for file in folder.iterdir()}
    exported = "source.spm" in names and M2M100_SPM not in names  # as MarianTokenizer reads them, for any kind
    read = read_marian_words if kind == "marian" or exported else read_m2m100_words
    vocabularies = read(folder, checker, special[2])
    for vocabulary, size in zip(vocabularies, sizes, strict=False):
        most = max(vocabulary.words.values())
        checker.expect(most < size, f"config.json has {size:,} words, but {vocabulary.file} {most + 1:,}")
    never = read_suppressed(folder, names)
    checker.finish()
    source, target = vocabularies
    rows = target_rows = rows_of(sizes[1], *special)
    if source.words != target.words:
        rows = rows_of(sizes[0], source.words.get("<pad>", MISSING), MISSING, source.words["</s>"])
    sides = arrange(source, rows), arrange(target, target_rows)
    unsayable = sorted({*sides[1].unsayable, *(id for id, row in enumerate(target_rows) if row in never)})
    tags_name: Literal["text", "target"] = "target" if kind == "marian" or is_small100(folder) else "text"
    return Words(sides, (rows, target_rows), unsayable, tags_name)


def read_own_subwords(
    folder: Path, sizes: tuple[int, int], special: tuple[int, int, int], checker: Checker
) -> tuple[Tokenizer, Tokenizer] | None:
    """Return our own tokenizers in an export of ours; None where the folder has none, with a reason if it looks so.

    sizes, special: as in `read_words_of`.
    """
    names = {file.name for file in folder.iterdir()}
    if FILE not in names or any(name.endswith((".spm", M2M100_SPM)) for name in names):
        return None
    try:
        if sorted(special) != [PAD, BOS, EOS]:
            raise DragomanError(f"{FILE}: not a dragoman tokenizer: padding, start and end are not its first three")
        order = [special.index(row) for row in (PAD, BOS, EOS)]
        source = target = read_written(source_file(folder, FILE), order, sizes[0])
        if TARGET_FILE in names:
            target = read_written(source_file(folder, TARGET_FILE), order, sizes[1])
    except DragomanError as error:
        checker.refuse(str(error).removeprefix(f"{folder}/"))
        return None
    for tokenizer, size in zip((source, target), sizes, strict=True):
        checker.expect(len(tokenizer) == size, f"config.json has {size:,} words, but its tokenizer {len(tokenizer):,}")
    return source, target


def read_suppressed(folder: Path, names: set[str]) -> set[int]:
    """Return the rows that `generate` of transformers never returns: those that generation_config.json suppresses."""
    if GENERATION not in names:
        return set()
    rows = read_object(file := source_file(folder, GENERATION)).get("suppress_tokens") or []
    if not isinstance(rows, list) or not all(type(row) is int for row in rows):
        raise DragomanError(f"{file}: its suppress_tokens are not a list of numbers")
    return set(rows)


def is_small100(folder: Path) -> bool:
    """Return whether an M2M100 is SMaLL-100, whose sources begin with the language to translate into, as its code says.

    The code, which is not run, is all by which to tell them apart.
    """
    return (folder / "tokenization_small100.py").exists()


def refuse_other_files(folder: Path, checker: Checker) -> None:
    """Add reasons for files that say that the folder holds something else; note code, which is ignored."""
    names = sorted(file.name for file in folder.iterdir())
    if "adapter_config.json" in names:
        checker.refuse("adapter_config.json: adapters such as LoRA; merge them into the model first")
    if quantized := [name for name in names if name.endswith(".gguf")]:
        checker.refuse(f"{quantized[0]}: GGUF has quantized weights")
    if code := [name for name in names if name.endswith(".py")]:
        checker.note(f"code in the folder was ignored: {', '.join(code)[:200]}")


def read_architecture(settings: Settings, kind: str) -> TransformerConfig:
    """Return the architecture that a config.json describes; what we have not got is a reason to refuse."""
    for name, (value, why) in KINDS[kind]["required"].items():
        settings.only(name, value, why=why)
    if settings.get("quantization_config") is not None:
        settings.refuse("quantization_config", "8-bit or 4-bit weights; import the model that they were made of")
    if settings.get("auto_map") is not None:
        settings.checker.note("auto_map in config.json, which names code, was ignored")
    heads = settings.integer("encoder_attention_heads", 1, MAX_SIZE)
    d_model = settings.integer("d_model", 1, MAX_SIZE)
    d_ff = settings.integer("encoder_ffn_dim", 1, MAX_SIZE)
    settings.only("decoder_attention_heads", heads, why=f"decoders with other heads than the encoder's {heads}")
    settings.only("decoder_ffn_dim", d_ff, why=f"decoders with another feed-forward size than the encoder's {d_ff}")
    if d_model % heads:
        settings.refuse("d_model", f"it is no multiple of the {heads} heads")
        heads = 1
    pre_norm = kind == "m2m_100"
    return TransformerConfig(
        d_model=d_model,
        encoder_layers=settings.integer("encoder_layers", 1, MAX_LAYERS),
        decoder_layers=settings.integer("decoder_layers", 1, MAX_LAYERS),
        attention=AttentionConfig(heads=heads, bias=True, dropout=settings.fraction("attention_dropout")),
        feed_forward=FeedForwardConfig(
            d_ff,
            activation=settings.choice("activation_function", ACTIVATIONS),
            dropout=settings.fraction("activation_dropout"),
        ),
        dropout=settings.fraction("dropout"),
        positions="sinusoidal-halves" if pre_norm else "sinusoidal",
        first_position=settings.integer("pad_token_id", 0, MAX_FIRST_POSITION - 1) + 1 if pre_norm else 0,
        norm_first=pre_norm,
        norm_epsilon=read_norm_epsilon(settings),
        scale_embedding=settings.flag("scale_embedding"),
    )


def read_norm_epsilon(settings: Settings) -> float:
    """Return what norms add to the variance: in an export of ours what its model had, else what `transformers` adds.

    That reads no such setting. So a model which it has trained further and saved, with its version, has its epsilon.
    """
    settings.only("norm_epsilon", *EPSILONS, why="the norms of transformers have 1e-05")
    if "transformers_version" in settings.values:
        return EPSILONS[0]
    return next((epsilon for epsilon in EPSILONS if epsilon == settings.get("norm_epsilon")), EPSILONS[0])


def note_unknown(settings: Settings) -> None:
    """Warn of the settings that nobody has read and that are neither harmless nor switched off.

    They may shape the model. But what does so nearly always has tensors, which are checked; and a new release of
    `transformers` must not make its models unreadable.
    """
    unknown = [
        f"{name if name.isidentifier() else repr(name):.100} = {quote_value(value)}"
        for name, value in settings.values.items()
        if name not in settings.read | HARMLESS and value not in (None, False, 0, "", [], {})
    ]
    if unknown:
        more = f"; and {len(unknown) - MAX_SHOWN} more" if len(unknown) > MAX_SHOWN else ""
        settings.checker.warn(
            f"unknown settings in {settings.file} were ignored: {', '.join(unknown[:MAX_SHOWN])}{more}; "
            "import with --check to compare the model with transformers"
        )


def read_marian_words(folder: Path, checker: Checker, end: int) -> Sequence[Vocabulary]:
    """Return the words of MarianMT, source and target; none where something is missing, which is then a reason."""
    names = {file.name for file in folder.iterdir()}
    missing = [name for name in ("vocab.json", "source.spm", "target.spm") if name not in names]
    if missing:
        moses = any(re.search(r"\.bpe$|bpe\.codes|\.bpe\d+", name) for name in names)
        why = ": text that is cut by Moses and BPE with '@@'" if moses else ""
        checker.refuse(f"{', '.join(missing)} missing{why}")
        return ()
    options = read_object(source_file(folder, "tokenizer_config.json")) if "tokenizer_config.json" in names else {}
    separate = bool(options.get("separate_vocabs"))
    if separate and "target_vocab.json" not in names:
        checker.refuse("target_vocab.json missing, though tokenizer_config.json has separate_vocabs = true")
        return ()
    vocabularies = []
    for side, spm in (("vocab.json", "source.spm"), ("target_vocab.json" if separate else "vocab.json", "target.spm")):
        words = read_words(source_file(folder, side))
        for special in ("<unk>", "</s>"):
            checker.expect(special in words, f"{side} has no '{special}'")
        vocabularies.append(Vocabulary(side, read_spm(source_file(folder, spm)), words, language_tags(words)))
    expect_end(vocabularies[1], end, checker)
    return vocabularies


def read_m2m100_words(folder: Path, checker: Checker, end: int) -> Sequence[Vocabulary]:
    """Return the words of M2M100, NLLB or SMaLL-100, for both sides the same; none if something is missing."""
    names = {file.name for file in folder.iterdir()}
    if M2M100_SPM not in names:
        checker.refuse(f"{M2M100_SPM} missing: tokenizer.json does not give the same subwords")
        return ()
    model = read_spm(source_file(folder, M2M100_SPM))
    if "vocab.json" in names:  # M2M100 and SMaLL-100 have a list
        file, words = "vocab.json", read_words(source_file(folder, "vocab.json"))
    else:  # NLLB has the ids of SentencePiece after four words of its own: <s>, <pad>, </s>, <unk>
        file = M2M100_SPM
        words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        special = {piece.text for piece in model.pieces if piece.kind in (Kind.UNKNOWN, Kind.CONTROL)}
        words |= {piece.text: id + 1 for id, piece in enumerate(model.pieces) if piece.text not in special}
        if len(special) != 3 or max(words.values()) != len(words) - 1:
            checker.refuse(f"{file}: its first three pieces are not those for unknown, start and end")
            return ()
    words = {**words, **read_added_words(folder, names, words, checker)}
    tags = {tag[1] or tag[2]: id for word, id in words.items() if (tag := LANGUAGE.fullmatch(word))}
    checker.expect("<unk>" in words, f"{file} has no '<unk>'")
    checker.expect(bool(tags), "no word names a language: special_tokens_map.json or tokenizer_config.json is needed")
    both = Vocabulary(file, model, words, tags)
    expect_end(both, end, checker)
    return both, both


def expect_end(vocabulary: Vocabulary, end: int, checker: Checker) -> None:
    """Add a reason where the end of config.json is not the end of the words."""
    if (id := vocabulary.words.get("</s>")) != end:
        checker.refuse(f"config.json has eos_token_id = {end}, but '</s>' has {id} in {vocabulary.file}")


def read_added_words(folder: Path, names: set[str], words: Mapping[str, int], checker: Checker) -> dict[str, int]:
    """Return the words that a tokenizer of `transformers` adds to its list, such as languages, with their ids.

    Some files have the ids; others list the words, which then follow the list in their order.
    """
    added: dict[Any, Any] = {}
    listed: list[Any] = []
    for name in ("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"):
        if name not in names:
            continue
        content = read_object(file := source_file(folder, name), MAX_RECORD_SIZE)
        try:
            if name == "added_tokens.json":
                added |= content
            added |= {token["content"]: int(id) for id, token in content.get("added_tokens_decoder", {}).items()}
            for key in ("additional_special_tokens", "extra_special_tokens"):
                tokens = content.get(key) or []
                listed += [token["content"] if isinstance(token, dict) else token for token in tokens]
            new = [token for token in dict.fromkeys(listed) if token not in words]
        except (TypeError, ValueError, KeyError, AttributeError):
            raise DragomanError(f"{file}: its special tokens are not a list of words") from None
    if not added and listed:
        added = {token: len(words) + index for index, token in enumerate(new)}
    taken = {id: word for word, id in words.items()}
    for word, id in added.items():
        if not isinstance(word, str) or type(id) is not int or not 0 <= id < MAX_WORDS:
            checker.refuse(f"the added word {word!r:.100} has the id {id!r:.100}")
        elif taken.setdefault(id, word) != word or words.get(word, id) != id:
            checker.refuse(f"the added word {word!r:.100} has the id {id}, which is not its own")
    return {word: id for word, id in added.items() if word not in words}


def open_weights(folder: Path, checker: Checker, scratch: Path) -> Tensors:
    """Return the tensors of a folder: safetensors if it has them, else pickles, which another process rewrites.

    scratch: a folder for what is rewritten. Raise DragomanError where there are none, or a file is damaged.
    """
    for name, pickled in (("model.safetensors", False), ("pytorch_model.bin", True)):
        if (folder / name).exists():
            files = [source_file(folder, name)]
        elif (folder / f"{name}.index.json").exists():
            index = source_file(folder, f"{name}.index.json")
            parts = read_object(index, MAX_LIST).get("weight_map")
            if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
                raise DragomanError(f"{index}: it has no weight_map")
            files = [source_file(folder, part) for part in sorted(set(parts.values()))]
        else:
            continue
        checker.note(f"weights read from {', '.join(file.name for file in files)[:200]}")
        return convert_pickles(files, scratch) if pickled else SafeTensors(files)
    others = sorted(file.name for file in folder.iterdir() if file.suffix in (".h5", ".msgpack", ".ot", ".onnx"))
    raise DragomanError(
        f"{folder}: cannot be imported: no model.safetensors and no pytorch_model.bin"
        f"{', only ' + ', '.join(others)[:200] if others else ''}"
    )


def has_positions_of_marian(tensors: Tensors, config: TransformerConfig, checker: Checker) -> bool:
    """Return whether a MarianMT has the positions that Marian computes, in a table of its own; add a reason for others.

    Without a table, `transformers` computes its own positions.
    """
    order = columns_in_pairs(config.d_model).argsort()
    kinds = set()
    for name in POSITION_TABLES:
        if name not in tensors.shapes:
            continue
        shape = tensors.shapes[name]
        if len(shape) != 2 or not shape[0] or shape[1] != config.d_model:
            checker.refuse(f"the tensor '{name}' is {shape} instead of (positions, {config.d_model})")
            continue
        table = tensors.read(name)
        formulas = {False: sinusoids(*shape)[:, order], True: sinusoids_in_halves(*shape)}
        near = {kind for kind, formula in formulas.items() if (formula - table).abs().max() < POSITION_ERROR}
        kinds |= near
        if not near:
            checker.refuse(f"the tensor '{name}' has positions that follow no formula: learned positions")
    checker.expect(len(kinds) < 2, "the encoder and the decoder have different positions")
    return kinds == {True}
