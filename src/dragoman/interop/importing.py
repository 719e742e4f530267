"""Import models of others: find out what a folder or zip file holds, read it, write a model folder of ours.

Nothing is written before everything was checked, and the new folder is there as a whole or not at all.
"""

import re
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dragoman.alignment.heads import AlignmentHead
from dragoman.config.fields import check_argument, check_choice
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.archive import unpack
from dragoman.interop.checker import Checker
from dragoman.interop.fairseq import is_fairseq, read_fairseq
from dragoman.interop.huggingface import is_hugging_face, read_hugging_face
from dragoman.interop.marian import is_marian, read_marian
from dragoman.interop.sources import Foreign, download_source, read_text, source_file
from dragoman.interop.transformers.engine import import_transformers
from dragoman.interop.transformers.original import compare_with_original
from dragoman.interop.verification import Agreement, Mismatch
from dragoman.interop.weights import build_model
from dragoman.model_folder import copy_records, fetch_model, write_model
from dragoman.model_folder.manifest import exported_for
from dragoman.storage.hub import is_on_hub
from dragoman.storage.output import require_place
from dragoman.storage.writing import MANIFEST, name_errors, new_folder
from dragoman.text import languages, scripts
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags

ImportedPositions = Literal["own", "marian"]
LICENCE = re.compile(r"^licen[sc]e: *['\"]?([\w. +-]{1,60})['\"]?$", re.MULTILINE)
MAX_README = 1 << 20  # bytes
# Of a model folder of ours, which go along to Hugging Face and come back.
RECORDS = (
    *(record.RECORD for record in (AlignmentHead, SourceExtent, KnownWords, DefaultTags, LanguageTags, Origin)),
    *(record.RECORD for record in (scripts, languages)),
)


def import_model(
    source: str | Path,
    out: str | Path,
    positions: ImportedPositions = "own",
    tag: str = "",
    target_tag: str = "",
    check: bool = False,
    sample: str | Path | None = None,
    report: Callable[[str], None] | None = None,
) -> Path:
    """Import a model of others as the new model folder `out`, and return that.

    source: a folder or a zip file of Hugging Face (MarianMT, M2M100, NLLB-200, SMaLL-100), Marian or fairseq, also one
    that `export_model` has written for Hugging Face, or 'hub:USER/NAME' for one on the Hugging Face Hub; positions:
    'own' for those that the program it comes from computes, 'marian' for those that Marian trained a MarianMT with;
    tag, target_tag: what sources and targets begin with where nobody says so; check: compare the new model with the
    source in `transformers`; sample: a file for that with a text in each line, None for made-up ones; report: is called
    with each note of the card that a user must not miss, such as unknown settings.

    Raise DragomanError with all reasons where it cannot be imported or has no such tag, and where the check fails or
    transformers is missing; UsageError where `out` exists and for arguments that do not go together.
    """
    check_argument("source", source, str | Path)
    check_argument("out", out, str | Path)
    check_choice("positions", positions, ("own", "marian"))
    source, out = Path(source), Path(out)
    if sample is not None and not check:
        raise UsageError("--sample is for --check, which compares with transformers")
    if check and positions == "marian":
        raise UsageError("--check compares with transformers, which has other positions than --positions marian")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out}: exists already")
    require_place(out)
    if not (is_on_hub(source) or source.exists()):
        raise DragomanError(f"{source}: no such file or folder")
    if source.is_file() and not zipfile.is_zipfile(source):
        raise DragomanError(f"{source}: not a zip file; a model is imported from its whole folder, {source.parent}")
    if check:
        import_transformers()
    prefix = f".{out.name}."
    with name_errors(out, out.with_name(prefix)), tempfile.TemporaryDirectory(prefix=prefix, dir=out.parent) as scratch:
        if is_on_hub(source):
            folder = download_source(str(source))
            source = Path(f"{str(source).split('@')[0]}@{folder.name}")  # a branch moves, a commit does not
        else:
            folder = source if source.is_dir() else unpack(source, Path(scratch) / "unpacked")
        if check and not is_hugging_face(folder):
            raise DragomanError(f"{source}: --check compares with transformers, which reads only its own folders")
        checker = Checker(source)
        foreign = read_foreign(folder, checker, positions == "marian", Path(scratch))
        model = build_model(foreign.original)
        tokenizers = tokenizers_of(foreign)
        recorded = DefaultTags.load(folder)
        tags = DefaultTags(tag or recorded.source, target_tag or recorded.target)
        tokenizers.source.tag_ids(tags.source)
        tokenizers.target.tag_ids(tags.target)
        if check:
            try:
                agreement = compare_with_original(
                    model, foreign.original, folder, tokenizers.source, tags.source, sample
                )
            except Mismatch as error:
                raise DragomanError(
                    f"{out}: not written: it does not translate as {source} in transformers: {error}"
                ) from None
            checker.note(describe_check(agreement, sample))
        original = str(source) if is_on_hub(source) else source.name
        origin = Origin.load(folder) or Origin(original, read_licence(folder))
        card = card_of_import(out.name, original, foreign, checker, origin.licence)
        with new_folder(out) as draft:
            write_model(draft, model, tokenizers, card)
            if tokenizers.source.tags and foreign.tags_name:
                names = LanguageTags(tuple(tokenizers.source.tags), foreign.tags_name)
                (draft / LanguageTags.RECORD).write_text(names.as_json(), encoding="utf-8")
            if foreign.aligned:
                layer, head = foreign.aligned
                AlignmentHead(layer + 1, head + 1).save(draft)
            copy_records(folder, draft, RECORDS)
            if tags != DefaultTags():
                (draft / DefaultTags.RECORD).write_text(tags.as_json(), encoding="utf-8")
            (draft / Origin.RECORD).write_text(origin.as_json(), encoding="utf-8")
    if report:
        for note in checker.warnings:
            report(note)
    return out


