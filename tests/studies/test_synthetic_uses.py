"""What synthetic data is good for: limits, who is touched, and the command from a run's folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import Tensor

from conftest import Command
from glocal.cli import app as cli
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.data.federation import federation
from glocal.evaluation.evaluate import Outcome
from glocal.experiment import setup as setups
from glocal.experiment.adaptation import distill, ewc
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.experiment.setup import Setup
from glocal.experiment.setup import baseline as alone_of
from glocal.studies import synthetic_uses as uses
from glocal.training.loop import Training

ALONE = "local(lr=0.1, max_epochs=3)"


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return (x[:n] / 16).astype("float32").reshape(-1, 1, 8, 8), y[:n]


@pytest.fixture(scope="module")
def order() -> Config:
    return Config(model="mlp(8)", rounds=2, baseline=ALONE)


@pytest.fixture(scope="module")
def here(order: Config) -> Setup:
    """Five clients with 20 to 100 digits; the first two never saw half of the classes."""
    x, y = digits(300)
    ids = np.repeat(np.arange(5), [20, 40, 60, 80, 100])
    few = np.concatenate([np.flatnonzero(y < 5)[:60], np.flatnonzero(y >= 5)])
    rows = np.concatenate([few, np.setdiff1d(np.arange(300), few)])
    return setups.make(order, federation(x[rows], y[rows], ids), 0)


@pytest.fixture(scope="module")
def training(order: Config, here: Setup) -> Training:
    return runner_of("method", "fedavg(lr=0.1)").check(here)


@pytest.fixture(scope="module")
def made() -> tuple[Tensor, Tensor]:
    """Digits that no client has."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x[1000:1060] / 16).float().view(-1, 1, 8, 8), torch.tensor(y[1000:1060])


@pytest.fixture(scope="module")
def given(training: Training) -> dict[str, Tensor]:
    return uses.warm_start(training, training.task.params).cold.models()


NOTHING = torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64)


def same(a: Outcome, b: Outcome) -> bool:
    return a.metrics == b.metrics and all(map(torch.equal, a.own, b.own))


def test_a_warm_start_from_the_usual_start_is_a_cold_one(training: Training) -> None:
    found = uses.warm_start(training, training.task.params, more=1)
    assert list(found.after) == [1, 2]
    assert all(same(use.without, use.with_it) for use in found.after.values())
    assert found.longer is not None
    assert found.longer.with_it is found.after[2].with_it
    assert not same(found.longer.without, found.longer.with_it), "a round more changes nothing?"


def test_the_first_round_starts_at_what_was_trained_on_the_examples(
    training: Training, made: tuple[Tensor, Tensor]
) -> None:
    begin = uses.start(training, *made)
    found = uses.warm_start(training, begin)
    by_hand = training.begin(begin)
    assert all(torch.equal(by_hand.server["params"][k], begin[k]) for k in begin)
    training.one_round(by_hand)
    from glocal.experiment.repeat import Trained, evaluate_trained

    assert same(
        evaluate_trained(Trained(training, by_hand), training.fed)[0], found.after[1].with_it
    )
    assert found.after[1].clients == tuple(range(5))
    alone = found.after[1].without
    figures = uses.figures(training.fed, found.after[1], alone)
    assert figures["after"] > figures["before"] + 0.1, "60 real digits are no head start?"
    assert figures["verdict"] == "better"
    assert figures["better_off"][0] == figures["worse_off"][0] == 0  # set against itself
    assert figures["better_off"][1] == figures["better"] > 0
    assert figures["worse_off"][1] == figures["worse"] == 0


def test_without_a_pull_it_does_not_matter_whose_fisher_it_is(
    here: Setup, given: dict[str, Tensor], made: tuple[Tensor, Tensor]
) -> None:
    quick: dict[str, Any] = {"lr": 0.1, "max_epochs": 2}
    none = uses.with_public_fisher(here, given, *made, lam=0.0, **quick)
    assert same(none.without, none.with_it)
    some = uses.with_public_fisher(here, given, *made, lam=100.0, **quick)
    assert not same(some.without, some.with_it)
    where, given_to = (here.task, here.fed, here.engine), partial(tree.row, given)
    own = adapt_clients(*where, [ewc(100.0, fisher="own", **quick)], given_to, here.seed)
    assert same(some.without, own.outcome)
    public = adapt_clients(
        *where, [ewc(100.0, fisher="public", **quick)], given_to, here.seed, public=made
    )
    assert same(some.with_it, public.outcome)


