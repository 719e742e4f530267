"""dragoman score: how probable a model finds given translations."""

import json
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dragoman.commands import Model, parse
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.data.corpus import Row
    from dragoman.data.tokenizer import Tokenizer
    from dragoman.decoding.forced import Likelihood

BLOCK = 1024  # pairs in memory


@dataclass(frozen=True)
class Options:
    """Show how probable a model finds each target given its source, one line per pair, in the same order.

    A line holds the log-probability of the target in nats, EOS included, a tab, and the same divided by the number of
    tokens. Closer to zero is better.

    $ dragoman score -m runs/en-ko pairs.tsv
    $ dragoman score -m runs/en-ko mine.en mine.ko --json
    """

    model: Model
    "model folder or run folder"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print a JSON object for each pair, with the log-probability of each token"


def main(arguments: list[str]) -> None:
    options = parse(Options, "score", arguments)
    if not options.pairs:
        raise UsageError("name sentence pairs: a file with pairs, or a source file and a target file")
    from dragoman.data.corpus import LeftOut, stream_rows
    from dragoman.data.spec import parse_corpora
    from dragoman.decoding.forced import max_positions, perplexity, score
    from dragoman.model_folder import read_model

    corpora = parse_corpora(options.pairs)
    model, tokenizer = read_model(Path(options.model))
    max_length = max_positions(model)
    total, tokens, pairs = 0.0, 0, 0
    for corpus in corpora:
        left_out, tag_ids = LeftOut(corpus), tokenizer.tag_ids(corpus.tag)
        rows = stream_rows(corpus, left_out)
        while block := list(islice(rows, BLOCK)):
            sources = [tag_ids + ids for ids in tokenizer.encode_all([row.source for row in block])]
            targets = tokenizer.encode_all([row.target for row in block])
            fitting = [i for i in range(len(block)) if max(len(sources[i]), len(targets[i])) < max_length]
            scores = score(model, [sources[i] for i in fitting], [targets[i] for i in fitting])
            likelihoods = dict(zip(fitting, scores, strict=True))
            for index, row in enumerate(block):
                likelihood = likelihoods.get(index)
                if not likelihood:
                    location = f"{corpus.name}:{row.number}"
                    print(f"{location}: a side has more than {max_length - 1:,} tokens: no score", file=sys.stderr)
                elif row.source.strip() and row.target.strip():
                    total, tokens, pairs = total + likelihood.total, tokens + len(likelihood.tokens), pairs + 1
                print(as_json(row, likelihood, tokenizer) if options.json else as_text(likelihood))
        for note in left_out.notes():
            print(note, file=sys.stderr)
    if tokens:
        mean = f"perplexity {perplexity(-total / tokens):.2f} per token"
        print(f"{mean}: {pairs:,} pairs with text, {tokens:,} tokens", file=sys.stderr)


def as_text(likelihood: "Likelihood | None") -> str:
    """Return total and mean log-probability with a tab between them; '' where a pair was not scored."""
    return f"{likelihood.total:.4f}\t{likelihood.mean:.4f}" if likelihood else "nan\tnan"


def as_json(row: "Row", likelihood: "Likelihood | None", tokenizer: "Tokenizer") -> str:
    """Return a pair with its log-probabilities, in nats, as a line of JSON; null where it was not scored."""
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
