"""``glocal.fit`` from outside: what it returns, what it repeats, what it refuses."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glocal
import toys
from glocal import engines
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.experiment import setup as place
from glocal.experiment.run import Run
from glocal.nn.augment import crop, flip
from glocal.testing import ragged

QUICK = "local(lr=0.1,max_epochs=3)"


def fit(method: Any = "fedavg", fed: Any = None, **settings: Any) -> Run:
    settings = {"model": "mlp(7)", "rounds": 2, "baseline": QUICK, **settings}
    return glocal.fit(method, ragged() if fed is None else fed, **settings)


def figures(run: Run) -> dict[str, Any]:
    return {k: v for k, v in run.summary.items() if isinstance(v, float | int)}


def test_same_seed_same_bits() -> None:
    place._BASELINES.clear()
    a = fit("fedprox", fraction=0.5)
    place._BASELINES.clear()
    b, other = fit("fedprox", fraction=0.5), fit("fedprox", fraction=0.5, seed=1)
    for name, leaf in a.model.items():
        assert torch.equal(leaf, b.model[name])
        assert not torch.equal(leaf, other.model[name])
    assert repr(list(a.clients)) == repr(list(b.clients))
    assert repr(a.summary) == repr(b.summary)
    assert a.history == b.history


@pytest.mark.parametrize("method", ["fedavg", "fedavg(shared=last(1))", "local(max_epochs=5)"])
def test_engines_agree(method: str) -> None:
    a, b = (fit(method, engine=e, rounds=3) for e in ("sequential", "vectorised"))
    assert (a.settings["engine"], b.settings["engine"]) == ("sequential", "vectorised")
    for name, leaf in a.model.items():
        torch.testing.assert_close(leaf, b.model[name], rtol=0, atol=1e-4)
    assert figures(a) == pytest.approx(figures(b), abs=1e-6)


def test_the_baseline_of_one_engine_is_not_used_for_the_other() -> None:
    place._BASELINES.clear()
    fit(engine="vectorised")
    fit(engine="sequential")
    assert len(place._BASELINES) == 2
    fit("fedprox", engine="sequential")
    assert len(place._BASELINES) == 2  # methods that are compared share it


def test_a_baseline_is_of_the_callers_own_functions() -> None:
    """Two functions made one after the other may well have the same address."""
    fed, settings = toys.images(), {"model": toys.group_norm_net(), "rounds": 1}
    place._BASELINES.clear()
    for augment in (crop, flip, crop, flip):
        fit(fed=fed, augment=augment(), **settings)
    assert len(place._BASELINES) == 4


def test_only_the_last_few_baselines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "KEPT", 3)
    place._BASELINES.clear()
    for seed in range(5):
        fit(seed=seed, rounds=1)
    assert len(place._BASELINES) == 3


def test_what_a_run_is() -> None:
    fed, seen = ragged(), []
    run = fit(fed=fed, rounds=3, validate_every=1, on_line=seen.append)
    assert run.method == "fedavg"
    assert [row["client"] for row in run.clients] == list(fed.names)
    assert run.clients["n_train"] == fed.train.counts().tolist()
    assert run.clients[2]["accuracy"] == run.clients["accuracy"][2]
    assert run.clients[0]["model"] == "global"
    size = 6 * 7 + 7 + 7 * 3 + 3
    s = run.summary
    assert (s["clients"], s["rounds"], s["repeats"], s["parameters"]) == (6, 3, 1, size)
    assert s["params_up"] == s["params_down"] == 3 * 6 * size
    assert s["better_off"] + s["worse_off"] + s["undecided"] == 6
    assert s["mean"] - s["local_mean"] == pytest.approx(s["benefit"])
    assert s["estimate"] == "own"  # clients' own ids say nothing of how they differ
    assert seen == run.history
    assert [line["round"] for line in seen] == [1, 2, 3]
    assert set(run.model) == {
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
    }
    assert run.states["ids"].tolist() == list(range(6))
    assert run.settings["engine"] == "vectorised"
    assert not run.is_baseline
    assert repr(run).startswith("<Run fedavg: mean accuracy 0.")
    assert "of 6>" in repr(run)
    words = ("better off", "worse off", "the same", "undecided")
    counts = [re.search(rf"(\d+) {word}", repr(run)) for word in words]
    assert sum(int(found[1]) for found in counts if found) == 6


def test_local_is_the_baseline_itself() -> None:
    run = fit(QUICK, name="alone")
    assert run.is_baseline
    assert run.method == "alone"
    assert run.clients["benefit"] == [0.0] * 6
    assert run.clients["accuracy"] == run.clients["local_accuracy"]
    assert (run.summary["params_up"], run.summary["params_down"], run.summary["ties"]) == (0, 0, 6)
    assert (run.model, run.history, run.summary["rounds"]) == ({}, [], 0)
    assert run.states["layers.0.weight"].shape == (6, 7, 6)
    assert fit(rounds=1).clients["local_accuracy"] == run.clients["accuracy"]


def test_repeats_are_on_other_splits_and_pool() -> None:
    fed, lines = ragged(), []
    runs = fit(fed=fed, repeats=2, on_line=lines.append)
    assert runs.summary["repeats"] == 2
    assert [(line["repeat"], line["round"]) for line in lines] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    once = fit(fed=fed)
    assert all(torch.equal(once.model[k], runs.model[k]) for k in once.model)  # of the first
    seed = rng.seed_of(rng.fold(rng.key(0), 1))
    again = fit(fed=fed.fold(1), seed=seed)
    mean = [
        (a + b) / 2
        for a, b in zip(once.clients["accuracy"], again.clients["accuracy"], strict=True)
    ]
    assert runs.clients["accuracy"] == pytest.approx(mean)
    assert math.isfinite(runs.summary["benefit"])


def test_sampling_settings() -> None:
    sizes = {
        "fraction": {line["cohort"] for line in fit(fraction=0.34, rounds=4).history},
        "sampled": {line["cohort"] for line in fit(sampled=4, rounds=4).history},
        "poisson": {line["cohort"] for line in fit(fraction=0.5, poisson=True, rounds=8).history},
    }
    assert sizes["fraction"] == {2}
    assert sizes["sampled"] == {4}
    assert len(sizes["poisson"]) > 1
    assert fit(sampled=2, poisson=True).settings["poisson"] is True


class Net(nn.Module):
    """Somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.body(x)))
        return logits


