"""Plant faults of 28 kinds in good pairs, and count how many of them `dragoman check` finds, and what good it drops."""

import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from dragoman.check.corpora import check as run_check
from dragoman.check.corpora import check_and_clean
from dragoman.check.detectors import CheckLimits
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.spec import parse_corpora
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import describe_machine, markdown_table

SLIPS = {"slip of 20 lines": (20, 10), "slip of 60 lines": (60, 4), "slip of 300 lines": (300, 1)}  # length, times
GOOD = "(good)"


@dataclass(frozen=True)
class Texts:
    """What the faults are made of: a source of chance, texts in two other languages, and the pairs of the corpus."""

    chance: random.Random
    latin: list[str]
    other: list[str]
    pairs: list[Pair]

    @cached_property
    def good(self) -> set[Pair]:
        """The pairs as they were."""
        return set(self.pairs)

    def like(self, text: str, texts: list[str]) -> str:
        """Return one of some texts, of about the same length, that is not the same."""
        some = self.chance.choices(texts, k=200)
        return min((each for each in some if each != text), key=lambda each: abs(len(each) - len(text)))


Plant = Callable[[Texts, str, str], Pair | None]  # None: such a pair cannot have this fault


def recoded(codec: str) -> Plant:
    """Return what reads the UTF-8 of a target as another encoding."""

    def plant(texts: Texts, source: str, target: str) -> Pair | None:
        data = target.encode()
        try:
            wrong = data.decode(codec)
        except UnicodeDecodeError:
            wrong = "".join(bytes([byte]).decode(codec, "ignore") or chr(byte) for byte in data)
        return (source, wrong) if not target.isascii() else None

    return plant


def if_long(words: int, change: Callable[[Texts, str, str], Pair]) -> Plant:
    """Return what changes pairs whose source has as many words, and whose target has half of these and 12 letters."""

    def plant(texts: Texts, source: str, target: str) -> Pair | None:
        long = len(source.split()) >= words and len(target.split()) >= words / 2 and len(target) >= 12
        return change(texts, source, target) if long else None

    return plant


def wrong_number(texts: Texts, source: str, target: str) -> Pair | None:
    """Change a number of two digits or more that stands alone in both texts."""
    numbers = [number for number in re.findall(r"(?<![\w.,:])\d{2,}(?![\w.,:])", target) if number in source]
    if not numbers:
        return None
    number = texts.chance.choice(numbers)
    return source, target.replace(number, str(int(number) + texts.chance.choice([1, 7, 90, 300])))


