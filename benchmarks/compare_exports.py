"""Compare what models are exported to with the models: size, words, BLEU, and sentences a second, with one thread.

    python -m benchmarks compare-exports PAIRS MODEL [MODEL ...]

Each target and type of weights that a model has is exported to a folder that is deleted at the end. The sources of
PAIRS are translated with 4 beams and greedily, 500 of them at most, by each in turn, without safeguards. Texts have the
default tags of the model folder, such as the languages of an imported model.
"""

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import read_corpus
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.export.run import TARGETS, export_model
from dragoman.export.target import Exported
from dragoman.model_folder import fetch_model, read_model
from dragoman.model_folder.manifest import FILES
from dragoman.text.tags import DefaultTags

SENTENCES, ROUNDS = 500, 3
TARGETS_MEASURED = ("ctranslate2", "onnx")  # a web page has the graphs of onnx


def translate(engine: Engine, sources: Sequence[Ids], search: SearchConfig, given: Sequence[Constraints]) -> int:
    """Translate all sources; return how many there are."""
    return len(engine.search(sources, search, given))


def main(pairs: str, *models: str) -> None:
    """Print two tables in Markdown for each model, one for each search."""
    torch.set_num_threads(1)
    for model in models:
        compare(model, pairs)


def compare(model: str, pairs: str) -> None:
    """Print the tables of a model."""
    folder = fetch_model(Path(model))
    exported = Exported(*read_model(folder), DefaultTags.load(folder))
    native, tokenizers = exported.model, exported.tokenizers
    sides = list(zip(*read_corpus([pairs]).pairs[:SENTENCES], strict=True))
    texts, references = list(sides[0]), list(sides[1])
    front, tag = tokenizers.source.tag_ids(exported.tags.source), tokenizers.target.tag_ids(exported.tags.target)
    sources = [[*front, *ids] for ids in tokenizers.source.encode_sources(texts)]
    given = [Constraints(tag=tuple(tag))] * len(sources)
    with tempfile.TemporaryDirectory() as exports:
        engines: dict[str, tuple[Engine, int]] = {
            "dragoman": (
                TorchEngine(native, suppressed=tokenizers.target.suppressed),
                sum((folder / name).stat().st_size for name in FILES),
            )
        }
        for name in TARGETS_MEASURED:
            target = TARGETS[name]
            for kind in target.compute_types:
                out = Path(exports) / f"{name}-{kind}"
                try:
                    test = [pairs] if kind == "int8" else []
                    report = export_model(folder, name, out, compute_type=kind, test=test)
                except DragomanError as error:
                    print(f"{name}, {kind}: {error}", file=sys.stderr)
                    continue
                engines[f"{name}, {kind}"] = target.open(out, exported, kind), report.bytes
        print(f"\n{folder}, {pairs}, {len(sources):,} sentences, {describe_machine()}.")
        for search in (SearchConfig(patience=1.5), SearchConfig(beam=1)):
            contenders = [
                Contender(name, partial(translate, engine, sources, search, given))
                for name, (engine, _) in engines.items()
            ]
            time_in_turn(contenders, ROUNDS)
            said = {
                name: [
                    tokenizers.target.decode(best.tokens[len(tag) :])
                    for (best, *_) in engine.search(sources, search, given)
                ]
                for name, (engine, _) in engines.items()
            }
            rows = [
                [
                    timed.name,
                    f"{engines[timed.name][1] / 1e6:,.1f} MB",
                    str(sum(a == b for a, b in zip(said[timed.name], said["dragoman"], strict=True))),
                    f"{evaluate(said[timed.name], references).bleu.value:.1f}",
                    str(timed),
                ]
                for timed in contenders
            ]
            columns = [f"{search.beam} beam{'s' * (search.beam > 1)}", "size", "same words", "BLEU", "sentences/s"]
            print(f"\n{markdown_table(columns, rows)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
