"""Padding has no weight: losses, gradients and metrics with it are those without it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glocal.core import rng, tree
from glocal.core.padding import IGNORED, PAD, label_counts
from glocal.core.types import Batch
from glocal.evaluation import influence, metrics
from glocal.nn import convert, models
from glocal.nn.layers import LSTM
from glocal.nn.task import Task

WORDS, T = 7, 5
LENGTHS = (5, 2, 3)


def sequences(lengths: tuple[int, ...] = LENGTHS, time: int = T) -> Batch:
    """Sequences of these lengths, filled up; their words do not depend on how far."""
    x = torch.full((len(lengths), time), PAD)
    y = torch.full((len(lengths), time), IGNORED)
    for i, n in enumerate(lengths):
        words = rng.randint(rng.fold(rng.key(3), i), WORDS - 1, (n + 1,)) + 1
        x[i, :n], y[i, :n] = words[:-1], words[1:]
    return {"x": x, "y": y, "weight": torch.ones(len(lengths))}


def longer(batch: Batch) -> Batch:
    """The same batch with four positions and two sequences of padding more."""
    x = torch.nn.functional.pad(batch["x"], (0, 4, 0, 2), value=PAD)
    y = batch["y"]
    fill = (0, 4, 0, 2) if y.dim() > 1 else (0, 2)
    y = torch.nn.functional.pad(y, fill, value=IGNORED if y.dim() > 1 else 0)
    return {"x": x, "y": y, "weight": torch.nn.functional.pad(batch["weight"], (0, 2))}


def word_task() -> Task:
    return Task(models.build("word-lstm(hidden=6)", input_shape=(T,), classes=WORDS))


def class_task() -> Task:
    spec = models.completed("bilstm(5, embedding=4, hidden=6)", WORDS)
    return Task(models.build(spec, input_shape=(T,), classes=5))


def class_batch() -> Batch:
    return {**sequences(), "y": torch.tensor([0, 4, 2])}


CASES: dict[str, tuple[Callable[[], Task], Callable[[], Batch]]] = {
    "next words": (word_task, sequences),
    "classes": (class_task, class_batch),
}


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_batchs_loss_and_gradient_do_not_change_with_padding(case: str, vectorised: bool) -> None:
    task, batch = CASES[case][0](), CASES[case][1]()
    task = task if vectorised else task.plain()

    def found(batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        return task.grad(lambda w: task.loss(w, batch, rng.key(0)), task.params)

    (grads, loss), (padded_grads, padded_loss) = found(batch), found(longer(batch))
    torch.testing.assert_close(padded_loss, loss, rtol=1e-5, atol=1e-6)
    for name, g in grads.items():
        torch.testing.assert_close(padded_grads[name], g, rtol=1e-4, atol=1e-6, msg=name)
    assert all(g.abs().sum() > 0 for g in grads.values())


def test_each_label_weighs_the_same_whatever_its_sequence() -> None:
    task, batch = word_task(), sequences()
    logits = task.predict(task.params, batch["x"])
    each = nn.functional.cross_entropy(logits.flatten(0, 1), batch["y"].flatten(), ignore_index=-1)
    torch.testing.assert_close(task.loss(task.params, batch, rng.key(0)), each)
    assert label_counts(batch["y"]).tolist() == list(LENGTHS)
    assert label_counts(torch.tensor([2, 0])).tolist() == [1, 1]
    # Sequence by sequence, weighted by its labels, it is the same.
    marks = task.example_metrics(task.params, batch["x"], batch["y"])
    weighted = (marks["loss"] * torch.tensor(LENGTHS)).sum() / sum(LENGTHS)
    torch.testing.assert_close(weighted, each)


@pytest.mark.parametrize("metric", ["accuracy", "top5", "cross_entropy", "perplexity", "ece"])
def test_metrics_are_over_all_labels_and_over_nothing_else(metric: str) -> None:
    batch = sequences()
    real = batch["y"] != IGNORED
    logits = rng.normal(rng.key(1), (*batch["y"].shape, WORDS))
    whole = metrics.METRICS[metric](logits, batch["y"])
    assert whole == pytest.approx(metrics.METRICS[metric](logits[real], batch["y"][real]))
    padded = longer(batch)["y"]
    others = rng.normal(rng.key(2), (*padded.shape, WORDS))
    others[: len(LENGTHS), :T] = logits
    assert metrics.METRICS[metric](others, padded) == pytest.approx(whole)
    # What sequences contribute has the metric as its mean, each with as much weight as labels.
    values = influence.VALUES[metric](logits, batch["y"])
    assert float((values * torch.tensor(LENGTHS)).sum() / sum(LENGTHS)) == pytest.approx(whole)


def test_perplexity_by_hand() -> None:
    """Probabilities 1/2, 1/4 and 1/8 of the right words: e to the mean of log 2, log 4, log 8."""
    p = torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], [[0.0, 0.125, 0.875], [1.0, 0.0, 0.0]]])
    y = torch.tensor([[0, 0], [1, IGNORED]])
    logits = (p + 1e-30).log()
    assert metrics.perplexity(logits, y) == pytest.approx(4.0, rel=1e-6)
    assert metrics.accuracy(logits, y) == pytest.approx(1 / 3)
    assert math.isnan(metrics.perplexity(logits, torch.full_like(y, IGNORED)))


def test_two_perplexities_are_compared_by_their_logarithms() -> None:
    weight = np.array([0.5, 0.25, 0.25])
    a, b = np.array([1.0, 3.0, 2.0]), np.array([1.5, 2.0, 3.0])

    def contributions(loss: np.ndarray) -> np.ndarray:
        mean = weight @ loss
        return np.exp(mean) * (1 + loss - mean)

    x, z = contributions(a), contributions(b)
    found = influence.differences("perplexity", x, z, weight)
    assert weight @ found == pytest.approx(np.exp(weight @ a) - np.exp(weight @ b))
    np.testing.assert_allclose(found / found[0], (a - b) / (a[0] - b[0]))  # as sure as the losses
    np.testing.assert_allclose(influence.differences("perplexity", x, x, weight), 0, atol=1e-12)
    np.testing.assert_allclose(influence.differences("mae", x, z, weight), x - z)


def test_both_directions_are_torchs_and_padding_is_as_packing() -> None:
    theirs = nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
    ours = convert(theirs)
    assert isinstance(ours, LSTM)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, lengths = rng.normal(rng.key(0), (3, 5, 3)), torch.tensor(LENGTHS)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-5)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, states = theirs(packed)
    out, _ = pad_packed_sequence(out, batch_first=True)
    real = torch.arange(5) < lengths[:, None]
    got, got_states = ours(x, real=real)
    torch.testing.assert_close(got[real], out[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(got_states, states, rtol=0, atol=1e-5)


def test_a_classifier_of_texts_is_vectorised_over_clients() -> None:
    task, batch = class_task(), class_batch()
    stacked = tree.stack([task.params, tree.map(lambda w: 0.5 * w, task.params)])
    together = vmap(task.predict, in_dims=(0, None))(stacked, batch["x"])
    for i in range(2):
        alone = task.predict(tree.row(stacked, i), batch["x"])
        torch.testing.assert_close(together[i], alone, rtol=1e-5, atol=1e-6)