def tokenizers_of(foreign: Foreign) -> Tokenizers:
    """Return the tokenizers of the two sides, one and the same where both cut and number texts alike."""
    source, target = (
        side
        if isinstance(side, Tokenizer)
        else SentencePieceTokenizer(side.model, side.pieces, side.unknown, side.tags)
        for side in (foreign.source, foreign.target)
    )
    return Tokenizers.from_tokenizer(source) if foreign.source == foreign.target else Tokenizers(source, target)


def describe_check(agreement: Agreement, sample: str | Path | None) -> str:
    """Return the note of a card on how far a new model agrees with what transformers makes of its original."""
    what = f"sources of {Path(sample).name}" if sample else "made-up sources"
    version, agreed = import_transformers().__version__, "; ".join(str(agreement).splitlines())
    return f"compared with transformers {version} on {what}: {agreed}"


def read_foreign(folder: Path, checker: Checker, marian_positions: bool, scratch: Path) -> Foreign:
    """Return the model of others in a folder. Raise DragomanError with all that speaks against it."""
    model_folder = fetch_model(folder)
    if (model_folder / MANIFEST).exists():
        program = exported_for(model_folder, {file.name for file in model_folder.rglob("*")})
        if program is None:
            is_zip = checker.source.is_file()
            way = "unpack it, and use the folder" if is_zip else f"use it as it is, with -m {checker.source}"
            raise UsageError(f"{checker.source}: a model of dragoman already: {way}")
        if program != "transformers":
            raise DragomanError(
                f"{checker.source}: cannot be imported: a model that was exported for {program}, which takes it apart; "
                "import what dragoman export --to huggingface makes of it"
            )
    if is_hugging_face(folder):
        return read_hugging_face(folder, checker, marian_positions, scratch)
    if marian_positions:
        checker.refuse("the positions of Marian are for MarianMT alone; a .npz file has them anyway")
    if is_marian(folder):
        return read_marian(folder, checker)
    if is_fairseq(folder):
        return read_fairseq(folder, checker, scratch)
    for pattern, why in (
        ("adapter_config.json", "an adapter such as LoRA; merge it into its model first"),
        ("*.gguf", "GGUF, which has quantized weights"),
        ("*.bin", "weights without a config.json; those of Firefox and Bergamot have 8-bit weights and SSRU decoders"),
    ):
        if files := sorted(folder.glob(pattern)):
            checker.refuse(f"{files[0].name}: {why}")
    checker.refuse("no folder of Hugging Face (config.json), Marian (a .npz file) or fairseq (a .pt file)")
    checker.finish()
    raise AssertionError


def read_licence(folder: Path) -> str:
    """Return the licence that the README.md of a folder names in its first lines; '' where it names none."""
    if not (folder / "README.md").exists():
        return ""
    text = read_text(source_file(folder, "README.md"), MAX_README)
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    licence = LICENCE.search(front[1]) if front else None
    return licence[1] if licence else ""


def card_of_import(name: str, origin: str, foreign: Foreign, checker: Checker, licence: str) -> str:
    """Return the card of an imported model in Markdown: where it comes from, its licence, what was read and assumed."""
    original = foreign.original
    rows = [
        f"Imported from {origin} ({foreign.form}): {original.config}.",
        f"Licence: {licence or 'not stated in the folder; look at where it comes from'}.",
        *(f"{note[0].upper()}{note[1:]}." for note in checker.notes),
        f"Positions: {original.config.positions}, the first at {original.config.first_position}; "
        f"norms with epsilon {original.config.norm_epsilon:g}.",
        "Padding, start and end became the words 0, 1 and 2. What has no text is never generated.",
    ]
    return f"# {name}\n\n" + "".join(f"- {row}\n" for row in rows)