def test_a_users_module_and_a_function_that_builds_it() -> None:
    net = toys.seeded(Net)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    run = fit("fedavg(shared=head)", model=net)
    assert run.settings["model"] == "Net"
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(run.model["body.weight"], before["body.weight"])  # it never travels
    assert not torch.equal(run.model["head.weight"], before["head.weight"])
    assert set(run.states) == {"ids", "private", "inner"}
    state = torch.get_rng_state()
    built, again = fit(model=Net), fit(model=Net)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(built.model["head.bias"], again.model["head.bias"])
    assert not torch.equal(built.model["head.bias"], fit(model=Net, seed=1).model["head.bias"])


def test_a_users_lstm_and_dropout() -> None:
    run = fit(fed=toys.texts(), model=toys.recurrent())
    assert 0 <= run.summary["mean"] <= 1


def test_methods_plans_and_own_losses() -> None:
    assert fit(toys.own_model()).method == "method"
    run = fit(toys.two_stages(), rounds=4, name="lg")
    assert [line["stage"] for line in run.history] == ["train", "train", "lg", "lg"]
    run = fit(toys.two_candidates(), rounds=3)
    assert set(run.clients["model"]) <= {"global", "own"}

    def half(logits: Tensor, y: Tensor) -> Tensor:
        return 0.5 * nn.functional.cross_entropy(logits, y, reduction="none")

    plain, halved = fit("fedavg(lr=0.1)"), fit("fedavg(lr=0.2)", losses=half)
    for name, leaf in plain.model.items():
        torch.testing.assert_close(halved.model[name], leaf, rtol=0, atol=1e-5)