def test_distillation_on_no_examples_is_the_plain_one(
    here: Setup, given: dict[str, Tensor], made: tuple[Tensor, Tensor]
) -> None:
    quick: dict[str, Any] = {"lr": 0.1, "max_epochs": 2}
    none = uses.distilled(here, given, *NOTHING, **quick)
    assert same(none.without, none.with_it)
    some = uses.distilled(here, given, *made, **quick)
    assert not same(some.without, some.with_it)
    given_to = partial(tree.row, given)
    plain = adapt_clients(here.task, here.fed, here.engine, [distill(**quick)], given_to, here.seed)
    assert same(some.without, plain.outcome)


def test_filling_up_touches_training_data_of_the_chosen_alone(
    here: Setup, made: tuple[Tensor, Tensor]
) -> None:
    fed, (x, y) = here.fed, made
    more = uses.filled(fed, x, y, (0, 3))
    for k in range(5):
        before, now = fed[k], more[k]
        for part in ("val", "test"):
            assert all(map(torch.equal, getattr(before, part), getattr(now, part)))
        fits = torch.isin(y, before.train[1]) & (k in (0, 3))
        assert torch.equal(now.train[0], torch.cat([before.train[0], x[fits]]))
        assert torch.equal(now.train[1], torch.cat([before.train[1], y[fits]]))
    assert len(more[0].train[1]) < len(fed[0].train[1]) + len(y), "it has all classes"
    everything = uses.filled(fed, x, y, (0, 3), "all").train.counts() - fed.train.counts()
    assert everything.tolist() == [60, 0, 0, 60, 0]
    assert more.fingerprint != fed.fingerprint
    assert more.fold(1) is more, "elsewhere what was trained on would be tested"
    with pytest.raises(GlocalError, match="unknown choice of classes 'some'"):
        uses.filled(fed, x, y, (0,), "some")
    with pytest.raises(GlocalError, match="no client 5 among 5"):
        uses.filled(fed, x, y, (5,))


def test_the_poor_are_those_below_the_median(here: Setup) -> None:
    assert uses.poor(here.fed) == (0, 1)
    x, y = digits(100)
    assert uses.poor(federation(x, y, np.repeat(np.arange(4), 25))) == ()


