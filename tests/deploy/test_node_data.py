"""A participant's file as the plan's schema says, and what does not fit it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.participants import ROWS, write_settings, write_tables
from glocal.core.errors import GlocalError
from glocal.deploy.init import plan_of
from glocal.deploy.node_data import own_rows, part_of_plan
from glocal.deploy.plan import DeployPlan


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DeployPlan:
    write_tables(tmp_path)
    return plan_of(write_settings(tmp_path))


def test_rows_are_prepared_with_the_plans_statistics(plan: DeployPlan, tmp_path: Path) -> None:
    fed = own_rows(plan, tmp_path / "clinic-a.csv", "clinic-a")
    plan.schema.check(fed)
    assert fed.names == ("clinic-a",)
    assert fed.numbered([2]).describe["labels"] == {"ill": 0, "well": 1}
    assert plan.schema.preprocessing is not None
    ages = [float(line.split(",")[0]) for line in _lines(tmp_path / "clinic-a.csv")]
    column = next(c for c in plan.schema.preprocessing.columns if c.name == "age")
    wanted = (torch.tensor(ages).double() - column.mean[0]) / column.std[0]
    assert torch.allclose(fed.x[:, 0], wanted.float(), atol=1e-5)
    assert fed.y.tolist() == [
        int(line.endswith("well")) for line in _lines(tmp_path / "clinic-a.csv")
    ]


def test_a_client_column_makes_several_clients(plan: DeployPlan, tmp_path: Path) -> None:
    fed = own_rows(plan, tmp_path / "example.csv", "group")
    assert fed.names == ("clinic-a", "clinic-b", "clinic-c")
    assert len(fed.y) == 3 * ROWS


def test_a_table_without_the_client_column_that_the_plan_names_is_one_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tables(tmp_path)
    example = tmp_path / "example.csv"
    example.write_text(example.read_text().replace("client", "hospital"))
    plan = plan_of(write_settings(tmp_path, client="hospital"))
    assert own_rows(plan, tmp_path / "clinic-a.csv", "north").names == ("north",)
    assert own_rows(plan, example, "group").names == ("clinic-a", "clinic-b", "clinic-c")


def test_part_of_the_plans_own_data(plan: DeployPlan) -> None:
    fed = part_of_plan(plan, [1, 2])
    assert fed.names == ("clinic-b", "clinic-c")


def test_numbers_keep_the_plans_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(tmp_path)
    for file in tmp_path.glob("*.csv"):
        text = file.read_text().replace("ill", "12.5").replace("well", "2.5")
        file.write_text(text)
    plan = plan_of(write_settings(tmp_path, task="regression"))
    fed = own_rows(plan, tmp_path / "clinic-a.csv", "clinic-a")
    plan.schema.check(fed)
    assert fed.target == plan.schema.target
    assert set(fed.target.labels(fed.y).round(decimals=4).tolist()) == {2.5, 12.5}
    assert fed.numbered([2]).target == plan.schema.target


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("age", "years"), "no column 'age', which the plan's schema has"),
        (lambda text: text.replace("well", "fine"), "has 'fine', and the plan's classes are"),
        (lambda text: text.replace("label", "outcome"), "no column 'label' .* rename one\\.$"),
        (lambda text: "\n".join(text.splitlines()[:3]), "has 2 examples in .* needs 3 or more"),
        (lambda text: text.splitlines()[0], "rows"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: object, said: str, plan: DeployPlan, tmp_path: Path
) -> None:
    file = tmp_path / "clinic-a.csv"
    file.write_text(change(file.read_text()) + "\n")  # type: ignore[operator]
    with pytest.raises(GlocalError, match=said):
        own_rows(plan, file, "clinic-a")


def test_arrays_are_no_table(plan: DeployPlan, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 4), np.float32), y=np.zeros(5, np.int64))
    with pytest.raises(GlocalError, match="the plan is for a table"):
        own_rows(plan, tmp_path / "a.npz", "a")
    with pytest.raises(GlocalError, match="no kind of file"):
        own_rows(plan, tmp_path / "a.txt", "a")
    with pytest.raises(GlocalError, match="cannot be a client's name"):
        own_rows(plan, tmp_path / "clinic-a.csv", "../x")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()[1:]