def test_weights_to_start_from(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    start = tree.map(lambda x: torch.full_like(x, 0.1), fit(rounds=1).model)
    run = fit("fedavg(lr=1e-30)", init=start)
    for name, leaf in run.model.items():
        torch.testing.assert_close(leaf, start[name])
    save_file(start, tmp_path / "start.safetensors")
    for path in (tmp_path / "start.safetensors", str(tmp_path / "start.safetensors")):
        again = fit("fedavg(lr=1e-30)", init=path)
        assert all(torch.equal(again.model[k], run.model[k]) for k in start)


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    place._BASELINES.clear()
    fit(progress=lambda *what: seen.append(what))
    assert ("alone", 3, 3) in seen
    assert seen[-2:] == [("fedavg", 1, 2), ("fedavg", 2, 2)]


def test_a_pooled_estimate_where_labels_alone_differ() -> None:
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    fed = glocal.federation(x, x[:, :3].argmax(1), clients=4, partition="dirichlet(1.0)")
    run = fit(fed=fed, rounds=3)
    assert run.summary["estimate"] == "pooled"
    words = {"better_off", "worse_off", "same", "undecided"}
    assert set(run.summary["own"]) == {"mean", "local_mean", *words}
    assert all(0 <= a <= 1 for a in run.clients["accuracy"] + run.clients["own_accuracy"])


GOOD = {
    k: torch.zeros(s)
    for k, s in {
        "body.weight": (4, 6),
        "body.bias": (4,),
        "head.weight": (3, 4),
        "head.bias": (3,),
    }.items()
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds must be an integer of 1 or more, not 0"),
        ({"rounds": 2.5}, "rounds must be an integer, not 2.5"),
        ({"rounds": True}, "rounds must be an integer, not True"),
        ({"repeats": 0}, "repeats must be an integer of 1 or more"),
        ({"fraction": 0}, "fraction must be above 0 and up to 1"),
        ({"fraction": 1.5}, "fraction must be above 0 and up to 1"),
        ({"sampled": 0}, "sampled must be an integer of 1 or more"),
        ({"sampled": 7}, "7 clients a round cannot be drawn from 6"),
        ({"poisson": True, "fraction": 0}, "rate must be above 0"),
        ({"device": "cuda"}, "there is no CUDA device here: use device='cpu'"),
        ({"device": "abacus"}, "unknown device 'abacus': use 'cpu' or 'cuda'"),
        ({"engine": "fast"}, "unknown engine 'fast'"),
        ({"method": "fedavgg"}, "unknown method 'fedavgg': did you mean 'fedavg'"),
        ({"model": "mpl"}, "unknown model 'mpl': did you mean 'mlp'"),
        ({"model": 3}, "model must be a name such as 'mlp'.*not int"),
        ({"model": lambda: 3}, "model must be a name.*not function"),
        ({"model": nn.Linear(6, 2)}, "it must return one score for every class"),
        ({"model": nn.Linear(5, 3)}, "the shape and type of the data"),
        ({"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))}, "use nn.GroupNorm"),
        ({"baseline": "fedavg"}, "the baseline must be same, best, none, or local with settings"),
        ({"baseline": "knn"}, "the baseline must be same, best, none, or local with settings"),
        ({"baseline": "local(lr=0"}, "lr"),
        ({"same": -1}, "same must be 0 or more, not -1"),
        ({"same": 2}, "same is a share, which must be below 1, not 2: 2 points are 0.02"),
        ({"metric": "ece", "same": -0.1}, "same must be 0 or more, not -0.1"),
        ({"join_cost": -0.5}, "join_cost must be 0 or more, not -0.5"),
        ({"personalise_cost": -1}, "personalise_cost must be 0 or more, not -1"),
        ({"init": {}}, "missing .'layers.0.bias'.*unknown nothing"),
        (
            {"init": {**GOOD, "x": torch.zeros(1)}, "model": Net},
            r"missing nothing, unknown \['x'\]",
        ),
        (
            {"init": {**GOOD, "head.bias": torch.zeros(2)}, "model": Net},
            r"head.bias has shape \(2,\), and the model needs \(3,\)",
        ),
        ({"init": "nowhere.safetensors"}, "weights in 'nowhere.safetensors' cannot be read"),
    ],
)
def test_what_is_refused(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GlocalError, match=message):
        fit(**settings)


def test_a_model_that_cannot_be_vectorised_runs_one_client_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Item(Net):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = super().forward(x)
            return out * (1 + 0 * out.max().item())

    with pytest.raises(GlocalError, match=r"\(Item\) cannot train for many clients at once"):
        fit(model=Item())
    assert fit(model=Item(), engine="sequential").summary["clients"] == 6
    monkeypatch.setattr(engines, "DENSE_LIMIT", 1)  # large ones anyway, however long the run
    assert fit(model=Item()).summary["clients"] == 6
