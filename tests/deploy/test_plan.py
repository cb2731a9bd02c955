"""Plans: what is agreed on, what is refused, and that a change of it is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from deploy.federations import SETTINGS, Deployment, nine_clients
from glocal.core import checksums
from glocal.core.errors import GlocalError
from glocal.core.tensor_files import save_tensors
from glocal.deploy import wire
from glocal.deploy.node import Node
from glocal.deploy.plan import DataSchema, DeployPlan
from glocal.experiment.config_reading import from_arguments


def plan(method: str = "fedavg", **settings: Any) -> DeployPlan:
    config = from_arguments({**SETTINGS, **settings})
    return DeployPlan(method, config, DataSchema.of(nine_clients()))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"attack": "sign-flip(share=0.2)"}, "attacks are for simulations"),
        ({"engine": "ray"}, "ray sends them to a cluster"),
        ({"new_test": True}, "no test set is shared between nodes"),
        ({"repeats": 2}, "trains once"),
        ({"tune": True}, "rates are chosen in simulations"),
        ({"public_noise": True}, "could be taken off"),
        ({"baseline": "best"}, "train the same model alone"),
        ({"adapt": "ewc(fisher=union)"}, "use fisher=own"),
        ({"model": torch.nn.Linear(6, 3)}, "a plan is text"),
    ],
)
def test_what_is_for_simulations_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(GlocalError, match=why):
        plan(**settings)


def test_a_method_that_sends_nothing_is_refused() -> None:
    with pytest.raises(GlocalError, match="nothing to deploy"):
        _ = plan("local").runner


def test_a_plan_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    written = plan("ditto(lam=0.5)", rounds=7)
    written.write(tmp_path / "plan.json")
    read = DeployPlan.read(tmp_path / "plan.json")
    assert read == written
    assert read.digest == written.digest


def test_every_change_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan()
    others = [
        plan("fedavg(lr=0.2)"),
        plan(rounds=4),
        plan(model="mlp(9)"),
        plan(seed=1),
        replace(first, results=False),
        replace(first, schema=replace(first.schema, label_words={"a": 0, "b": 1, "c": 2})),
    ]
    digests = {first.digest, *(other.digest for other in others)}
    assert len(digests) == 7
    monkeypatch.setattr(checksums, "of_package", lambda: "other code")
    assert plan().digest not in digests


def test_own_files_are_in_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("net.py")
    file.write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(6, 3)\n")
    before = plan(model="net.py:net").digest
    assert plan(model="net.py:net").digest == before
    file.write_text(file.read_text() + "# changed\n")
    assert plan(model="net.py:net").digest != before
    alone = Path("alone.py")
    alone.write_text(
        "from glocal.methods.specs import resolve\n\n\ndef alone():\n    return resolve('local')\n"
    )
    before = plan(baseline="alone.py:alone").digest
    alone.write_text(alone.read_text() + "# changed\n")
    assert plan(baseline="alone.py:alone").digest != before


def test_weights_to_begin_with_are_the_servers(tmp_path: Path) -> None:
    """Nodes need not have the file: the server sends what is in it."""
    fed, path = nine_clients(), tmp_path / "begin.safetensors"
    begun = plan(init=str(path), rounds=1)
    begun.setup(fed)
    with pytest.raises(GlocalError, match="cannot be read"):
        begun.setup(fed, server=True)
    save_tensors(path, {k: v + 1 for k, v in begun.setup(fed).task.params.items()})
    served = Deployment.of("fedavg", tmp_path, init=str(path), rounds=1).serve()
    wanted = glocal.fit("fedavg", fed, **{**SETTINGS, "rounds": 1, "init": str(path)})
    for name, leaf in wanted.model.items():
        assert torch.equal(served.model[name], leaf)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 99}', "\xff"])
def test_a_file_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(GlocalError):
        DeployPlan.read(path)


def test_a_node_refuses_another_plan(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path)
    changed = replace(deployed, plan=replace(deployed.plan, method="fedavg(lr=0.2)"))
    with pytest.raises(GlocalError, match="cannot join: another plan"):
        changed.serve()
    node = deployed.nodes["node0"]
    for content in (b"junk", wire.encode(wire.Message("trained", {"plan": node.plan.digest}))):
        assert wire.decode(node.answer(content)).facts == {"code": "unreadable"}


def test_data_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    x = torch.zeros(30, 5)
    narrow = glocal.federation(x, torch.arange(30) % 3, torch.arange(30) // 15)
    with pytest.raises(GlocalError, match=r"shape \(6,\), and of this data \(5,\)"):
        Node(plan(), narrow, tmp_path)
    binary = glocal.federation(torch.zeros(30, 6), torch.arange(30) % 2, torch.arange(30) // 15)
    with pytest.raises(GlocalError, match="3 outputs"):
        Node(plan(), binary, tmp_path)


def test_a_server_knows_how_many_examples_there_are_and_has_none() -> None:
    fed = nine_clients()
    counts = [s.counts().tolist() for s in (fed.train, fed.val, fed.test)]
    roster = DataSchema.of(fed).without_rows(fed.names, counts)
    assert torch.equal(roster.train.counts(), fed.train.counts())
    assert roster.x.shape == (1, 6)
    assert not bool(roster.x.any())


def test_every_node_builds_the_model_for_all_tokens(tmp_path: Path) -> None:
    """Also one whose clients have few of them."""
    x = torch.arange(60 * 4).reshape(60, 4) % 7 + 5 * (torch.arange(60) >= 30).long()[:, None]
    fed = glocal.federation(x, torch.arange(60) % 2, torch.arange(60) // 15)
    schema = DataSchema.of(fed)
    assert schema.vocabulary == int(x.max()) + 1
    settings = {**SETTINGS, "model": "bilstm(embedding=2,hidden=2)"}
    agreed = DeployPlan("fedavg", from_arguments(settings), schema)
    node = Node(agreed, fed.part([0]), tmp_path)
    sizes = [
        agreed.setup(f).task.size for f in (fed, node.fed, schema.without_rows("ab", [[3, 3]] * 3))
    ]
    assert len(set(sizes)) == 1
    with pytest.raises(GlocalError, match="the plan has 5 token ids"):
        replace(schema, vocabulary=5).check(fed)
