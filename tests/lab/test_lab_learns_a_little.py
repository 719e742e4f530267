"""What `test_lab_learns.py` proves in minutes, in seconds: smaller tasks, one seed, and a control for each."""

from dataclasses import replace
from functools import partial

import torch

from dragoman.config import TransformerConfig
from dragoman.model.transformer import Transformer
from dragoman_lab import learned_positions, recall, residuals, unscaled_training
from dragoman_lab.ablation import share_projections
from dragoman_lab.experiment import Effort
from dragoman_lab.reversal_setup import CLEARLY, last
from dragoman_lab.shared_projections import PAIR, SEPARATE, SHARED
from dragoman_lab.tasks import Learned, copying, learn, learn_word_before, small, warm_up

TASK = copying(vocabulary=9, shortest=1, longest=4)
RATE = 3e-3


def made(config: TransformerConfig) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, TASK.vocabulary)


def taught(model: Transformer, steps: int = 100, peak: float = RATE, warmup: int = 1, clip: float = 1.0) -> Learned:
    return learn(model, TASK, steps=steps, seed=1, batch=32, rate=warm_up(peak, warmup), clip=clip)


def test_transformer_recalls_over_16_words_and_a_plain_rnn_over_2():
    recalled = partial(recall.train_and_recall, seed=1, effort=Effort((1,), 0.1))
    assert recalled(recall.KINDS[recall.TRANSFORMER], 16) >= 0.9
    assert recalled(recall.KINDS[recall.PLAIN], 16) <= 0.3
    assert recalled(recall.KINDS[recall.PLAIN], 1) >= 0.6


def test_word_before_is_named_with_two_matrices_and_less_with_one():
    """With W^Q = W^K the word before and the word after get the same score."""

    def named(shared: tuple[str, ...]) -> float:
        torch.manual_seed(1)
        model = Transformer(small(32, 1, 0), 12)
        share_projections(model, shared)
        return learn_word_before(model, 1, 6, 12, steps=150, seed=1, rate=5e-3, tested=64).accuracy

    assert named(SHARED[SEPARATE]) > 0.9
    assert named(SHARED[PAIR]) < 0.6


def test_large_d_k_begins_to_learn_only_with_the_division():
    scaled, unscaled = (
        last(unscaled_training.run_trial(unscaled_training.LARGE, scores, 1, 80).learned.losses)
        for scores in unscaled_training.SCORES
    )
    assert scaled < 0.8 * unscaled


def test_sinusoids_and_a_learned_table_copy_four_words_alike():
    config = replace(learned_positions.CONFIG, encoder_layers=1, decoder_layers=1)
    right = {
        scheme: taught(made(replace(config, positions=scheme)), steps=120).accuracy
        for scheme in ("sinusoidal", "learned", "none")
    }
    assert abs(right["sinusoidal"] - right["learned"]) < 0.03
    assert right["none"] < min(right["sinusoidal"], right["learned"]) - 0.1


def test_stack_of_8_layers_copies_four_words_with_residuals_alone():
    config = replace(small(32, layers=8, decoder_layers=1), norm_first=True)
    assert taught(made(config)).accuracy > 0.8
    assert taught(residuals.without_residuals(made(config))).accuracy < 0.5


def test_post_norm_learns_less_without_warm_up_and_pre_norm_does_not():
    def loss(norm_first: bool, warmup: int) -> float:
        model = made(replace(small(32, layers=4), norm_first=norm_first))
        return last(taught(model, peak=5e-3, warmup=warmup, clip=0.0).losses)

    warm = loss(False, 25)
    assert loss(False, 1) > warm + CLEARLY
    assert loss(True, 1) < warm - CLEARLY
