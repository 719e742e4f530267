"""Models of every kind that Marian trains: imported, they say what Marian says. `make peers` installs Marian.

Each is trained here, for a minute, on the demo's phrasebook, English to Spanish, or on the pairs of the file that
PAIRS names, with tabs between source and target. What Marian's limit of length cuts off is not compared. Two things are
Marian's own (version 1.12.42):

- With norms before each sublayer, its decoder takes the keys and values of the words so far from vectors without their
  norm, from the second word on. It neither trains nor scores so. Its scorer therefore agrees with the model as it
  comes in, and its decoder only with one that forgets as much.
- Positions are never learned, whatever its settings say: it does not read that setting.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import sentencepiece
import torch

from benchmarks.peers.trainers import find_command
from dragoman.config import SearchConfig
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.demo.phrasebook import phrasebook
from dragoman.errors import DragomanError
from dragoman.interop.importing import import_model
from dragoman.model.positions import sinusoids
from dragoman.model.transformer import DecoderLayer, Transformer
from dragoman.model_folder import read_model

pytestmark = pytest.mark.slow
try:
    MARIAN = find_command("marian", "pymarian")
except DragomanError:
    pytest.skip("Marian is not installed: make peers", allow_module_level=True)

SENTENCES = 800
LIMIT = 3  # times the tokens of its source, the end included, to which Marian cuts a translation
LIMITED = f"--max-length-factor {LIMIT} --mini-batch 1"
SHAPE = (
    "--model model.npz --train-sets train.en train.es --tempdir . --seed 1 --after 300u "
    "--type transformer --dim-emb 32 --transformer-heads 4 --transformer-dim-ffn 64 --enc-depth 1 --dec-depth 2 "
    "--transformer-dropout 0 --label-smoothing 0.1 --learn-rate 0.005 --lr-warmup 20 --mini-batch 100"
)
ONE_THREAD = "--cpu-threads 1 --quiet --quiet-translation"


@dataclass(frozen=True)
class Kind:
    """Flags of Marian; whether both sides have one vocabulary, and whether it is a list beside two .spm files."""

    flags: str = "--tied-embeddings-all"
    joint: bool = True
    lists: bool = False


NORMS_BEFORE = "norms before each sublayer"
KINDS = {
    "an .spm as vocabulary": Kind(),
    "a list and two .spm files": Kind(lists=True),
    "separate vocabularies": Kind("--tied-embeddings", joint=False),
    NORMS_BEFORE: Kind(
        "--tied-embeddings-all --transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"
    ),
    "positions said to be learned": Kind("--tied-embeddings-all --transformer-train-position-embeddings"),
}


def read_pairs() -> tuple[list[Sequence[str]], list[str]]:
    """Return pairs to train on, and the SENTENCES shortest of 1,000 other sources, to translate."""
    if file := os.environ.get("PAIRS"):
        rows = [line.split("\t") for line in Path(file).read_text(encoding="utf-8").splitlines()]
        pairs, others = rows[1000:], rows[:1000]
    else:
        book = phrasebook("en", "es", per_template=40, seed=1)
        pairs, others = [*map(tuple, book.train)], [*map(tuple, [*book.dev, *book.test])][:1000]
    return pairs, sorted((source for source, *_ in others), key=len)[:SENTENCES]


def write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


class Trained:
    """A model that Marian has trained, what Marian makes of the sentences, and our import of it."""

    def __init__(self, name: str, folder: Path):
        self.name, self.kind, self.folder = name, KINDS[name], folder
        pairs, self.sources = read_pairs()
        self.spm: list[sentencepiece.SentencePieceProcessor] = []
        for side in (0, 1) if self.kind.lists else ():
            model = folder / ("source.spm", "target.spm")[side]
            with model.open("wb") as file:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter([pair[side] for pair in pairs]),
                    model_writer=file,
                    vocab_size=500,
                    hard_vocab_limit=False,
                    minloglevel=2,
                )
            self.spm.append(sentencepiece.SentencePieceProcessor(str(model)))
        for side, name in enumerate(("train.en", "train.es")):
            write_lines(folder / name, self.cut([pair[side] for pair in pairs], side))
        write_lines(folder / "sources", self.cut(self.sources, 0))
        end = "yml" if self.kind.lists else "spm"
        self.vocabs = f"both.{end} both.{end}" if self.kind.joint else f"src.{end} trg.{end}"
        sizes = "0 0" if self.kind.lists else "600 600"
        self.run(f"train {SHAPE} {self.kind.flags} --dim-vocabs {sizes}")
        import_model(folder, folder / "imported")
        self.expected = {beam: self.translations(beam) for beam in (1, 4)}

    def cut(self, texts: Sequence[str], side: int) -> Sequence[str]:
        """Return texts as Marian reads them: as pieces where it has a list of them."""
        return [" ".join(self.spm[side].encode(text, out_type=str)) for text in texts] if self.spm else texts

    def join(self, said: str) -> str:
        """Return what Marian says as text."""
        return said.replace(" ", "").replace("\u2581", " ").strip() if self.spm else said

    def run(self, command: str, vocabs: str = "") -> str:
        words = f"{command} --vocabs {vocabs or self.vocabs} {ONE_THREAD}".split()
        ran = subprocess.run([MARIAN, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout

    def translations(self, beam: int) -> dict[int, tuple[str, float]]:
        """Return what Marian says and with which log-probability, by the number of the sentence, unless it is cut."""
        said = self.run(
            f"decode --models model.npz --input sources --n-best --word-scores --beam-size {beam} {LIMITED}"
        )
        best: dict[int, list[str]] = {}
        for line in said.splitlines():  # the best of each sentence comes first
            number, *rest = line.split(" ||| ")
            best.setdefault(int(number), rest)
        _, tokenizers = self.read()
        limits = [LIMIT * (len(ids) + 1) for ids in tokenizers.source.encode_all(self.sources)]
        return {
            number: (self.join(text), float(score))
            for number, (text, words, _, score) in best.items()
            if len(words.split()) - 1 < limits[number]  # behind a name, a number for each word and the end
        }

    def scores(self, found: Sequence[Hypothesis]) -> list[float]:
        """Return which log-probabilities Marian gives translations, in their own pieces: a text may have several ways.

        It takes pieces only where its vocabulary is a list, so it gets that of an .spm file as one.
        """
        _, sides = self.read()
        vocabs, ids = self.vocabs, (sides.source.encode_all(self.sources), [best.tokens for best in found])
        for side, name, rows in zip(sides, ("score.en", "score.es"), ids, strict=True):
            assert isinstance(side, SentencePieceTokenizer)
            write_lines(self.folder / name, [" ".join(side.vocabulary[id] for id in row) for row in rows])
            if not self.kind.lists:
                words = {piece.text: id for id, piece in enumerate(side.model.pieces)}
                (self.folder / f"{name}.yml").write_text(json.dumps(words), encoding="ascii")  # JSON is YAML
                vocabs = "score.en.yml score.es.yml"
        return [
            float(line) for line in self.run("score --model model.npz --train-sets score.en score.es", vocabs).split()
        ]

    def read(self) -> tuple[Transformer, Tokenizers]:
        model, tokenizers = read_model(self.folder / "imported")
        assert isinstance(model, Transformer)
        return model, tokenizers

    def read_as_decoded(self) -> tuple[Transformer, Tokenizers]:
        """Return our import with what Marian's decoder forgets."""
        model, tokenizers = self.read()
        if self.name == NORMS_BEFORE:
            for layer in model.decoder:
                assert isinstance(layer, DecoderLayer)
                forget_norms(layer)
        return model, tokenizers

    def search(self, model: Transformer, tokenizers: Tokenizers, beam: int) -> list[Hypothesis]:
        """Return what a model says."""
        ids = tokenizers.source.encode_all(self.sources)
        longest = LIMIT * max(map(len, ids))
        engine = TorchEngine(model, suppressed=tokenizers.target.suppressed)
        engine.model = model  # not a copy, which would not have what a test changes
        with torch.no_grad():
            found = engine.search(ids, SearchConfig(beam=beam, length_penalty=0, extra_length=longest))
        return [best for best, *_ in found]


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(request.param, tmp_path_factory.mktemp("marian"))