def half(text: str, which: int) -> str:
    """Return the words of the first or the second half of a text."""
    words = text.split()
    return " ".join(words[: len(words) // 2] if which == 0 else words[len(words) // 2 :])


def garbage(texts: Texts, source: str, target: str) -> Pair:
    """Put random letters or signs in the place of a target."""
    letters = texts.chance.choice(["bcdfghjklmnpqrstvwxz", "#@%&*=+/|~^", "asdfjkl"])
    return source, "".join(texts.chance.choice(" " + letters * 2) for _ in target).strip() or "xqz"


def amid(text: str, put: str) -> str:
    """Return a text with something put behind its second word."""
    words = text.split(" ")
    return " ".join([*words[:2], put, *words[2:]])


def inside_words(text: str, sign: str) -> str:
    """Return a text with a sign in the middle of each long word."""
    return re.sub(r"(\w{3})(?=\w{3})", rf"\1{sign}", text)


KINDS: dict[str, Plant] = {
    "mojibake: UTF-8 read as cp1252": recoded("cp1252"),
    "mojibake: UTF-8 read as Latin-1": recoded("latin-1"),
    "letters lost, now '?'": lambda _, s, t: (
        (s, "".join(c if ord(c) < 128 else "?" for c in t)) if not t.isascii() else None
    ),
    "target in Spanish": if_long(4, lambda texts, s, t: (s, texts.like(t, texts.latin))),
    "target in another script": if_long(4, lambda texts, s, t: (s, texts.like(t, texts.other))),
    "source in Spanish": if_long(4, lambda texts, s, t: (texts.like(s, texts.latin), t)),
    "not translated, a word changed": if_long(5, lambda _, s, t: (s, " ".join(s.split()[1:]))),
    "copy of 3 words or more": if_long(3, lambda _, s, t: (s, s)),
    "swapped": if_long(4, lambda _, s, t: (t, s)),
    "mismatch of equal length": if_long(4, lambda texts, s, t: (s, texts.like(t, [b for _, b in texts.pairs]))),
    "mismatch of any kind": lambda texts, s, t: (s, texts.chance.choice(texts.pairs)[1]),
    "second half not translated": if_long(6, lambda _, s, t: (s, f"{half(t, 0)} {half(s, 1)}")),
    "target cut in half": if_long(6, lambda _, s, t: (s, half(t, 0))),
    "target cut to 3 words": if_long(9, lambda _, s, t: (s, " ".join(t.split()[:3]))),
    "wrong number": wrong_number,
    "source twice": if_long(3, lambda _, s, t: (f"{s} {s}", t)),
    "target a stub": if_long(3, lambda texts, s, t: (s, texts.chance.choice(["TODO", "n/a", "-", "..."]))),
    "garbage": if_long(3, garbage),
    "placeholder lost": if_long(3, lambda _, s, t: (amid(s, "%s"), t)),
    "tags on one side": if_long(3, lambda _, s, t: (re.sub(r"(\w{3,})", r"<b>\1</b>", s, count=1), t)),
    "invisible characters": if_long(3, lambda texts, s, t: (s, inside_words(t, "\u200b"))),
    "U+FFFD": if_long(3, lambda _, s, t: (s, t[:3] + "\ufffd" + t[4:])),
    "HTML entities": if_long(3, lambda _, s, t: (s.replace(" ", "&nbsp;", 1), t)),
    "exact duplicate": lambda _, s, t: (s, t),  # of a good pair that stands above
    "duplicate but for case": lambda _, s, t: (s.upper(), t.upper()),
}
COPIES = ("exact duplicate", "duplicate but for case")


def make_mess(texts: Texts, faults: int) -> tuple[list[Pair], list[str]]:
    """Return the pairs with that many faults, those of slips included, and the kind of each; GOOD for none."""
    pairs = list(texts.pairs)
    kinds = [GOOD] * len(pairs)
    chance = texts.chance
    for name, (length, times) in SLIPS.items():
        for _ in range(times):
            while True:
                start = chance.randrange(len(pairs) - length)
                if all(kind == GOOD for kind in kinds[start : start + length]):
                    break
            targets = [target for _, target in pairs[start : start + length]]
            for place, target in enumerate([*targets[1:], targets[0]], start):
                pairs[place] = pairs[place][0], target
                kinds[place] = name
    slipped = sum(length * times for length, times in SLIPS.values())
    for number, (name, plant) in enumerate(KINDS.items()):
        left = (faults - slipped) // len(KINDS) + (number < (faults - slipped) % len(KINDS))
        for place in chance.sample(range(100, len(pairs)), len(pairs) - 100):
            pair = pairs[place - chance.randrange(1, 100)] if name in COPIES else pairs[place]
            if not left or kinds[place] != GOOD or (name in COPIES and pair not in texts.good):
                continue
            planted = plant(texts, *pair)
            if planted and planted != pairs[place]:
                pairs[place], kinds[place] = planted, name
                left -= 1
    return pairs, kinds


def read_texts(data: str, name: str, seed: int) -> Texts:
    """Return what faults in the training pairs of a corpus are made of; data: the folder of NAME.train.tsv.

    Raise DragomanError where a corpus that is needed for it is not there.
    """
    names = (name, "en-es-bible", "en-de-mpl" if "ko" in name else "en-ko-mpl")
    files = [Path(data) / f"{each}.train.tsv" for each in names]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise DragomanError(f"{', '.join(missing)}: not there; name the folder of the corpora with --data")
    pairs, latin, foreign = (read_corpus([str(file)]).pairs for file in files)
    return Texts(random.Random(seed), [t for _, t in latin], [t for _, t in foreign], list(dict.fromkeys(pairs)))


def write_pairs(file: Path, pairs: Sequence[Pair]) -> None:
    """Write pairs as lines with a tab."""
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def benchmark(data: str, corpora: tuple[str, ...], faults: int, seed: int, learn: float) -> str:
    """Return tables in Markdown: the share of the faults of each kind that are dropped, and of the good pairs.

    data: the folder of the corpora, NAME.train.tsv; corpora: their names; learn: minutes that small models learn, 0 for
    rules alone.
    """
    messes = [make_mess(read_texts(data, name, seed), faults) for name in corpora]
    tables: list[str] = []
    columns: list[tuple[str, Counter[str], Counter[str]]] = []  # name; by kind: those dropped, and those planted
    for name, (pairs, kinds) in zip(corpora, messes, strict=True):
        with tempfile.TemporaryDirectory() as scratch:
            mess, clean, out = (Path(scratch, f"{which}.tsv") for which in ("mess", "clean", "rejected"))
            write_pairs(mess, pairs)
            sets = {"train": parse_corpora([str(mess)])}
            seconds = []
            for job in (
                partial(run_check, sets, CheckLimits()),
                partial(check_and_clean, sets, CheckLimits(), clean, out),
            ):
                start = time.process_time()
                job()
                seconds.append(time.process_time() - start)
            reasons = read_reasons(out)
            columns.append((name, Counter(kinds[place] for place in reasons), Counter(kinds)))
            if learn:
                start = time.monotonic()
                run(
                    ["check", str(mess), "--learn", f"--minutes={learn}", f"--write-clean={clean}", f"--rejected={out}"]
                )
                minutes = (time.monotonic() - start) / 60
                judged = Counter(kinds[place] for place in read_reasons(out))
                columns.append((f"{name}, with models", judged, Counter(kinds)))
        by_rule = Counter((rule, kinds[place] == GOOD) for place, rules in reasons.items() for rule in rules)
        precision = []
        for rule in sorted({rule for rule, _ in by_rule}):
            right, wrong = by_rule[rule, False], by_rule[rule, True]
            precision.append([rule, str(right), str(wrong), share(right, right + wrong)])
        speed = ", ".join(
            f"{job} {len(pairs) / each:,.0f}" for job, each in zip(("check", "--write-clean"), seconds, strict=True)
        )
        tables += [f"{name}: pairs per second of processor time: {speed}.", ""]
        if learn:
            tables += [f"With models that learn for {learn:g} minutes, it takes {minutes:.1f} minutes.", ""]
        tables += [markdown_table(["rule", "faults", "good", "precision"], precision), ""]
    recall = []
    for kind in (*KINDS, *SLIPS, GOOD):
        of_kind = ((dropped[kind], planted[kind]) for _, dropped, planted in columns)
        recall.append([kind, *(f"{part} of {whole:,}, {share(part, whole)}" for part, whole in of_kind)])
    heads = ["dropped", *(name for name, _, _ in columns)]
    return "\n".join([markdown_table(heads, recall), "", *tables, describe_machine()])


def read_reasons(rejected: Path) -> dict[int, list[str]]:
    """Return the rules by which pairs were dropped, by place; rejected: the file that `check --rejected` writes."""
    rows = [line.split("\t") for line in rejected.read_text(encoding="utf-8").split("\n")[1:-1]]
    return {int(row[3]) - 1: row[4].split() for row in rows}


def run(words: list[str]) -> None:
    """Run a dragoman command for what it writes, without what it prints; `check` exits with 1 where it finds faults."""
    done = subprocess.run([sys.executable, "-m", "dragoman", *words], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or (done.returncode and words[0] != "check"):
        raise DragomanError(f"dragoman {' '.join(words)}: {done.stderr}")


def share(part: int, whole: int) -> str:
    """Return a share as per cent."""
    return f"{100 * part / max(whole, 1):.1f} %" if part * 50 < whole else f"{100 * part / whole:.0f} %"
