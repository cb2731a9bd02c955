"""On a Ray cluster: the bits of the sequential engine, also where workers are lost.

Needs ``glocal[ray]``; part of ``make test-deploy``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from glocal.core import tree
from glocal.core.errors import ClientError, GlocalError
from glocal.engines import Cluster, cluster
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method
from glocal.testing import ragged

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("ignore")]

SETTINGS: dict[str, Any] = {
    "model": "mlp(7)",
    "rounds": 2,
    "fraction": 0.7,
    "baseline": "none",
    "progress": False,
    "public_noise": True,
}


@pytest.fixture(scope="module")
def team() -> Iterator[Cluster]:
    ray = pytest.importorskip("ray")
    paths = [str(Path(glocal.__file__).parents[1]), str(Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    yield Cluster(2)
    ray.shutdown()


def assert_same(ours: glocal.Run, theirs: glocal.Run) -> None:
    for name, w in theirs.model.items():
        assert torch.equal(ours.model[name], w), name
    kept = dict(tree.flatten(theirs.states))
    for name, x in tree.flatten(ours.states):
        assert torch.equal(x, kept[name]), name


@pytest.mark.parametrize("spec", ["ditto+dp(noise=0.3)", "q-fedavg", "fedavg+dp-sgd(noise=0.3)"])
def test_a_cluster_has_the_bits_of_the_sequential_engine(team: Cluster, spec: str) -> None:
    ours = glocal.fit(spec, ragged(), engine=team, **SETTINGS)
    theirs = glocal.fit(spec, ragged(), engine="sequential", **SETTINGS)
    assert ours.settings["engine"] == "ray"
    assert_same(ours, theirs)


def dying(flag: Path, times: int = 1) -> Method:
    """FedAvg, but in its first step on a worker the process is killed, so many times."""
    base, here = minibatch_training(), os.getpid()

    def step(task: Any, down: Any, carry: Any, batch: Any, key: Any) -> Any:
        killed = len(list(flag.parent.glob(f"{flag.name}*")))
        if os.getpid() != here and killed < times:
            flag.with_name(f"{flag.name}{killed}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return base.step(task, down, carry, batch, key)

    return Method(local=base.replace(step=step))


def test_a_worker_that_is_killed_mid_round_leaves_no_trace(team: Cluster, tmp_path: Path) -> None:
    ours = glocal.fit(dying(tmp_path / "killed"), ragged(), engine=team, **SETTINGS)
    assert len(list(tmp_path.iterdir())) == 1
    assert_same(ours, glocal.fit("fedavg(epochs=1)", ragged(), engine="sequential", **SETTINGS))


def test_clients_with_whom_every_worker_is_lost_are_an_error(team: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="3 workers of the cluster were lost with the same"):
        glocal.fit(dying(tmp_path / "killed", 99), ragged(), engine=team, **SETTINGS)


def test_an_error_of_a_client_comes_back_as_it_is(team: Cluster) -> None:
    base = minibatch_training()

    def step(task: Any, down: Any, carry: Any, batch: Any, key: Any) -> Any:
        raise ValueError("that will not do")

    method = Method(local=base.replace(step=step))
    with pytest.raises(ClientError, match=r"client 0 failed at train, step 0: ValueError: that"):
        glocal.fit(method, ragged(), engine=team, **{**SETTINGS, "fraction": 1.0})


def test_engines_of_one_process_share_the_cores(team: Cluster) -> None:
    theirs = glocal.fit("fedavg", ragged(), engine="sequential", **SETTINGS)
    engines = [Cluster(1), Cluster(2), "ray", Cluster(9)]  # together more than there are
    for engine in engines:
        assert_same(glocal.fit("fedavg", ragged(), engine=engine, **SETTINGS), theirs)


def test_where_others_have_all_cores_one_sentence(
    team: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.close()
    monkeypatch.setattr(cluster, "_free", lambda ray: 0)
    monkeypatch.setattr(cluster, "WAITS", 1)
    with pytest.raises(GlocalError, match="all cores of the Ray cluster are taken by other"):
        glocal.fit("fedavg", ragged(), engine=team, **SETTINGS)


def test_methods_and_repeats_on_a_cluster(team: Cluster) -> None:
    glocal.fit("fedavg", ragged(), engine=team, **SETTINGS)  # whose workers have all cores
    given = {**SETTINGS, "engine": "sequential", "repeats": 2, "baseline": "local(max_epochs=2)"}
    lines: list[str] = []
    ours = glocal.compare(
        ["fedavg", "ditto"], ragged(), jobs="ray", on_line=lambda n, _: lines.append(n), **given
    )
    theirs = glocal.compare(["fedavg", "ditto"], ragged(), jobs=1, **given)
    for name in ("fedavg", "ditto"):
        assert_same(ours[name], theirs[name])
        assert ours[name].summary["mean"] == theirs[name].summary["mean"]
    assert {"fedavg", "ditto"} <= set(lines)


def test_without_ray_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GlocalError, match=r"needs Ray, which is not installed: pip install"):
        glocal.fit("fedavg", ragged(), engine="ray")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"])
def test_where_no_cluster_is_one_sentence(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(GlocalError, match=f"no Ray cluster at '{address}' .*ray start --head"):
        glocal.fit("fedavg", ragged(), engine="ray")