def forget_norms(layer: DecoderLayer) -> None:
    """Let a layer attend as Marian's decoder does, which keeps the words so far without their norm."""
    attention, given = layer.attention, {}
    project, attend = attention.project, attention.forward

    def forget(y, *rest):
        return project(given["x"], *rest)

    def attend_at_first_with_norm(y, packing, seen, *rest):
        return attend(y, packing, project(y, packing) if seen.key.size(2) == 1 else seen, *rest)

    layer.around_attention.register_forward_pre_hook(lambda _, arguments: given.update(x=arguments[0]))
    attention.project, attention.forward = forget, attend_at_first_with_norm


def sorted_sinusoids(length: int, size: int) -> torch.Tensor:
    """Return the positions that transformers computes for such models: the paper's, first all sines."""
    table = sinusoids(length, size)
    return torch.cat([table[:, 0::2], table[:, 1::2]], 1)


def differing(texts: Sequence[str], expected: dict[int, tuple[str, float]]) -> int:
    """Return how many texts Marian does not say, of those that it says whole."""
    return sum(texts[number] != text for number, (text, _) in expected.items())


@pytest.mark.parametrize("beam", [1, 4])
def test_imported_model_says_what_marian_says(trained: Trained, beam: int):
    expected = trained.expected[beam]
    model, tokenizers = trained.read_as_decoded()
    found = trained.search(model, tokenizers, beam)
    texts = [tokenizers.target.decode(best.tokens) for best in found]
    other = [number for number, (text, _) in expected.items() if texts[number] != text]
    gap = max(abs(found[number].score - score) for number, (_, score) in expected.items() if number not in other)
    variety = len({text for text, _ in expected.values()})
    print(f"\n{trained.name}, beam {beam}: {len(other)} of {len(expected)} differ ({variety} texts), {gap:.1e} nats")
    assert len(expected) >= 500
    assert gap < 1e-3
    # Marian's beam is narrower by one for each hypothesis that has ended, and so misses a better one now and then.
    assert len(other) <= (0.01 * len(expected) if beam > 1 else 0)
    assert all(found[number].score > expected[number][1] for number in other)


