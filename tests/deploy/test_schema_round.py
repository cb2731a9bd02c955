"""A schema by sums and counts: that of the pooled training rows, and hostile sums are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glocal
from deploy.federations import Network
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.data.preprocessing import fitting
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.preprocessing.kinds import recognised
from glocal.data.split import from_counts
from glocal.data.table import Table
from glocal.deploy import wire
from glocal.deploy.counting import Counting, OwnTable
from glocal.deploy.node import Node
from glocal.deploy.node_data import own_rows
from glocal.deploy.patience import NoQuorumError, Patience
from glocal.deploy.plan import DeployPlan
from glocal.deploy.schema_plan import SchemaPlan, read_plan
from glocal.deploy.schema_round import Counted, counted
from glocal.deploy.serve import serve
from glocal.experiment.config_reading import from_mapping

CLINICS = ("north", "south", "west")
SETTINGS: dict[str, Any] = {
    "data": "nobody.csv",
    "rounds": 2,
    "model": "mlp(4)",
    "engine": "sequential",
    "baseline": "none",
    "validate_every": 0,
}
WARDS = ("a", "b", "c", "d")


def write_tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Three clinics of different sizes and shifts, with gaps, a constant, ids and rare words."""
    rows: dict[str, list[dict[str, str]]] = {}
    for number, clinic in enumerate(CLINICS):
        n = 40 + 13 * number
        draws = rng.uniform(rng.fold(rng.key(8), number), (n, 4)).tolist()
        rows[clinic] = [
            {
                "patient_id": str(1000 * number + i),
                "age": "" if a < 0.1 else f"{1e6 + 30 * a + 5 * number:.3f}",
                "ward": WARDS[int((a + b) * 2)],
                "seen": f"202{number}-0{1 + int(9 * c)}-11",
                "note": f"word{i} of {clinic}",
                "unit": "mg",
                "label": "ill" if b + d > 1 else "well",
            }
            for i, (a, b, c, d) in enumerate(draws)
        ]
    rows["north"][3]["ward"] = rows["west"][5]["ward"] = "z"
    for clinic, each in rows.items():
        lines = [",".join(each[0]), *(",".join(row.values()) for row in each)]
        (folder / f"{clinic}.csv").write_text("\n".join(lines) + "\n")
    return rows


def plan_of(**settings: Any) -> SchemaPlan:
    least = settings.pop("least", 1)
    return SchemaPlan("ditto", from_mapping({**SETTINGS, **settings}), least)


def counting(plan: SchemaPlan, folder: Path) -> Network:
    nodes = {
        name: Counting(OwnTable.read(plan, folder / f"{name}.csv", name), folder / name, print)
        for name in CLINICS
    }
    return Network({name: node.answer for name, node in nodes.items()})


def merged(plan: SchemaPlan, network: Network) -> Counted:
    patience = Patience(joining=30, clock=network.clock)
    return counted(plan, network, {name: name.encode() for name in CLINICS}, patience)


def pooled(plan: DeployPlan, folder: Path, rows: dict[str, list[dict[str, str]]]) -> Preprocessing:
    """What a simulation fits on the training rows that these clients have."""
    chosen, counts = [], []
    for number, clinic in enumerate(CLINICS):
        fed = own_rows(plan, folder / f"{clinic}.csv", clinic).numbered([number])
        chosen += [rows[clinic][row] for row in fed.train.rows.tolist()]
        counts.append(len(fed.train.rows))
    names = ("age", "note", "patient_id", "seen", "unit", "ward")
    table = Table({n: np.array([row[n] for row in chosen]) for n in names}, text=True)
    raws = [recognised(table, name) for name in names]
    x = torch.from_numpy(np.stack([raw.values for raw in raws], axis=1))
    every = torch.arange(len(chosen))
    layout, _ = fitting.choose(raws, x, every, wanted=(), scale=True, by_client=False)
    return layout.fit(x, from_counts(every, torch.tensor(counts)), CLINICS)


def test_the_schema_is_that_of_the_pooled_training_rows(tmp_path: Path) -> None:
    rows, plan = write_tables(tmp_path), plan_of()
    found = merged(plan, counting(plan, tmp_path))
    agreed = plan.with_schema(found.schema)
    assert agreed.schema.preprocessing is not None
    wanted = {column.name: column for column in pooled(agreed, tmp_path, rows).columns}
    ours = {column.name: column for column in agreed.schema.preprocessing.columns}
    assert ours.keys() == wanted.keys() == {"age", "seen", "ward"}
    for name, column in ours.items():
        theirs = wanted[name]
        # Beside a large mean, sums of squares would have lost all digits of the deviation.
        assert column.mean == pytest.approx(theirs.mean, rel=1e-12)
        assert column.std == pytest.approx(theirs.std, rel=1e-9)
        same = ("kind", "indicator", "levels", "other", "unseen")
        assert [getattr(column, k) for k in same] == [getattr(theirs, k) for k in same]
    assert ours["age"].fill == ours["age"].mean  # no sum gives the median
    assert ours["ward"].fill == wanted["ward"].fill
    assert agreed.schema.label_words == {"ill": 0, "well": 1}
    assert found.columns["patient_id"] == "left out: an id"
    assert found.columns["note"] == "left out: an id or free text"
    assert found.columns["unit"] == "left out: constant"
    sent = json.loads((tmp_path / "south" / "counted.json").read_text())["sent"]
    assert sent["columns"]["ward"]["words"]["words"].keys() == set(WARDS)


