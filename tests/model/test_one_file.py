"""The model in one file of the course, docs/course/transformer.py: the same as ours, short, and able to learn."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import LITTLE, SOURCE, TARGET, WORDS
from torch import Tensor

from dragoman.config import TransformerConfig
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.decoding.search import OutputSpec, finish, greedy_search
from dragoman.model.attention import explicit_attention
from dragoman.model.transformer import Transformer
from dragoman.training.loss import output_loss

FILE = Path(__file__).parents[2] / "docs" / "course" / "transformer.py"
TEXT = FILE.read_text(encoding="utf-8")
NAMES = {  # of the paper, and ours
    "W_E": "source_embedding",
    "W_Q": "query",
    "W_K": "key",
    "W_V": "value",
    "W_O": "out",
    "W_1": "hidden",
    "W_2": "out",
    "add_norm_1": "around_attention",
    "add_norm_3": "around_feed_forward",
}
SECOND_NORM = {"encoder": "around_feed_forward", "decoder": "around_cross_attention"}
FULL = torch.tensor([[3, 4, 5, 6, 2], [5, 3, 7, 4, 2]]), torch.tensor([[1, 8, 9, 3], [1, 4, 7, 5]])


def load(text: str = TEXT) -> ModuleType:
    """Import the file, or a changed text of it."""
    module = ModuleType("one_file")
    exec(compile(text, FILE, "exec"), module.__dict__)
    return module


PAPER = load()


def our_name(name: str) -> str:
    """Return our name of a parameter of the file."""
    for paper, ours in {**NAMES, "add_norm_2": SECOND_NORM.get(name.split(".")[0], "")}.items():
        name = name.replace(paper, ours)
    return name


def models(config: TransformerConfig = LITTLE, paper: ModuleType = PAPER) -> tuple[Transformer, torch.nn.Module]:
    """Return our model, with the kernel that computes equation 1 in steps, and that of the file with its weights."""
    torch.manual_seed(0)
    ours = Transformer(config, WORDS)
    for module in ours.modules():
        if hasattr(module, "kernel"):
            module.kernel = explicit_attention
    sizes = config.d_model, config.encoder_layers, config.attention.heads, config.feed_forward.d_ff
    theirs = paper.Transformer(WORDS, *sizes, P_drop=0.0)
    weights = ours.state_dict()
    theirs.load_state_dict({name: weights[our_name(name)] for name in theirs.state_dict()})
    return ours, theirs


def results(model: torch.nn.Module, logits: Tensor, real: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits of real positions, and the gradient of each parameter for fixed slopes of these logits."""
    slopes = torch.randn(*logits.shape, generator=torch.Generator().manual_seed(1))
    (logits * slopes.to(logits) * real[..., None]).sum().backward()
    return logits.detach()[real], {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def differences(
    source: Tensor, target: Tensor, dtype: torch.dtype, config: TransformerConfig = LITTLE
) -> dict[str, float]:
    """Return by how much the logits, and the gradient of each parameter, differ at most between the two models."""
    ours, theirs = (model.to(dtype) for model in models(config))
    real = target != PAD
    logits, gradients = results(ours, ours(source, target), real)
    same, of_file = results(theirs, theirs.decode(target, theirs.encode(source), source), real)
    assert {our_name(name) for name in of_file} == set(gradients)
    pairs = {"logits": (same, logits)} | {n: (g, gradients[our_name(n)]) for n, g in of_file.items()}
    return {name: 0.0 if torch.equal(a, b) else float((a - b).abs().max()) for name, (a, b) in pairs.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d_model", [8, 64])
def test_one_file_has_our_outputs_and_gradients_to_the_last_bit(d_model: int, dtype: torch.dtype):
    assert {*differences(*FULL, dtype, replace(LITTLE, d_model=d_model)).values()} == {0.0}


def test_one_file_is_ours_with_padding_too():
    """But for rounding: ours multiplies the rows of real tokens alone."""
    assert max(differences(SOURCE, TARGET, torch.float64).values()) < 1e-13


SLIPS = [
    ("/ math.sqrt(d_k)", "/ d_k"),
    ("/ math.sqrt(d_k)", ""),
    ("scores.masked_fill(~mask, -math.inf)", "scores * torch.where(mask, 1.0, 1e-9)"),
    ("masked_fill(~mask", "masked_fill(mask"),
    ("softmax(dim=-1)", "softmax(dim=-2)"),
    ("softmax(dim=-1)", "softmax(dim=1)"),
    (
        "self.W_O(attention(Q, K, V, mask).transpose(1, 2).flatten(2))",
        "attention(Q, K, V, mask).transpose(1, 2).flatten(2)",
    ),
    ("y.unflatten(-1, (self.h, -1)).transpose(1, 2)", "y.view(len(y), self.h, y.size(1), -1)"),
    ("self.W_2(F.relu(self.W_1(x)))", "F.relu(self.W_2(F.relu(self.W_1(x))))"),
    ("self.norm(x + self.dropout(f_x))", "x + self.norm(f_x)"),
    ("self.add_norm_2(x, self.cross_attention(x", "self.add_norm_2(0 * x, self.cross_attention(x"),
    ("torch.arange(0, d_model, 2", "0.5 * torch.arange(0, d_model, 2"),
    (
        "ModuleList(EncoderLayer(d_model, h, d_ff, P_drop) for _ in range(N))",
        "ModuleList([EncoderLayer(d_model, h, d_ff, P_drop)] * N)",
    ),
    ("x = self.W_E(ids) * math.sqrt(d_model)", "x = self.W_E(ids)"),
    ("padding_mask(target) & look_ahead", "padding_mask(target) | look_ahead"),
    ("F.linear(x, self.W_E.weight)", "F.linear(x, self.W_E.weight).softmax(-1)"),
]


@pytest.mark.parametrize(("right", "slip"), SLIPS, ids=[str(n) for n in range(len(SLIPS))])
def test_slips_that_one_file_marks_make_another_model(right: str, slip: str):
    assert right in TEXT
    ours, theirs = models(paper=load(TEXT.replace(right, slip)))
    differ = (theirs.decode(TARGET, theirs.encode(SOURCE), SOURCE) - ours(SOURCE, TARGET))[TARGET != PAD]
    assert not differ.abs().max() < 1e-3  # some give NaN


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("seeded_double_precision")
def test_loss_of_one_file_is_ours(smoothing: float):
    ours, theirs = models()
    target = torch.tensor([[1, 8, 9, 2, 0], [1, 4, 7, 10, 2], [1, 2, 0, 0, 0]])
    labels, real = target[:, 1:], target[:, 1:] != PAD
    vectors = ours.vectors(target[:, :-1], ours.start(SOURCE), real)
    total = output_loss(vectors, ours.output.weight, None, labels[real], smoothing)
    assert torch.allclose(PAPER.loss(theirs, SOURCE, target, smoothing), total / real.sum(), rtol=1e-13)


def test_greedy_of_one_file_is_our_greedy_search():
    ours, theirs = models()
    found = finish(greedy_search(ours.eval(), SOURCE, OutputSpec(BOS, EOS, torch.tensor([6, 6, 6]))))
    rows = [[token for token in row if token not in (PAD, EOS)] for row in PAPER.greedy(theirs, SOURCE, 6).tolist()]
    assert rows == [hypothesis.tokens for (hypothesis,) in found]


def test_one_file_is_short_alone_and_in_two_languages():
    """Each slip is marked in both languages."""
    assert TEXT.count("\n") <= 200
    tree = ast.parse(TEXT)
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert imported == {"math", "torch", "torch.nn.functional"}
    code = TEXT.split('"""', 2)[2]
    assert code.count("SLIP:") == code.count("실수:") >= 15
    for part in re.split(r"^(?=class |def )", code, flags=re.MULTILINE)[1:]:
        assert re.search("[가-힣]", part), part.splitlines()[0]


def test_one_file_begins_to_learn_its_task(capsys: pytest.CaptureFixture[str]):
    few = {"longest": 3, "letters": 6, "warmup_steps": 50}
    assert PAPER.main(steps=0, **few) < 0.05
    assert PAPER.main(steps=150, **few) > 0.2
    assert "step 단계  100" in capsys.readouterr().out


@pytest.mark.slow
def test_one_file_learns_to_write_words_backwards():
    assert PAPER.main() > 0.9