def test_imported_model_with_positions_of_transformers_differs_control(trained: Trained):
    """The control."""
    model, tokenizers = trained.read_as_decoded()
    for positions in (model.encoder_positions, model.decoder_positions):
        positions.formula = sorted_sinusoids
    texts = [tokenizers.target.decode(best.tokens) for best in trained.search(model, tokenizers, beam=1)]
    expected = trained.expected[1]
    differ = differing(texts, expected)
    print(f"\n{trained.name}: with the positions of transformers, {differ} of {len(expected)} differ")
    assert differ > 0.02 * len(expected)


def test_marian_scores_alike(trained: Trained):
    """Also with norms before each sublayer, where its decoder says something else."""
    model, tokenizers = trained.read()
    found = trained.search(model, tokenizers, beam=1)
    whole = [number for number, best in enumerate(found) if best.finished]
    theirs = trained.scores(found)
    gap = max(abs(found[number].score - theirs[number]) for number in whole)
    expected = trained.expected[1]
    differ = differing([tokenizers.target.decode(best.tokens) for best in found], expected)
    print(
        f"\n{trained.name}: {len(whole)} scored, {gap:.1e} nats; its decoder says {differ} of {len(expected)} otherwise"
    )
    assert len(whole) >= 500
    assert gap < 1e-3
    assert (differ > 0) == (trained.name == NORMS_BEFORE)
