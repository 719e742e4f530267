"""Train with pairs that `dragoman wish` would have had translated, or with others by chance, and compare their BLEU."""

import random
import tempfile
from pathlib import Path
from statistics import mean

from benchmarks.cleaning import write_pairs
from benchmarks.noise import train_and_score
from dragoman.data.corpus import read_corpus
from dragoman.data.wish import Wish
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.runtime.threads import granted_cores
from dragoman.synthesis.side_by_side import side_by_side


def benchmark(data: str, corpus: str, known: int, count: int, seeds: tuple[int, ...], steps: int) -> str:
    """Return a table in Markdown: number of pairs, source words among the added ones, and BLEU."""
    files = [Path(data) / f"{corpus}.{name}.tsv" for name in ("train", "dev", "test")]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise DragomanError(f"{', '.join(missing)}: not there; name the folder of the corpora with --data")
    pairs, *scored_sets = (read_corpus([str(file)]).pairs for file in files)
    scored = [pair for some in scored_sets for pair in some]
    others = pairs[known:]
    wish = Wish([source for source, _ in others], [source for source, _ in pairs[:known]])
    wished = wish.choose(count)
    by_chance = [random.Random(seed).sample(wish.rows, len(wished)) for seed in seeds]
    added = {"wished": [wished for _ in seeds], "by chance": by_chance}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_pairs(folder / "dev.tsv", scored)
        jobs = []
        for name, rows_of_seeds in added.items():
            for seed, rows in zip(seeds, rows_of_seeds, strict=True):
                write_pairs(folder / f"{name} {seed}.tsv", pairs[:known] + [others[row] for row in rows])
                jobs.append((folder, f"{name} {seed}", seed, steps, scored))
        scores = side_by_side(train_and_score, jobs, granted_cores())
    table = []
    for number, (name, rows_of_seeds) in enumerate(added.items()):
        of_seeds = scores[number * len(seeds) : (number + 1) * len(seeds)]
        words = mean(sum(len(wish.words[row]) for row in rows) for rows in rows_of_seeds)
        each = ", ".join(f"{score:.1f}" for score in of_seeds)
        table.append([name, f"{len(rows_of_seeds[0]):,}", f"{words:,.0f}", f"{mean(of_seeds):.1f}", each])
    note = (
        f"{corpus}: {known:,} pairs and what is added to them; `tiny`, {steps:,} steps; greedy, {len(scored):,} pairs. "
        f"{describe_machine()}."
    )
    return f"{note}\n\n{markdown_table(['added', 'pairs', 'source words', 'BLEU', 'by seed'], table)}"