def test_a_deployment_with_this_schema_has_the_bits_of_a_simulation(tmp_path: Path) -> None:
    write_tables(tmp_path)
    first = plan_of(least=5)
    plan = first.with_schema(merged(first, counting(first, tmp_path)).schema)
    parts = {
        name: own_rows(plan, tmp_path / f"{name}.csv", name).numbered([number])
        for number, name in enumerate(CLINICS)
    }
    nodes = {name: Node(plan, parts[name], tmp_path / name) for name in CLINICS}
    network = Network({name: node.answer for name, node in nodes.items()})
    keys = {name: name.encode() for name in CLINICS}
    patience = Patience(deadline=30, joining=30, evaluation=30, clock=network.clock)
    served = serve(plan, network, keys, tmp_path / "server", patience=patience)
    x, y = (torch.cat([getattr(part, k) for part in parts.values()]) for k in ("x", "y"))
    owner = np.repeat(CLINICS, [len(part.y) for part in parts.values()])
    fed = glocal.federation(x, y, owner, classes=2, pooled=False)
    fed = replace(fed, describe={**fed.describe, "labels": plan.schema.label_words})
    assert fed.names == CLINICS
    run = glocal.fit("ditto", fed, **plan.config.arguments())
    assert run.trained is not None
    assert served.progress is not None
    simulated = dict(tree.flatten(run.trained.progress.server))
    for name, leaf in tree.flatten(served.progress.server):
        assert torch.equal(leaf, simulated[name]), name


def test_rare_words_are_not_named_and_few_numbers_not_summed(tmp_path: Path) -> None:
    rows = write_tables(tmp_path)
    short = (tmp_path / "north.csv").read_text().splitlines()
    few = [
        row if i % 12 == 1 else row.replace(row.split(",")[1], "") for i, row in enumerate(short)
    ]
    (tmp_path / "north.csv").write_text("\n".join([short[0], *few[1:]]) + "\n")
    plan = plan_of(least=5)
    network = counting(plan, tmp_path)
    found = merged(plan, network)
    assert found.schema.preprocessing is not None
    columns = {column.name: column for column in found.schema.preprocessing.columns}
    assert columns["ward"].levels == WARDS
    assert columns["ward"].other
    sent = json.loads((tmp_path / "north" / "counted.json").read_text())["sent"]["columns"]
    assert sent["age"]["numbers"] is None
    assert all(count >= 5 for count in sent["ward"]["words"]["words"].values())
    assert sent["ward"]["words"]["rare_words"] >= 1
    everything = b"".join(network.sent)
    assert b'"z"' not in everything.replace(b"\\", b"")
    assert all(row["note"].encode() not in everything for each in rows.values() for row in each)


def test_numbers_as_labels_have_their_mean_and_deviation(tmp_path: Path) -> None:
    write_tables(tmp_path)
    for file in tmp_path.glob("*.csv"):
        text = file.read_text().replace("ill", "12.5").replace("well", "2.5")
        file.write_text(text)
    plan = plan_of(task="regression")
    agreed = plan.with_schema(merged(plan, counting(plan, tmp_path)).schema)
    labels = torch.cat([_train_labels(agreed, tmp_path, k) for k in range(len(CLINICS))])
    target = agreed.schema.target
    assert target.location == pytest.approx(float(labels.mean()), rel=1e-6)
    assert target.scale == pytest.approx(float(labels.std(unbiased=False)), rel=1e-6)


def _train_labels(plan: DeployPlan, folder: Path, number: int) -> torch.Tensor:
    name = CLINICS[number]
    fed = own_rows(plan, folder / f"{name}.csv", name).numbered([number])
    return fed.target.labels(fed.y[fed.train.rows])


def lie(about: Callable[[dict[str, Any]], None], node: str = "south") -> Any:
    """What a node's answer becomes when its sums are changed."""

    def between(sender: str, request: bytes, answer: bytes) -> bytes:
        message = wire.decode(answer)
        if sender == node and "columns" in message.facts:
            about(message.facts)
        return wire.encode(message)

    return between


def _age(facts: dict[str, Any], **new: Any) -> None:
    facts["columns"]["age"]["numbers"] |= new


def _ward(facts: dict[str, Any], words: dict[str, Any]) -> None:
    facts["columns"]["ward"]["words"]["words"] |= words


