"""Train on pairs some of which are faults, cleaned in several ways, and say what each way is worth in BLEU."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks.cleaning import GOOD, make_mess, read_texts, run, write_pairs
from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair, read_corpus
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.runtime.threads import granted_cores
from dragoman.synthesis.side_by_side import side_by_side
from dragoman.translation.translator import Translator

SEED = 2026  # of what is planted, and where
FLAGS = {"rules": (), "learn": ("--learn",), "weights": ("--learn", "--weights")}


def benchmark(
    data: str,
    corpus: str,
    share: float,
    cleaners: tuple[str, ...],
    seeds: tuple[int, ...],
    steps: int,
    minutes: float,
) -> str:
    """Return a table in Markdown: pairs, faults among them and BLEU of each way to clean."""
    texts = read_texts(data, corpus, SEED)
    pairs, kinds = make_mess(texts, round(len(texts.pairs) * share))
    good = [pair for pair, kind in zip(pairs, kinds, strict=True) if kind == GOOD]
    scored = [pair for name in ("dev", "test") for pair in read_corpus([f"{data}/{corpus}.{name}.tsv"]).pairs]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, some in (("dirty", pairs), ("oracle", good), ("dev", scored)):
            write_pairs(folder / f"{name}.tsv", some)
        for cleaner in cleaners:
            if cleaner in FLAGS:
                flags = [*FLAGS[cleaner], *(("--minutes", str(minutes)) if "--learn" in FLAGS[cleaner] else ())]
                run(["check", str(folder / "dirty.tsv"), *flags, "--write-clean", str(folder / f"{cleaner}.tsv")])
        jobs = [(folder, cleaner, seed, steps, scored) for cleaner in cleaners for seed in seeds]
        scores = side_by_side(train_and_score, jobs, granted_cores())
        rows = []
        for number, cleaner in enumerate(cleaners):
            lines = (folder / f"{cleaner}.tsv").read_text(encoding="utf-8").split("\n")[:-1]
            kept = {tuple(line.split("\t")[:2]) for line in lines}
            wrong = len(kept - set(good))
            of_seeds = scores[number * len(seeds) : (number + 1) * len(seeds)]
            each = ", ".join(f"{score:.1f}" for score in of_seeds)
            rows.append([cleaner, f"{len(lines):,}", f"{wrong:,}", f"{mean(of_seeds):.1f}", each])
    table = markdown_table(["pairs", "number", "faults, each once", "BLEU", "by seed"], rows)
    note = (
        f"{corpus}, {share:.0%} of {len(pairs):,} pairs are faults; `tiny`, {steps:,} steps; greedy, "
        f"{len(scored):,} pairs. {describe_machine()}."
    )
    return f"{note}\n\n{table}"


def train_and_score(folder: Path, cleaner: str, seed: int, steps: int, scored: Sequence[Pair]) -> float:
    """Return the BLEU of a small model that learns from the pairs of a cleaner."""
    out = folder / f"{cleaner}-{seed}"
    columns = ["weight-column=3"] if cleaner == "weights" else []
    corpora = ["--train", str(folder / f"{cleaner}.tsv"), *columns, "--dev", str(folder / "dev.tsv")]
    limits = [f"--max-steps={steps}", f"--validate-every={steps}", f"--seed={seed}", "--threads=1", f"--out={out}"]
    run(["train", "--preset", "tiny", *corpora, *limits])
    translator = Translator.load(out / "best", SearchConfig(beam=1))
    translations = [each.text for each in translator.translate([source for source, _ in scored])]
    return evaluate(translations, [target for _, target in scored]).bleu.value
