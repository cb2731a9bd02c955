"""The secret of a private run: who has the seed and the folder cannot draw its noise again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
from glocal.core import secret, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.engines import Sequential
from glocal.experiment.config import Config
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.runs import job
from glocal.runs.restore import restore
from glocal.slots.method import as_plan
from glocal.slots.privacy import dp
from glocal.testing import ragged
from glocal.training import secret_draws
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import REDUCE, Training
from glocal.training.resumed import run_rounds
from glocal.training.sampling import Fixed, Poisson, Sampler
from glocal.training.side_by_side import LaneGroup

SPEC = "dp(clip=0.5,noise=2.0)"
SMALL: dict[str, Any] = {
    "clients": 6,
    "model": "mlp(4)",
    "rounds": 1,
    "baseline": "none",
    "checkpoint_every": 1,
    "partition": "iid",
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The secrets that trainings begin with."""
    keys: list[Tensor] = []
    fresh = secret.fresh

    def noted() -> Tensor:
        keys.append(fresh())
        return keys[-1]

    monkeypatch.setattr(secret, "fresh", noted)
    return keys


def training(spec: str = SPEC, sampler: Sampler | None = None, **settings: Any) -> Training:
    task = Task(models.build("mlp(7)", input_shape=(6,), classes=3))
    plan, sampler = as_plan(resolve(spec)), sampler or Fixed(3)
    given = {"rounds": 4, "seed": 0, **settings}
    return Training(plan, task, ragged(), Sequential(), sampler, **given)


def without_noise(model: Params, key: Tensor, t: Training) -> Params:
    """What is left of a model of one round, if its noise came from this key."""
    privacy = t.plan.stages[0].method.privacy
    assert privacy is not None
    of_round = secret.fold(key, REDUCE, 0, 1)
    zeros = tree.zeros(model)
    noise, _ = privacy.server(privacy.init(t.setting), zeros, {}, t.setting, of_round)
    return tree.sub(model, noise)


def far(a: Params, b: Params) -> float:
    return float(tree.sq_norm(tree.sub(a, b)).sqrt())


@pytest.mark.usefixtures("few_digits")
def test_the_seed_and_the_folder_do_not_take_the_noise_off(
    tmp_path: Path, drawn: list[Tensor]
) -> None:
    """With the secret it comes off to rounding: so the attack is one that works."""
    models_of = {}
    for name, spec, public in (
        ("secret", SPEC, False),
        ("public", SPEC, True),
        ("quiet", "dp(clip=0.5,noise=0)", True),
    ):
        config = Config(**SMALL, public_noise=public)
        job.train(job.new([spec], config, tmp_path / name, "run"))
        models_of[name] = restore(tmp_path / name)[0].trained.progress.server["params"]
    t = restore(tmp_path / "secret")[0].trained.training
    assert t.seed == 0  # in settings.toml, for everybody to see
    quiet, of_seed = models_of["quiet"], secret.of_seed(t.seed)
    noise = far(models_of["secret"], quiet)
    assert noise > 1
    assert far(without_noise(models_of["secret"], drawn[0], t), quiet) < 1e-4 * noise
    assert far(without_noise(models_of["public"], of_seed, t), quiet) < 1e-4 * noise
    assert far(without_noise(models_of["secret"], of_seed, t), quiet) > 0.5 * noise
    raw = drawn[0].numpy().tobytes()
    for file in (tmp_path / "secret").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not any(raw[i : i + 8] in content for i in (0, 8, 16, 24)), file
        assert not any(str(int(word)).encode() in content for word in drawn[0]), file


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_run_that_was_stopped_ends_with_the_same_bits_and_no_secret(
    tmp_path: Path, drawn: list[Tensor], lanes: int
) -> None:
    several = [training(sampler=Poisson(0.5), seed=r) for r in range(lanes)]

    def run(folder: Path, rounds: int = 9) -> list[Any]:
        seen: list[int] = []
        policy = CheckpointPolicy(folder, every=1, stop=lambda: len(seen) >= rounds * lanes)
        keeper = policy.rounds(0, "it", lanes - 1)
        group = LaneGroup.of(several)
        return run_rounds(group, lambda r, *_: seen.append(r), keeper)

    def bytes_in(folder: Path) -> bytes:
        return b"".join(f.read_bytes() for f in sorted(folder.rglob("*.safetensors")))

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 2)
    keys = list(drawn)
    words = [key.numpy().tobytes() for key in keys]
    assert len(words) == lanes
    assert all(word in bytes_in(tmp_path) for word in words)
    resumed = run(tmp_path)
    assert len(drawn) == lanes  # nobody drew another
    assert not any(word in bytes_in(tmp_path) for word in words)
    for t, end, key in zip(several, resumed, keys, strict=True):
        whole = t.begin(t.task.params)
        whole.secret = key
        want = t.run(whole).server
        assert all(
            torch.equal(end.progress.server["params"][k], w) for k, w in want["params"].items()
        )
        assert end.progress.secret is None
    again = run(tmp_path)  # of what is over, nothing is drawn
    assert far(again[0].progress.server["params"], resumed[0].progress.server["params"]) == 0


def test_cohorts_are_secret_where_the_accountant_relies_on_them() -> None:
    def cohorts(t: Training) -> list[list[int]]:
        progress = t.begin(t.task.params)
        return [t.cohort(progress, r).tolist() for r in range(20)]

    hidden, shown = training(sampler=Poisson(0.5)), training("fedavg", sampler=Poisson(0.5))
    public = replace(hidden, public_noise=True)
    assert cohorts(shown) == cohorts(shown) == cohorts(public)
    assert cohorts(hidden) != cohorts(shown)
    assert cohorts(hidden) != cohorts(hidden)


def test_each_client_has_its_own_noise_where_it_is_local(drawn: list[Tensor]) -> None:
    """None of it is another's, none is the server's, and none comes again in a later round."""
    private = dp(noise=1.0, where="local")
    state = {"clip": torch.tensor(1.0)}
    key = secret.fresh()
    sent = [
        private.client(state, {"w": torch.zeros(50)}, secret.fold(key, REDUCE, t, 0, i))[0]["w"]
        for t in (0, 1)
        for i in (0, 1, 2)
    ]
    correlated = torch.corrcoef(torch.stack(sent)) - torch.eye(6)
    assert float(correlated.abs().max()) < 0.6


def fit(**settings: Any) -> glocal.Run:
    return glocal.fit(SPEC, ragged(), model="mlp(4)", rounds=2, baseline="none", **settings)


def test_the_same_seed_is_another_run_unless_the_noise_is_public() -> None:
    first, second, public, again = fit(), fit(), fit(public_noise=True), fit(public_noise=True)
    assert far(first.model, second.model) > 0.1
    assert far(public.model, again.model) == 0
    assert first.summary["privacy"]["noise_key"] == "secret"
    assert public.summary["privacy"]["noise_key"] == "seed"
    assert public.settings["public_noise"] is True
    from glocal.slots.privacy import in_words

    assert "whoever has the seed can take it off" in in_words(public.summary["privacy"])
    assert "seed" not in in_words(first.summary["privacy"])


def test_what_is_over_cannot_be_trained_further() -> None:
    t = training()
    progress = t.begin(t.task.params)
    secret_draws.forget(progress)
    with pytest.raises(
        GlocalError, match="secret key, from which privacy draws its noise, is gone"
    ):
        t.one_round(progress)
    plain = training("fedavg")
    assert plain.begin(plain.task.params).secret is None