LIES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "nan": (lambda f: _age(f, mean=float("nan")), "a mean cannot be"),
    "infinite": (lambda f: _age(f, squares=float("inf")), "a deviation cannot be"),
    "negative squares": (lambda f: _age(f, squares=-1.0), "a deviation cannot be"),
    "negative count": (lambda f: _ward(f, {"a": -3}), "a count of a category cannot be"),
    "many": (
        lambda f: _ward(f, {f"w{i}": 1 for i in range(2000)}),
        "more than 1000 categories in a column cannot be",
    ),
    "control": (lambda f: _ward(f, {"a\x1b[2J": 1}), "the name of a category cannot be"),
    "more than declared": (lambda f: _ward(f, {"a": 10**7}), "a count of a category cannot be"),
    "one more": (
        lambda f: _ward(f, {"new": 1}),
        "counts that do not add up to the number of rows cannot be",
    ),
    "one fewer": (
        lambda f: _ward(f, {"a": f["columns"]["ward"]["words"]["words"]["a"] - 1}),
        "counts that do not add up to the number of rows cannot be",
    ),
    "other count": (lambda f: _age(f, count=10**7), "a count of numbers cannot be"),
    "missing": (
        lambda f: f["columns"]["age"].update(missing=-1),
        "a count of missing values cannot be",
    ),
    "rows": (lambda f: f.update(rows=10**12), "the number of rows cannot be"),
    "text": (lambda f: f.update(columns="age"), "the number of columns cannot be"),
    "true": (lambda f: f.update(rows=True), "the number of rows cannot be"),
    "names": (lambda f: f["columns"].update({"\n": {}}), "the name of a column cannot be"),
    "fields": (lambda f: f["columns"]["age"].clear(), "its fields cannot be"),
}


@pytest.mark.parametrize("about", LIES)
def test_hostile_sums_leave_their_sender_out(about: str, tmp_path: Path) -> None:
    write_tables(tmp_path)
    change, why = LIES[about]
    plan = plan_of()
    network = counting(plan, tmp_path)
    network.between = lie(change)
    found = merged(plan, network)
    assert found.refused == {"south": why}
    assert found.schema.counted is not None
    assert found.schema.counted["clients"] == ["north", "west"]


def test_what_does_not_agree_or_does_not_come_is_an_error(tmp_path: Path) -> None:
    write_tables(tmp_path)
    plan = plan_of()
    network = counting(plan, tmp_path)
    network.between = lie(lambda f: f["columns"]["age"].update(kind="date"))
    with pytest.raises(GlocalError, match="'age' is 'number' at north and 'date' at south"):
        merged(plan, network)
    network.between = lie(lambda f: f.update(rows=0))
    replies = network.between
    network.between = lambda *sent: lie(lambda f: f.update(rows=0), "west")(
        *sent[:2], replies(*sent)
    )
    with pytest.raises(GlocalError, match="fewer than two clients have counts"):
        merged(plan, network)
    network.between = lambda sender, _, answer: None if sender == "west" else answer
    with pytest.raises(NoQuorumError, match="west sent no counts in time"):
        merged(plan, network)
    other = plan_of(rounds=3)
    network.between = lambda sender, _, answer: answer
    with pytest.raises(GlocalError, match="north: another plan"):
        merged(other, network)


def test_a_table_is_counted_once(tmp_path: Path) -> None:
    """Sums of other training rows would show single rows by difference."""
    write_tables(tmp_path)
    plan = plan_of()
    first = merged(plan, counting(plan, tmp_path))
    again = merged(plan, counting(plan, tmp_path))  # the nodes were started again meanwhile
    assert again == first
    network, before = counting(plan, tmp_path), (tmp_path / "north" / "counted.json").read_bytes()
    about = {"clients": {}, "plan": plan.digest}
    for numbers, labels in (
        ({"north": 7}, ["ill", "well"]),
        ({"north": 0}, ["well", "ill"]),
        ({"north": 0}, ["ill", "other", "well"]),
    ):
        facts = {**about, "numbers": numbers, "labels": labels}
        request = wire.encode(wire.Message("count", facts))
        answer = wire.decode(network.nodes["north"](request))
        assert (answer.kind, answer.facts) == ("refused", {"code": "counted already, for others"})
    assert (tmp_path / "north" / "counted.json").read_bytes() == before
    others = {name: name.encode() for name in reversed(CLINICS)}
    with pytest.raises(GlocalError, match="west counted its rows already"):
        counted(plan, network, others, Patience(joining=30, clock=network.clock))
    other = plan_of(rounds=3)  # approved by itself
    assert merged(other, counting(other, tmp_path)).schema == first.schema


def test_private_plans_and_attributes_have_no_such_round(tmp_path: Path) -> None:
    config = from_mapping(SETTINGS)
    for method in ("fedavg+dp(clip=1,noise=1)", "fedavg+dp-sgd(clip=1,noise=1)"):
        with pytest.raises(GlocalError, match="not protected by the privacy of this plan"):
            SchemaPlan(method, config)
    with pytest.raises(GlocalError, match="statistics of each client"):
        plan_of(preprocessing="client")
    with pytest.raises(GlocalError, match="leave protected out of the plan"):
        plan_of(protected=("ward",))
    with pytest.raises(GlocalError, match="adversary hides protected attributes"):
        SchemaPlan("lg-fedavg+adversary", config)
    plan_of(least=7).write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan_of(least=7)
