"""Corpora that are wrong in one way each, made in code, and writers of every format."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet
from conftest import toy_pairs

from dragoman.data.corpus import Pair

BOM = "\ufeff"
CLEAN = toy_pairs(60)
AT = 5  # the pair that something happens to
SOURCE, TARGET = CLEAN[AT]


# Writers: pairs -> the files of a corpus, by suffix.


def tsv(pairs: Sequence[Pair]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def text(texts: Sequence[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def csv_rows(pairs: Sequence[Pair]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("source", "target"), *pairs])
    return file.getvalue().encode()


def jsonl(pairs: Sequence[Pair]) -> bytes:
    return "".join(json.dumps({"source": s, "target": t}, ensure_ascii=False) + "\n" for s, t in pairs).encode()


def parquet(pairs: Sequence[Pair], kind: pa.DataType | None = None) -> bytes:
    file = io.BytesIO()
    columns = list(zip(*pairs, strict=True)) or [(), ()]
    table = pa.table(
        {name: pa.array(c, kind or pa.string()) for name, c in zip(("source", "target"), columns, strict=True)}
    )
    pyarrow.parquet.write_table(table, file, row_group_size=7)
    return file.getvalue()


def arrow(pairs: Sequence[Pair]) -> bytes:
    """As Hugging Face's datasets keep tables: a stream."""
    table = pa.table({side: [pair[n] for pair in pairs] for n, side in enumerate(("source", "target"))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=7)
    return sink.getvalue().to_pybytes()


def tmx(pairs: Sequence[Pair], head: str = "", languages: tuple[str, str] = ("en-US", "ko")) -> bytes:
    def unit(pair: Pair) -> str:
        sides = zip(languages, pair, strict=True)
        return (
            "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{xml(side)}</seg></tuv>' for code, side in sides) + "</tu>"
        )

    body = "\n".join(unit(pair) for pair in pairs)
    return f'<?xml version="1.0"?>{head}<tmx version="1.4"><header srclang="en"/><body>{body}</body></tmx>'.encode()


def xml(text: str) -> str:
    return escape(text, {"\r": "&#13;"})


def po(pairs: Sequence[Pair]) -> bytes:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    messages = "".join(f"\nmsgid {quoted(source)}\nmsgstr {quoted(target)}\n" for source, target in pairs)
    return (header + messages).encode()


def quoted(text: str) -> str:
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(character, written)
    return f'"{text}"'


def xliff_12(pairs: Sequence[Pair], state: str = 'state="final"') -> bytes:
    units = "\n".join(
        f'<trans-unit id="{number}"><source>{xml(source)}</source><target {state}>{xml(target)}</target></trans-unit>'
        for number, (source, target) in enumerate(pairs)
    )
    languages = 'source-language="en-US" target-language="ko"'
    return f'<xliff version="1.2"><file {languages} xml:space="preserve"><body>{units}</body></file></xliff>'.encode()


def xliff_2(pairs: Sequence[Pair]) -> bytes:
    segments = "\n".join(
        f'<segment state="reviewed"><source>{xml(source)}</source><target>{xml(target)}</target></segment>'
        for source, target in pairs
    )
    head = 'xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="ko"'
    return f'<xliff {head}><file id="f"><unit id="u" xml:space="preserve">{segments}</unit></file></xliff>'.encode()


def qt(pairs: Sequence[Pair]) -> bytes:
    def written(text: str) -> str:
        return re.sub("[\0-\x08\v\f\x0e-\x1f]", lambda match: f'<byte value="x{ord(match[0]):x}"/>', xml(text))

    messages = "\n".join(
        f"<message><source>{written(source)}</source><translation>{written(target)}</translation></message>"
        for source, target in pairs
    )
    return f'<TS version="2.1" language="ko"><context><name>a</name>\n{messages}</context></TS>'.encode()


def string_catalog(pairs: Sequence[Pair]) -> bytes:
    def localization(text: str) -> dict[str, dict[str, str]]:
        return {"stringUnit": {"state": "translated", "value": text}}

    strings = {
        f"key {number}": {"localizations": dict(zip(("en", "ko"), map(localization, pair), strict=True))}
        for number, pair in enumerate(pairs)
    }
    return json.dumps({"sourceLanguage": "en", "strings": strings, "version": "1.0"}, indent=1).encode()


WRITERS: dict[str, Callable[[Sequence[Pair]], bytes]] = {
    "tsv": tsv, "csv": csv_rows, "jsonl": jsonl, "parquet": parquet, "arrow": arrow, "tmx": tmx, "po": po,
    "xlf": xliff_12, "xliff": xliff_2, "ts": qt, "xcstrings": string_catalog,
}  # fmt: skip
CODECS = {"": None, ".gz": "gzip", ".zst": "zstd"}


def packed(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


# What is wrong.


@dataclass(frozen=True)
class Hostile:
    """`finds`: what a check names. `reads`: the rows that reading gives, all of them, or what its error says."""

    name: str
    files: dict[str, bytes]
    finds: str
    reads: list[Pair] | str
    options: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return [*self.files, *self.options]


def changed(source: str = SOURCE, target: str = TARGET, pairs: Sequence[Pair] = CLEAN) -> list[Pair]:
    return [*pairs[:AT], (source, target), *pairs[AT + 1 :]]


def line(data: bytes, end: bytes = b"\n") -> bytes:
    """A TSV with this as line AT + 1."""
    return tsv(CLEAN[:AT]) + data + end + tsv(CLEAN[AT:])


def character(name: str, odd: str, finds: str) -> list[Hostile]:
    """In the source, and in the target, as TSV and as two files."""
    first, second = changed(SOURCE[:9] + odd + SOURCE[9:]), changed(target=TARGET[:4] + odd + TARGET[4:])
    sources, targets = zip(*second, strict=True)
    return [
        Hostile(f"{name} in a source", {"a.tsv": tsv(first)}, finds, first),
        Hostile(f"{name} in a target file", {"a.en": text(sources), "a.ko": text(targets)}, finds, second),
    ]


SEPARATORS = {"VT": "\v", "FF": "\f", "FS": "\x1c", "GS": "\x1d", "RS": "\x1e", "NEL": "\x85", "LS": "\u2028",
              "PS": "\u2029"}  # fmt: skip
EN, KO = (text(side) for side in zip(*CLEAN, strict=True))
EN_LINES, KO_LINES = EN.split(b"\n")[:-1], KO.split(b"\n")[:-1]
LONG = b"a\t" + b"b" * 1000 + b"\n"
LONG_RECORD = {"source": "a", "target": "b" * (2 << 20)}
DRAFT = b'<trans-unit id="x"><source>a</source><target state="new">b</target></trans-unit></body>'
RECORD = json.dumps({"source": SOURCE, "target": TARGET}).encode()


def json_line(data: bytes) -> dict[str, bytes]:
    return {"a.jsonl": jsonl(CLEAN[:AT]) + data + b"\n" + jsonl(CLEAN[AT:])}


def json_strings(texts: Sequence[str], key: str) -> bytes:
    return json.dumps({**dict(enumerate(texts)), key: "x"}, separators=(",\n", ":")).encode()


def po_message(data: str) -> dict[str, bytes]:
    return {"a.po": po(CLEAN) + f"\n{data}\n".encode()}


def entities(kind: str) -> bytes:
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    heads = {
        "laughs": f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{laughs}]>',
        "quadratic": f'<!DOCTYPE tmx [<!ENTITY l9 "{"a" * 50_000}">]>',
        "external": '<!DOCTYPE tmx [<!ENTITY l9 SYSTEM "file:///etc/hostname">]>',
        "parameter": '<!DOCTYPE tmx [<!ENTITY % l9 SYSTEM "file:///etc/hostname"> %l9;]>',
    }
    return tmx([("SLOT", "SLOT")], heads[kind]).replace(b"SLOT", b"&l9;" * (1 if kind != "quadratic" else 1000))


HOSTILE = [
    *[case for name, odd in SEPARATORS.items() for case in character(name, odd, "line-separator")],
    *character("NUL", "\0", "nul"),
    *character("lone CR", "\r", "carriage-return"),
    *character("BOM", BOM, "byte-order-mark"),
    *character("U+FFFD", "\ufffd", "replacement-character"),
    *character("bidi override", "\u202e", "bidi-control"),
    *character("bidi isolate", "\u2066", "bidi-control"),
    *character("escape", "\x1b[31m", "control-character"),
    *character("private use", "\ue000", "unassigned-character"),
    *character("noncharacter", "\uffff", "unassigned-character"),
    *character("not NFC", "e\u0301", "not-nfc"),
    *character("entity", "&nbsp;", "markup"),
    *character("tag", "<br/>", "markup"),
    *character("placeholder", " %s ", "placeholders"),
    Hostile("BOM first", {"a.tsv": BOM.encode() + tsv(CLEAN)}, "byte-order-mark-first", CLEAN),
    Hostile("CR LF", {"a.tsv": tsv(CLEAN).replace(b"\n", b"\r\n")}, "cr-line-end", CLEAN),
    Hostile("CR LF on one side", {"a.en": EN.replace(b"\n", b"\r\n"), "a.ko": KO}, "cr-line-end", CLEAN),
    Hostile("CR only", {"a.tsv": tsv(CLEAN).replace(b"\n", b"\r")}, "columns", "columns, expected"),
    Hostile("outer space", {"a.tsv": tsv(changed(f" {SOURCE}"))}, "outer-space", changed(f" {SOURCE}")),
    *[Hostile(f"header {pair}", {"a.tsv": tsv([pair, *CLEAN])}, "header", [pair, *CLEAN])
      for pair in (("source", "target"), ("en", "ko"), ("English", "한국어"))],
    # Bytes.
    Hostile("Latin-1", {"a.tsv": line(b"caf\xe9\tkaffee")}, "utf-8",
            "a.tsv:6: not UTF-8 at byte 4 of the line (0xe9)"),
    Hostile("Latin-1 after a BOM", {"a.tsv": BOM.encode() + b"ab\x80\tc\n"}, "utf-8", "a.tsv:1: not UTF-8 at byte 3"),
    Hostile("Latin-1 on one side", {"a.en": EN, "a.ko": KO.replace(b"\n", b"\xff\n", 1)}, "utf-8", "a.ko:1: not UTF-8"),
    Hostile("cut off in a character", {"a.tsv": tsv(CLEAN)[:-3]}, "utf-8", "a.tsv:60: not UTF-8"),
    Hostile("overlong NUL", {"a.tsv": line(b"a\xc0\x80\tb")}, "utf-8", "a.tsv:6: not UTF-8 at byte 2"),
    Hostile("surrogate", {"a.tsv": line(b"\xed\xa0\x80\tb")}, "utf-8", "a.tsv:6: not UTF-8 at byte 1"),
    Hostile("beyond Unicode", {"a.tsv": line(b"\xf4\x90\x80\x80\tb")}, "utf-8", "a.tsv:6: not UTF-8 at byte 1"),
    Hostile("UTF-16", {"a.tsv": tsv(CLEAN).decode().encode("utf-16")}, "unreadable", "text in UTF-16"),
    Hostile("gzip by another name", {"a.tsv": packed(tsv(CLEAN), "gzip")}, "unreadable", "compressed with gzip"),
    Hostile("UTF-16 without BOM", {"a.tsv": tsv(CLEAN).decode().encode("utf-16-le")}, "utf-8", "a.tsv:1: not UTF-8"),
    Hostile("ASCII in UTF-16 without BOM", {"a.tsv": "a\tb\n".encode("utf-16-le") * 60}, "nul columns", "no tab"),
    Hostile("every byte", {"a.tsv": bytes(range(256)) * 9}, "utf-8", "a.tsv:2: not UTF-8"),
    Hostile("no file at all", {"a.tsv": b""}, "no-pairs", "no sentence pairs"),
    Hostile("only a BOM", {"a.tsv": BOM.encode()}, "no-pairs", "no sentence pairs"),
    Hostile("only empty lines", {"a.tsv": b"\n" * 50}, "no-pairs blank", "no sentence pairs"),
    Hostile("only white sides", {"a.tsv": b"a\t\n \t \n"}, "no-pairs empty blank", "no sentence pairs"),
    Hostile("a line without end", {"a.tsv": b"x" * (17 << 20)}, "unreadable", "a line of more than 16 MiB"),
    # Lines.
    Hostile("no tab", {"a.tsv": line(b"only one")}, "columns", "a.tsv:6: no tab"),
    Hostile("three columns", {"a.tsv": line(b"a\tb\tc")}, "columns", "a.tsv:6: 3 columns"),
    Hostile("outer tabs", {"a.tsv": line(b"\ta\tb\t")}, "columns", "a.tsv:6: 4 columns"),
    Hostile("long line without tab", {"a.tsv": line(b"x" * 1_000_000)}, "columns", "a.tsv:6: no tab"),
    Hostile("empty line", {"a.tsv": line(b"")}, "blank", [*CLEAN[:AT], ("", ""), *CLEAN[AT:]]),
    Hostile("empty source", {"a.tsv": line(b"\tb")}, "empty", [*CLEAN[:AT], ("", "b"), *CLEAN[AT:]]),
    Hostile("empty target", {"a.tsv": line(b"a\t")}, "empty", [*CLEAN[:AT], ("a", ""), *CLEAN[AT:]]),
    Hostile("white target", {"a.tsv": line("a\t\u3000 \u2003".encode())}, "empty",
            [*CLEAN[:AT], ("a", "\u3000 \u2003"), *CLEAN[AT:]]),
    Hostile("empty line on one side", {"a.en": EN, "a.ko": text([t for _, t in changed(target="")])}, "empty",
            changed(target="")),
    *[Hostile(name, {"a.en": EN, "a.ko": side}, "line-counts", f"a.en has 60 lines, a.ko has {count}:")
      for name, side, count in (("a line short", b"\n".join(KO_LINES[:-1]), 59), ("one side empty", b"", 0),
                                ("a line lost inside", b"\n".join(KO_LINES[:AT] + KO_LINES[AT + 1 :]), 59),
                                ("a line too many", KO + b"\n", 61), ("many too many", KO * 20, "1,200"))],
    # Pairs.
    Hostile("duplicate", {"a.tsv": tsv([*CLEAN, CLEAN[AT]])}, "duplicate", [*CLEAN, CLEAN[AT]]),
    Hostile("two targets", {"a.tsv": tsv([*CLEAN, (SOURCE, CLEAN[0][1])])}, "several-targets",
            [*CLEAN, (SOURCE, CLEAN[0][1])]),
    Hostile("copy", {"a.tsv": tsv(changed(SOURCE, SOURCE))}, "copy", changed(SOURCE, SOURCE)),
    Hostile("short copy", {"a.tsv": tsv(changed("Zorg", "Zorg"))}, "short-copy", changed("Zorg", "Zorg")),
    Hostile("far too long", {"a.tsv": tsv(changed(target=TARGET * 9))}, "length-ratio", changed(target=TARGET * 9)),
    Hostile("over-long", {"a.tsv": tsv(changed(SOURCE * 99, TARGET * 150))}, "over-long",
            changed(SOURCE * 99, TARGET * 150)),
    Hostile("swapped", {"a.tsv": tsv(changed(TARGET, SOURCE))}, "swapped", changed(TARGET, SOURCE)),
    Hostile("another script", {"a.tsv": tsv(changed(target="Собака видит красных кошек."))}, "script",
            changed(target="Собака видит красных кошек.")),
    # CSV and JSON lines.
    Hostile("CSV open quote", {"a.csv": csv_rows(CLEAN[:AT]) + b'"a,b\n'}, "record", "a.csv:7: not CSV: unexpected"),
    Hostile("CSV of old Macs", {"a.csv": b"source,target\ra,b\r"}, "record", "a.csv:1: a carriage return outside"),
    Hostile("CSV one column", {"a.csv": csv_rows(CLEAN[:AT]) + b"a\n"}, "columns", "a.csv:7: 1 column, expected 2"),
    Hostile("CSV no names", {"a.csv": b"a,b\n"}, "unreadable", "a.csv: no column 'source'; the first row has a, b"),
    Hostile("JSON cut off", json_line(RECORD[:-5]), "record", "a.jsonl:6: not JSON"),
    Hostile("JSON list", json_line(b"[1, 2]"), "record", "a.jsonl:6: not a JSON object"),
    Hostile("JSON without target", json_line(b'{"source": "a"}'), "record", "a.jsonl:6: no 'target'"),
    Hostile("JSON number", json_line(b'{"source": "a", "target": 5}'), "record", "a.jsonl:6: 'target' is not a string"),
    Hostile("JSON half a character", json_line(b'{"source": "\\ud800", "target": "b"}'), "record", "lone surrogate"),
    Hostile("JSON deep", json_line(b"[" * 200_000), "record", "a.jsonl:6: "),
    Hostile("JSON huge number", json_line(b'{"source": 1' + b"0" * 5000 + b"}"), "record", "a.jsonl:6: "),
    Hostile("JSON raw control", json_line(b'{"source": "a\x01b", "target": "b"}'), "record", "a.jsonl:6: not JSON"),
    Hostile("JSON NUL", json_line(b'{"source": "a\\u0000b", "target": "b"}'), "nul",
            [*CLEAN[:AT], ("a\0b", "b"), *CLEAN[AT:]]),
    Hostile("JSON line breaks", json_line(b'{"source": "a\\nb\\r\\nc", "target": "b"}'), "line-break",
            [*CLEAN[:AT], ("a b c", "b"), *CLEAN[AT:]]),
    Hostile("JSON null", json_line(b'{"source": "a", "target": null}'), "empty",
            [*CLEAN[:AT], ("a", ""), *CLEAN[AT:]]),
    Hostile("JSON LS", {"a.jsonl": jsonl(changed("a\u2028b"))}, "line-separator", changed("a\u2028b")),
    Hostile("JSON Latin-1", json_line(b'{"source": "\xe9", "target": "b"}'), "utf-8", "a.jsonl:6: not UTF-8"),
    # Parquet.
    Hostile("no Parquet", {"a.parquet": tsv(CLEAN)}, "unreadable", "a.parquet: not a readable Parquet file"),
    Hostile("Parquet cut off", {"a.parquet": parquet(CLEAN)[:-100]}, "unreadable",
            "a.parquet: not a readable Parquet file"),
    Hostile("Parquet of numbers", {"a.parquet": parquet([(1, 2)], pa.int64())}, "unreadable", "not text"),  # type: ignore[list-item]
    Hostile("Parquet columns", {"a.parquet": parquet(CLEAN)}, "unreadable", "a.parquet: no column 'en'",
            ("columns=en,ko",)),
    Hostile("Parquet null", {"a.parquet": parquet(changed(target=None))}, "empty", changed(target="")),  # type: ignore[arg-type]
    Hostile("Parquet not UTF-8", {"a.parquet": parquet([(b"a", b"b"), (b"\xff", b"b")], pa.binary())}, "utf-8",  # type: ignore[list-item]
            "a.parquet:2: not UTF-8"),
    Hostile("Parquet line break", {"a.parquet": parquet(changed("a\nb"))}, "line-break", changed("a b")),
    Hostile("Parquet packed", {"a.parquet.gz": packed(parquet(CLEAN), "gzip")}, "unreadable", "decompress it"),
    # Translation memories.
    *[Hostile(f"TMX {kind}", {"a.tmx": entities(kind)}, "unreadable", "declares XML entities")
      for kind in ("laughs", "quadratic", "external", "parameter")],
    Hostile("TMX deep", {"a.tmx": tmx(CLEAN).replace(b"<seg>", b"<seg>" + b"<hi>" * 10**6, 1)}, "unreadable",
            "elements nested more than 100 deep"),
    Hostile("TMX cut off", {"a.tmx": tmx(CLEAN)[:-30]}, "unreadable", "a.tmx: not a readable TMX file"),
    Hostile("TMX Latin-1", {"a.tmx": tmx(CLEAN).replace(b"dog", b"d\xf6g", 1)}, "unreadable",
            "a.tmx: not a readable TMX file"),
    Hostile("TMX encoding", {"a.tmx": tmx(CLEAN).replace(b'"1.0"', b'"1.0" encoding="klingon"', 1)}, "unreadable",
            "a.tmx: not a readable TMX file"),
    Hostile("TMX language", {"a.tmx": tmx(CLEAN)}, "unreadable", "no text in 'fr'", ("columns=en,fr",)),
    Hostile("TMX of one", {"a.tmx": tmx(CLEAN, languages=("en", "en"))}, "unreadable", "name two languages"),
    Hostile("TMX without a side", {"a.tmx": tmx(CLEAN).replace(b'"ko"', b'"fr"', 1)}, "empty",
            [(CLEAN[0][0], ""), *CLEAN[1:]], ("columns=en,ko",)),
    Hostile("TMX line break", {"a.tmx": tmx(changed("a\nb"))}, "line-break", changed("a b")),
    Hostile("TMX variant", {"a.tmx": tmx(CLEAN).replace(b"</tu>", b'<tuv lang="KO"><seg>x</seg></tuv></tu>', 1)},
            "variant", CLEAN, ("columns=en,ko",)),
    Hostile("TMX unit of others",
            {"a.tmx": tmx(CLEAN).replace(b"</body>", b'<tu><tuv lang="fr"><seg>x</seg></tuv></tu></body>')},
            "language", CLEAN),
    *[Hostile(f"TMX {name}", {"a.tmx": tmx(changed("SLOT")).replace(b"SLOT", written)}, finds, changed(read))
      for name, written, finds, read in (
          ("VT", b"a\vb", "line-separator", "a\vb"), ("VT as a reference", b"a&#x00B;b", "line-separator", "a\vb"),
          ("NUL", b"a\0b", "nul", "a\0b"), ("escape", b"a&#27;b", "control-character", "a\x1bb"),
          ("surrogate", b"a&#xD800;b", "replacement-character", "a\ufffdb"),
      )],
    # Messages, XLIFF.
    Hostile("messages", {f"a.{side}.json": json_strings(texts, side)
            for side, texts in zip(("en", "ko"), zip(*CLEAN, strict=True), strict=True)}, "unmatched", CLEAN),
    Hostile("XLIFF draft", {"a.xlf": xliff_12(CLEAN).replace(b"</body>", DRAFT)}, "unfinished", CLEAN),
    Hostile("XLIFF cut off", {"a.xlf": xliff_12(CLEAN)[:-30]}, "unreadable", "a.xlf: not a readable XLIFF file"),
    Hostile("XLIFF of another root", {"a.xliff": tmx(CLEAN)}, "unreadable", "its root is 'tmx'"),
    Hostile("XLIFF VT", {"a.xliff": xliff_2(changed("a\vb"))}, "line-separator", changed("a\vb")),
    # Catalogues.
    Hostile("PO syntax", po_message('msgid "a"b"\nmsgstr "b"'), "unreadable", "not a readable PO file"),
    Hostile("PO open quote", po_message('msgid "a\nmsgstr "b"'), "unreadable", "a.po:184: not a readable PO file"),
    Hostile("PO fuzzy", po_message('#, fuzzy\nmsgid "a"\nmsgstr "b"'), "fuzzy", CLEAN),
    Hostile("PO obsolete", po_message('#~ msgid "a"\n#~ msgstr "b"'), "obsolete", CLEAN),
    Hostile("PO untranslated", po_message('msgid "a"\nmsgstr ""'), "empty", [*CLEAN, ("a", "")]),
    Hostile("PO plural", po_message('msgid "a"\nmsgid_plural "b"\n' + "".join(f'msgstr[{i}] "c"\n' for i in range(3))),
            "plural", CLEAN),
    Hostile("PO PS", {"a.po": po(changed("a\u2029b"))}, "line-separator", changed("a\u2029b")),
    Hostile("PO a name", {"a.po": b"/etc/hostname"}, "unreadable", "not a readable PO file"),
    # Packed.
    Hostile("gz cut off", {"a.tsv.gz": packed(tsv(CLEAN), "gzip")[:-9]}, "unreadable", "damaged or truncated"),
    Hostile("zst cut off", {"a.tsv.zst": packed(tsv(CLEAN), "zstd")[:-9]}, "unreadable", "damaged or truncated"),
    Hostile("gz without end", {"a.tsv.gz": packed(tsv(CLEAN), "gzip")[:-8]}, "unreadable", "damaged or truncated"),
    Hostile("no gz", {"a.tsv.gz": tsv(CLEAN)}, "unreadable", "not compressed, in spite of its name"),
    Hostile("no zst", {"a.tsv.zst": tsv(CLEAN)}, "unreadable", "not compressed, in spite of its name"),
    Hostile("gz and more", {"a.tsv.gz": packed(tsv(CLEAN), "gzip") + b"more"}, "unreadable", "damaged or truncated"),
    Hostile("gz bomb", {"a.tsv.gz": packed(LONG * 20_000, "gzip")}, "unreadable",
            "200 times its size"),
    Hostile("zst bomb", {"a.jsonl.zst": packed((json.dumps(LONG_RECORD) + "\n").encode() * 4, "zstd")}, "unreadable",
            "200 times its size"),
]  # fmt: skip