def test_filling_up_with_nothing_is_being_alone(here: Setup, made: tuple[Tensor, Tensor]) -> None:
    alone = alone_of(ALONE)
    none = uses.fill_up(here, alone, *NOTHING)
    assert none.clients == (0, 1)
    assert same(none.without, none.with_it)
    assert uses.figures(here.fed, none, none.without)["verdict"] == "not shown"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uses, "poor", lambda fed: ())
        nobody = uses.fill_up(here, alone, *made)
    assert same(nobody.without, nobody.with_it)
    assert uses.figures(here.fed, nobody, none.without) == {"clients": []}
    some = uses.fill_up(here, alone, *made)
    assert [torch.equal(a, b) for a, b in zip(some.without.own, some.with_it.own, strict=True)][
        2:
    ] == [True] * 3
    assert some.with_it.metrics["cross_entropy"][0] != some.without.metrics["cross_entropy"][0]
    assert some.with_it.metrics["cross_entropy"][2:] == some.without.metrics["cross_entropy"][2:]
    found = uses.figures(here.fed, some, none.without)
    assert found["clients"] == ["0", "1"]
    for k, row in enumerate(found["each"]):
        assert row["with"] == pytest.approx(float(some.with_it.own[k].mean()))
        assert row["without"] == pytest.approx(float(some.without.own[k].mean()))
        assert row["n_train"] == len(here.fed.train.of(k))


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.1, 0.2, "better"),
        (-0.2, -0.1, "worse"),
        (-0.1, 0.1, "not shown"),
        (None, None, "not shown"),
    ],
)
def test_the_word_is_the_interval_s(low: float | None, high: float | None, says: str) -> None:
    assert uses.verdict({"low": low, "high": high}) == says


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of fedevg and fedavg on 200 digits among five clients."""
    place = tmp_path_factory.mktemp("runs")
    x, y = digits(200)
    np.savez(place / "small.npz", x=x, y=y)
    words = ["compare", "fedevg(steps=2,spc=2)", "fedavg", "--data", str(place / "small.npz")]
    words += ["--repeats", "1", "--no-tune"]
    words += ["--clients", "5", "--model", "mlp(8)", "--rounds", "2", "--baseline", ALONE]
    words += ["--jobs", "1", "--partition", "dirichlet(0.3)"]  # no worker has to start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["glocal", *words, "--out", str(place / "both")])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert stop.value.code == 0
    return place / "both"


@pytest.fixture
def folder(compared: Path, tmp_path: Path) -> Path:
    """A copy of the run of fedevg, to be spoilt."""
    (one,) = compared.glob("fedevg*")
    return Path(shutil.copytree(one, tmp_path / "run"))


def test_the_command_prints_and_writes(command: Command, folder: Path, compared: Path) -> None:
    words = ["--rounds", "2", "--uses", "fill-up+warm-start", "--json", "found.json"]
    code, out, err = command("synthetic", str(folder), *words)
    assert (code, err) == (0, "")
    found = json.loads(Path("found.json").read_text())
    names = ["after round 1", "after round 2", "against 4 rounds"]
    assert list(found["uses"]) == [*(f"warm start: {n}" for n in names), "fill up: own classes"]
    text = " ".join(out.split())
    for name, use in found["uses"].items():
        shown = f"{name} {len(use['clients'])} {100 * use['before']:.1f} {100 * use['after']:.1f}"
        assert shown in text
        assert use["verdict"] in ("better", "worse", "not shown")
    assert "one seed (0)" in text
    assert found["made"] | {"params_up": 0} == {
        "examples": 20, "rounds": 2, "repeats": 1, "attack": None, "params_up": 0
    }  # fmt: skip
    first = found["uses"]["warm start: after round 1"]
    # A folder of a comparison with one such run is as good; another seed trains otherwise.
    words = [str(compared), "--rounds", "1", "--uses", "warm-start", "--json", "-"]
    again = json.loads(command("synthetic", *words)[1])["uses"]["warm start: after round 1"]
    assert again == first
    other = json.loads(command("synthetic", *words, "--seed", "1")[1])
    assert other["uses"]["warm start: after round 1"] != first
    assert other["settings"]["seed"] == 1


def test_every_use_is_tried_by_default(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick: dict[str, Any] = {"max_epochs": 1, "lr": 0.1}
    monkeypatch.setattr(uses, "ewc", lambda **k: ewc(**k, **quick))
    monkeypatch.setattr(uses, "distill", lambda **k: distill(**k, **quick))
    code, out, err = command("synthetic", str(folder), "--rounds", "1", "--fill", "all")
    assert (code, err) == (0, "")
    for row in ("warm start: after round 1", "Fisher of ewc", "distillation", "fill up: all"):
        assert row in out
    assert "all of them" in " ".join(out.split())
    assert "after 1 round. Fisher" in " ".join(out.split())


def spoilt(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Callable[[Path], None]:
    return lambda f: save_file(change(load_file(f)), f)


SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "has no synthetic.safetensors: train it again with 'glocal run"),
    (lambda f: f.write_bytes(b"\xff" * 100), "cannot be read"),
    (lambda f: f.write_bytes(b""), "cannot be read"),
    (spoilt(lambda t: {"x": t["x"]}), "has no examples"),
    (spoilt(lambda t: {k: v[:0].clone() for k, v in t.items()}), "has no examples"),
    (spoilt(lambda t: {**t, "y": t["y"][:5].clone()}), "y is 5, and an example of the clients is"),
    (spoilt(lambda t: {**t, "x": t["x"].flatten(1).contiguous()}), "does not fit the data"),
    (spoilt(lambda t: {**t, "y": t["y"] + 1}), "labels from 0 to 9"),
    (spoilt(lambda t: {**t, "y": t["y"] - 1}), "labels from 0 to 9"),
    (spoilt(lambda t: {**t, "y": t["y"].float()}), "labels from 0 to 9"),
    (spoilt(lambda t: {**t, "x": t["x"].long()}), "must be floating-point numbers"),
    (spoilt(lambda t: {**t, "x": t["x"].to(torch.float8_e5m2)}), "must be floating-point"),
    (spoilt(lambda t: {**t, "x": t["x"] * torch.nan}), "NaN or infinite"),
    (spoilt(lambda t: {**t, "x": t["x"].double() + 1e300}), "NaN or infinite"),
]


@pytest.mark.parametrize(("spoil", "says"), SPOILT, ids=[s[:24] for _, s in SPOILT])
def test_hostile_examples_are_one_clear_line(
    command: Command, folder: Path, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(folder / "synthetic.safetensors")
    code, out, err = command("synthetic", str(folder), "--uses", "fill-up")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["fedavg"], "is of fedavg, which makes no synthetic data"),
        (["run", "--uses", "warmstart"], "did you mean 'warm-start'"),
        (["run", "--rounds", "0"], "rounds must be an integer of 1 or more, not 0"),
        (["run", "--fill", "some"], "unknown --fill 'some'"),
        (["run", "--seed", "-1"], "seed must be an integer"),
        (["run", "--json", "."], "is a folder"),
    ],
)
def test_bad_input_is_one_clear_line(
    command: Command, folder: Path, compared: Path, words: list[str], says: str
) -> None:
    shutil.copytree(compared / "fedavg", "fedavg")
    code, out, err = command("synthetic", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_two_such_runs_and_other_data_are_refused(
    command: Command, folder: Path, compared: Path
) -> None:
    both = Path(shutil.copytree(compared, "both"))
    shutil.copytree(folder, both / "other")
    assert "several runs in both made synthetic data" in command("synthetic", "both")[2]
    settings = folder / "settings.toml"
    text = settings.read_text()
    settings.write_text(text.replace("clients = 5", "clients = 4", 1))
    code, _, err = command("synthetic", str(folder))
    assert code == 2
    assert "has changed since (its fingerprint was" in err


def test_clients_adapt_with_a_public_file(command: Command, folder: Path, compared: Path) -> None:
    """The command hands the very examples on: the figures are those of the same call in Python."""
    from glocal.core.progress import silent
    from glocal.runs.restore import restore
    from glocal.studies.adaptation import adapted

    by, file = "ewc(100, fisher=public, lr=0.1, max_epochs=2)", folder / "synthetic.safetensors"
    fedavg = str(compared / "fedavg")
    code, out, err = command("adapt", fedavg, "--by", by, "--public", str(file), "--json", "-")
    assert (code, err) == (0, "")
    (one,) = restore(compared / "fedavg")
    kept = load_file(file)
    want = adapted(one, by, silent, public=(kept["x"], kept["y"]))
    got = json.loads(out)["methods"]["fedavg"]["clients"]
    assert [row["adapted_accuracy"] for row in got] == want.clients["adapted_accuracy"]
    assert [row["cross_entropy"] for row in got] == want.clients["cross_entropy"]
    says = {
        ("--by", by): "give a file of examples with --public",
        ("--by", "ewc", "--public", str(file)): "--public is for ewc(fisher=public)",
        ("--by", by, "--public", "nothing.safetensors"): "cannot be read",
        ("--by", by, "--public", str(folder)): f"is a folder, and examples are in a file: give the "
        f"file in it, {file}.",
        ("--by", by, "--public", "."): "examples are in a file: give a .safetensors file.",
    }
    for words, sentence in says.items():
        code, out, err = command("adapt", fedavg, *words)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
