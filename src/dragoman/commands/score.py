"""dragoman score: how probable a model finds given translations."""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dragoman.commands import Model, parse, set_threads
from dragoman.errors import UsageError, plural

if TYPE_CHECKING:
    from dragoman.data.lines import Row
    from dragoman.data.tokenizers import SideTokenizer
    from dragoman.decoding.forced import Likelihood


@dataclass(frozen=True)
class Options:
    """Show how probable a model finds each target given its source, one line per pair, in the same order.

    A line holds the log-probability of the target in nats, EOS included, a tab, and the same divided by the number of
    tokens. Closer to zero is better. Targets are cut into subwords anew, perhaps not into those that a search found.

    $ dragoman score -m runs/en-ko pairs.tsv
    $ dragoman score -m runs/en-ko mine.en mine.ko --json
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    memory: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "approved pairs that the model remembers, made by dragoman remember (docs/memory.md)"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print a JSON object for each pair, with the log-probability of each token"


def main(arguments: list[str]) -> None:
    """Run `dragoman score`: print a line for each pair, and the perplexity of all on standard error."""
    options = parse(Options, "score", arguments)
    if not options.pairs:
        raise UsageError("give sentence pairs: a file of pairs, or a source file and a target file")
    set_threads(options.threads)
    from dragoman.commands.pairs import compute_by_pair
    from dragoman.data.spec import parse_corpora
    from dragoman.decoding.forced import perplexity, score
    from dragoman.memory import Memory
    from dragoman.model_folder import fetch_model, read_model

    corpora, folder = parse_corpora(options.pairs), fetch_model(Path(options.model))
    model, tokenizers = read_model(folder)
    memory = Memory(options.memory, folder, model, tokenizers) if options.memory else None
    total, tokens, pairs = 0.0, 0, 0
    results = compute_by_pair(corpora, folder, model, tokenizers, partial(score, model, memory=memory), "no score")
    for (row, *_, tag), likelihood in results:
        likelihood = likelihood and likelihood.after(tag)
        if likelihood and row.source.strip() and row.target.strip():
            total, tokens, pairs = total + likelihood.total, tokens + len(likelihood.tokens), pairs + 1
        print(as_json(row, likelihood, tokenizers.target) if options.json else as_text(likelihood))
    if tokens:
        mean = f"perplexity {perplexity(-total / tokens):.2f} per token"
        print(f"{mean}: {plural(pairs, 'pair')} with text, {plural(tokens, 'token')}", file=sys.stderr)


def as_text(likelihood: "Likelihood | None") -> str:
    """Return total and mean log-probability in nats with a tab between them.

    'nan' twice where a pair was not scored.
    """
    return f"{likelihood.total:.4f}\t{likelihood.mean:.4f}" if likelihood else "nan\tnan"


def as_json(row: "Row", likelihood: "Likelihood | None", tokenizer: "SideTokenizer") -> str:
    """Return a pair with its log-probabilities, in nats, as a line of JSON; tokenizer: that of the target.

    Its keys: 'source', 'target', 'log_p' (of the target), 'per_token' (its mean) and 'tokens', [piece, log-probability]
    each. Where the pair was not scored, they are null and [].
    """
    record: dict[str, Any] = {
        "source": row.source,
        "target": row.target,
        "log_p": None,
        "per_token": None,
        "tokens": [],
    }
    if likelihood:
        pieces = [tokenizer.pieces[token] for token in likelihood.tokens]
        record["log_p"], record["per_token"] = round(likelihood.total, 6), round(likelihood.mean, 6)
        record["tokens"] = [[piece, round(p, 6)] for piece, p in zip(pieces, likelihood.log_p, strict=True)]
    return json.dumps(record, ensure_ascii=False)
