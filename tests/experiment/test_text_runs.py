"""Runs on text: verdicts by perplexity over labels, engines, and models that are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glocal
import toys
from glocal.core.errors import GlocalError
from glocal.core.padding import IGNORED
from glocal.data.federation import Federation
from glocal.evaluation import metrics
from glocal.experiment.run import Run

GIVEN: dict[str, Any] = {
    "model": "word-lstm(hidden=4,layers=1)",
    "rounds": 3,
    "metric": "perplexity",
    "baseline": "local(lr=0.5,max_epochs=3)",
}


@pytest.fixture(scope="module")
def fed() -> Federation:
    return toys.next_words()


@pytest.fixture(scope="module")
def run(fed: Federation) -> Run:
    return glocal.fit("fedavg(lr=0.5)", fed, **GIVEN)


def test_a_clients_perplexity_is_over_all_its_labels(fed: Federation, run: Run) -> None:
    for k, row in enumerate(run.clients):
        x, y = fed[k].test
        module = run.client_model(row["client"]).module
        with torch.no_grad():
            logits = module(x)
        real = y != IGNORED
        loss = torch.nn.functional.cross_entropy(logits[real], y[real])
        assert row["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-4)
        assert row["benefit"] == pytest.approx(row["local_perplexity"] - row["perplexity"])
        assert row["top5"] == pytest.approx(metrics.METRICS["top5"](logits[real], y[real]))
    assert run.summary["lower_is_better"]
    assert run.summary["metric"] == "perplexity"


def test_labels_of_padding_do_not_count_as_a_clients_variety(fed: Federation) -> None:
    short = glocal.fit("fedavg(lr=0.5)", fed, **GIVEN, adapt="fine-tune(lr=0.5, max_epochs=1)")
    for k, row in enumerate(short.clients):
        _, y = fed[k].train
        assert (y == IGNORED).any()
        shares = torch.bincount(y[y != IGNORED]).double()
        shares = shares[shares > 0] / shares.sum()
        assert row["complexity"] == pytest.approx(float(-(shares * shares.log2()).sum()))


def test_engines_agree_and_more_padding_changes_nothing(fed: Federation, run: Run) -> None:
    from dataclasses import replace

    wider = replace(
        fed,
        x=torch.nn.functional.pad(fed.x, (0, 3)),
        y=torch.nn.functional.pad(fed.y, (0, 3), value=IGNORED),
        y_train=torch.nn.functional.pad(fed.y_train, (0, 3), value=IGNORED),
        unsplit=None,
    )
    for data, engine in ((fed, "sequential"), (wider, "vectorised")):
        other = glocal.fit("fedavg(lr=0.5)", data, **GIVEN, engine=engine)
        for mine, theirs in zip(run.clients, other.clients, strict=True):
            for what in ("perplexity", "local_perplexity", "accuracy", "low", "high"):
                assert theirs[what] == pytest.approx(mine[what], rel=1e-3, abs=1e-3), what
        for name in ("val_loss", "val_perplexity", "val_accuracy", "train_loss"):
            found = [r.history[-1][name] for r in (run, other)]
            assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_what_is_recorded_is_what_the_models_put_out(fed: Federation, run: Run) -> None:
    """Losses alone, in the validation of a round, and the logits say the same."""
    perplexities, losses = [], []
    for k, row in enumerate(run.clients):
        x, y = fed[k].val
        with torch.no_grad():
            logits = run.client_model(row["client"]).module(x)
        perplexities.append(metrics.perplexity(logits, y))
        losses.append(np.log(perplexities[-1]))
    assert run.history[-1]["val_perplexity"] == pytest.approx(np.mean(perplexities), rel=1e-4)
    assert run.history[-1]["val_loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_verdict_is_as_sure_as_that_of_the_losses(fed: Federation, run: Run) -> None:
    """By the log loss the t-values are the same, up to what keeps variances from zero."""
    other = glocal.fit("fedavg(lr=0.5)", fed, **{**GIVEN, "metric": "log_loss"})
    for mine, theirs in zip(run.clients, other.clients, strict=True):
        ratio = theirs["local_log_loss"] - theirs["log_loss"]
        assert np.sign(mine["benefit"]) == np.sign(ratio)
        logs = np.log(mine["local_perplexity"]) - np.log(mine["perplexity"])
        assert logs == pytest.approx(ratio, abs=1e-4)


def test_a_classifier_of_texts_is_saved_with_its_vocabulary(tmp_path: Path) -> None:
    texts = toys.texts()
    how = {"model": "bilstm(6, embedding=3, hidden=4)", "rounds": 2, "baseline": "none"}
    run = glocal.fit("fedper", texts, **how)
    client = run.client_model(run.clients[0]["client"])
    client.save(tmp_path / "model")
    again = glocal.load_model(tmp_path / "model")
    x = texts[0].test[0]
    torch.testing.assert_close(again.module(x), client.module(x))
    assert "vocabulary=5" in again.description.architecture


def test_perplexity_is_of_text(fed: Federation) -> None:
    from glocal.testing import ragged

    with pytest.raises(GlocalError, match="perplexity is no metric"):
        glocal.fit("fedavg", ragged(), rounds=1, metric="perplexity", baseline="none")
