"""Run the demonstration of a task: learn it in a minute, then show the head that does it, and how it came to do so."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dragoman.config import FeedForwardConfig, TrainingConfig
from dragoman.config.presets import TINY, Preset
from dragoman.data.tokenizer import RESERVED
from dragoman.demo import CATALOGUE
from dragoman.demo.run import command, draw_pictures, learn, slow_machine, write_corpus
from dragoman.demo.tasks import TASKS, draw_pairs
from dragoman.evaluation.metrics import evaluate
from dragoman.inspection.history import read_history
from dragoman.inspection.history_page import history_page
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import Inspection
from dragoman.inspection.views import draw_cross_attention
from dragoman.storage.writing import replace_file
from dragoman.text.speech import Language, speaker
from dragoman.training.checkpoint import by_step, checkpoints
from dragoman.translation.translator import Translator

SEED = 1
TOY = Preset(
    replace(TINY.model, d_model=64, feed_forward=FeedForwardConfig(d_ff=256), dropout=0.0),
    TrainingConfig(
        batch_tokens=1024,
        learning_rate=0.4,
        warmup=400,
        label_smoothing=0.0,
        epochs=1000,
        minutes=1.0,
        validate_every=200,
        save_every=100,
        keep=40,
        patience=0,
        samples=2,
    ),
    vocabulary=0,  # depends on the task
)
SHOWN = 2  # held-out sentences that are printed


class TaskHead(NamedTuple):
    """The head of the attention over the source that does most of a task."""

    layer: int  # from 1
    head: int  # from 1
    share: float  # of its attention that goes to the words that are to be written


def run_task(name: str, out: Path, minutes: float | None = None, language: Language = "en") -> None:
    """Learn a task in the folder `out`; print how well, and draw the attention.

    minutes: of training; None: as many as the task needs; language: of what is printed and drawn. Results go to
    standard output, progress to standard error.
    """
    say, task, pairs = speaker(language, CATALOGUE), TASKS[name], draw_pairs(TASKS[name], SEED)
    minutes = minutes or task.minutes
    corpus = write_corpus(out, pairs)
    source, target = pairs.train[0]
    about = f"1. The task: {task.rule}, such as '{source}' → '{target}'; {len(pairs.train):,} pairs to learn from."
    print(say(about), flush=True)
    print(say(f"2. Training for {minutes:g} minutes."), flush=True)
    steps = learn(out, corpus, None, replace(TOY, vocabulary=vocabulary(pairs.train)), minutes)

    translator = Translator.load(out, task.search)
    sources, references = zip(*pairs.test, strict=True)
    translations = [translation.text for translation in translator.translate(sources)]
    scores = evaluate(translations, references)
    result = f"3. {len(pairs.test)} sentences that were not among them: {100 * scores.exact:.1f} % exactly right."
    print(say(result), flush=True)
    if advice := slow_machine(scores.exact, steps, minutes, f"dragoman demo --task {name}"):
        print(say(advice), flush=True)
    for source, translation in list(zip(sources, translations, strict=True))[:SHOWN]:
        print(f"   {source} → {translation}")

    number, (source, target) = longest(pairs.dev)
    aligned = find_head(inspect(translator, source, target), task.places(source.split(), target.split()))
    print(say(f"4. The trick: a head that has found it {task.trick}."))
    best = f"head {aligned.head} of layer {aligned.layer}"
    print(f"   {say(f'The best, {best}, gives the right words {aligned.share:.0%} of its attention:')}")
    draw_pictures(
        out,
        say,
        lambda path: draw_cross_attention(
            translator, source, path, translation=target, layer=aligned.layer, head=aligned.head, language=language
        ),
    )
    kept = by_step(checkpoints(out))
    if len(kept) > 1:
        history = read_history(out.resolve().name, kept, pairs.dev, [""] * len(pairs.dev), number, 0.0)
        film = out / "film.html"
        replace_file(film, history_page(history).encode(), shared=True)
        print(f"   {say(f'How it came to do so, step by step: {film}')}")
    print()
    print(say(f'Now yours: {command()} inspect -m {out} "{source}"'))


def vocabulary(pairs: Sequence[tuple[str, str]]) -> int:
    """Return the number of subwords with which each word, with the space before it, is one of them."""
    return len(RESERVED) + 2 * len({word for pair in pairs for text in pair for word in text.split()})


def longest(pairs: Sequence[tuple[str, str]]) -> tuple[int, tuple[str, str]]:
    """Return the first pair with the most target words, and its number, from 1."""
    number = max(range(len(pairs)), key=lambda number: len(pairs[number][1].split()))
    return number + 1, pairs[number]


def find_head(inspection: Inspection, places: Sequence[int]) -> TaskHead:
    """Return the head that attends most to the source words at `places`, one for each target word."""
    layers, heads = inspection.cross.shape[:2]
    shares = {}
    for layer in range(1, layers + 1):
        for head in range(1, heads + 1):
            weights = inspection.map("cross", layer, head).weights
            shares[layer, head] = float(sum(weights[word, place] for word, place in enumerate(places)) / len(places))
    best = max(shares, key=lambda key: shares[key])
    return TaskHead(*best, shares[best])
