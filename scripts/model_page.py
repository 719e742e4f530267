"""Train the small model of docs/course/model.html, or write the page anew from the model that it has.

    python scripts/model_page.py                write the page anew, after a change of the code that makes it, and draw
                                                the heads of its model (docs/course/images/heads.png)
    python scripts/model_page.py --train FOLDER train its model in FOLDER (about two minutes), and write the page

The model translates the sentences of a small grammar into Korean: the order of the words changes, the particle of an
object depends on the verb, and the negation becomes an ending.
"""

import argparse
import random
from itertools import product
from pathlib import Path

import torch

from dragoman.config import AttentionConfig, FeedForwardConfig, RunConfig, TrainingConfig, TransformerConfig
from dragoman.data.batches import Batch
from dragoman.inspection.figure import save
from dragoman.inspection.inspect import inspect
from dragoman.inspection.model_page import ShownModel, model_page, read_shown_model, show_model
from dragoman.inspection.plots.maps import map_grid
from dragoman.model.capture import AttentionCapture
from dragoman.training.loop import train
from dragoman.translation.translator import Translator

COURSE = Path(__file__).parents[1] / "docs" / "course"
PAGE, HEADS = COURSE / "model.html", COURSE / "images" / "heads.png"
SENTENCE, REFERENCE = "I do not like red apples", "나는 빨간 사과가 싫다"  # the model itself says "좋지 않다"
VOCABULARY = 528  # as many subwords as these sentences have, so that every word is a subword
SUBJECTS = {
    "I": "나는",
    "we": "우리는",
    "they": "그들은",
    "you": "너는",
    "students": "학생들은",
    "friends": "친구들은",
}
TIMES = {"": "", "today": "오늘", "often": "자주"}
PLACES = {"": "", "at home": "집에서", "at school": "학교에서", "in Seoul": "서울에서"}
COLOURS = {"": "", "red": "빨간", "small": "작은", "sweet": "단", "good": "좋은"}
THINGS = {"apples": "사과", "pears": "배", "grapes": "포도", "peaches": "복숭아", "melons": "멜론", "chestnuts": "밤"}
VERBS = {  # the ending, that of the negation, and whether the thing is the subject in Korean
    "like": ("좋다", "좋지", True),
    "dislike": ("싫다", "싫지", True),
    "buy": ("산다", "사지", False),
    "eat": ("먹는다", "먹지", False),
    "want": ("원한다", "원하지", False),
}
GOALS = {"home": "집에", "to school": "학교에", "to Seoul": "서울에"}


def particle(thing: str, subject: bool) -> str:
    """Return a Korean noun with its particle, which depends on whether its last syllable ends in a consonant."""
    closed = (ord(thing[-1]) - ord("가")) % 28 > 0
    return thing + (("이" if closed else "가") if subject else ("을" if closed else "를"))


def join(*words: str) -> str:
    return " ".join(filter(None, words))


def pairs() -> list[tuple[str, str]]:
    """Return all sentences of the grammar with their translations."""
    made = []
    for who, when, negated in product(SUBJECTS, TIMES, (False, True)):
        begin, ending = (who, "do not" if negated else ""), "않는다" if negated else ""
        for where, colour, thing, (verb, (end, stem, subject)) in product(PLACES, COLOURS, THINGS, VERBS.items()):
            source = join(*begin, verb, colour, thing, where, when)
            noun = particle(THINGS[thing], subject)
            last = (stem, "않다" if subject else ending) if negated else (end,)
            made.append((source, join(SUBJECTS[who], TIMES[when], PLACES[where], COLOURS[colour], noun, *last)))
        for goal, place in GOALS.items():
            last = ("가지", ending) if negated else ("간다",)
            made.append((join(*begin, "go", goal, when), join(SUBJECTS[who], TIMES[when], place, *last)))
    return made


def train_model(folder: Path) -> Translator:
    """Train the model in a folder and return its translator."""
    corpus = pairs()
    random.Random(1).shuffle(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("dev", corpus[:200]), ("train", corpus[200:])):
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")
    config = RunConfig(
        train=(str(folder / "train.tsv"),),
        dev=(str(folder / "dev.tsv"),),
        out=str(folder / "run"),
        vocabulary=VOCABULARY,
        model=TransformerConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            attention=AttentionConfig(heads=4),
            feed_forward=FeedForwardConfig(d_ff=64),
            dropout=0.0,
        ),
        training=TrainingConfig(
            batch_tokens=1024,
            learning_rate=0.4,
            warmup=400,
            epochs=1000,
            max_steps=1200,
            validate_every=500,
            patience=0,
            samples=3,
        ),
    )
    train(config)
    return Translator.load(folder / "run")


def draw_heads(shown: ShownModel) -> None:
    """Draw where all heads of cross-attention look in the pair that the page begins with."""
    batch = Batch.from_pairs([shown.source], [shown.reference])
    capture = AttentionCapture(shown.model, ("cross",))
    with torch.no_grad():
        capture.run(batch.source, batch.target)
    weights = torch.stack([layer[0] for layer in capture.weights["cross"]])
    rows = [shown.target_pieces[token].strip() for token in batch.labels[0]]
    columns = [shown.source_pieces[token].strip() for token in batch.source[0]]
    title = "Heads read the same source in different ways"
    save(map_grid(weights, rows, columns, title, "Cross-attention of the model of docs/course/model.html"), HEADS)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, metavar="FOLDER")
    folder = parser.parse_args().train
    if folder:
        translator = train_model(folder)
        words = {word for source, _ in pairs() for word in source.split()}
        inspection = inspect(translator, SENTENCE, REFERENCE, name="en-ko")
        shown = show_model(translator, inspection, sorted(words, key=str.lower))
    else:
        shown = read_shown_model(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(model_page(shown), encoding="utf-8")
    draw_heads(shown)


if __name__ == "__main__":
    main()
