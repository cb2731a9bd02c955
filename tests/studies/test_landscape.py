"""The plane through three models: a hand-worked one, and losses found again at the models."""

from __future__ import annotations

import pytest
import torch
from studied import QUICK, digits

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.experiment.fit import fit
from glocal.studies import landscape as module
from glocal.studies.landscape import landscape, measured, plane
from glocal.studies.repeats import UNUSED, finished


def model(*values: float) -> dict[str, torch.Tensor]:
    """Two leaves of one vector."""
    return {"a": torch.tensor(values[:2]).float(), "b": torch.tensor(values[2:]).float()}


def test_a_plane_worked_by_hand() -> None:
    """w₂ − w₁ = (3, 0, 4): length 5. w₃ − w₁ = (3, 2, 4): 5 along u, and (0, 2, 0) is left."""
    flat = plane(model(1, 1, 1), model(4, 1, 5), model(4, 3, 5))
    assert flat.points == [(0, 0), (pytest.approx(5), 0), (pytest.approx(5), pytest.approx(2))]
    torch.testing.assert_close(flat.u, model(0.6, 0, 0.8))
    torch.testing.assert_close(flat.v, model(0, 1, 0))
    at = flat.at(torch.tensor([[0.0, 0.0], [10.0, -1.0]]))
    torch.testing.assert_close(tree.row(at, 0), model(1, 1, 1))
    torch.testing.assert_close(tree.row(at, 1), model(7, 0, 9))


def test_models_on_a_line_have_no_plane() -> None:
    for third in (model(2, 0, 0), model(0, 0, 0), model(1, 0, 0)):
        with pytest.raises(GlocalError, match="lie on a line"):
            plane(model(0, 0, 0), model(1, 0, 0), third)


@pytest.mark.parametrize(
    ("method", "points"),
    [("fedavg", "clients"), ("superfed-mm", "clients"), ("ditto", "clients"), ("fedavg", "seeds")],
)
def test_the_models_own_losses_are_found_at_their_coordinates(method: str, points: str) -> None:
    found = landscape(digits(), method, points=points, size=4, **QUICK)
    run = fit(method, digits(), baseline=UNUSED, **QUICK)
    t = finished(run).training
    rows = digits().val.rows
    marks = t.task.example_metrics(run.model, digits().x[rows], digits().y[rows])
    assert found["points"][0]["loss"] == pytest.approx(float(marks["loss"].mean()), rel=1e-4)
    assert found["points"][0]["accuracy"] == pytest.approx(float(marks["correct"].mean()), abs=1e-6)
    for edge in found["edges"]:
        ends = [p for n in edge["between"] for p in found["points"] if p["name"] == n]
        assert edge["loss"][0] == pytest.approx(ends[0]["loss"], rel=1e-5)
        assert edge["loss"][-1] == pytest.approx(ends[1]["loss"], rel=1e-5)
        assert edge["barrier"] >= -1e-12
    assert len(found["loss"]) == len(found["loss"][0]) == 4


def test_clients_points_are_the_two_largest_clients_own_models() -> None:
    found = landscape(digits(), "superfed-mm", size=2, **QUICK)
    run = fit("superfed-mm", digits(), baseline=UNUSED, **QUICK)
    t = finished(run).training
    sizes = digits().train.counts().tolist()
    first = sizes.index(max(sizes))
    assert found["points"][1]["name"] == f"client {digits().names[first]}"
    own = tree.row(run.states["l"], first)
    rows = digits().val.rows
    loss = t.task.example_metrics(own, digits().x[rows], digits().y[rows])["loss"].mean()
    assert found["points"][1]["loss"] == pytest.approx(float(loss), rel=1e-4)


def test_rows_of_the_grid_are_along_y_and_chunks_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = landscape(digits(), "fedavg", size=3, **QUICK)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    again = landscape(digits(), "fedavg", size=3, **QUICK)
    for a, b in zip(again["loss"], found["loss"], strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    run = fit("fedavg", digits(), baseline=UNUSED, **QUICK)
    t = finished(run).training
    models, _ = module._clients(run)
    corner = torch.tensor([[found["x"][2], found["y"][0]]])
    loss, _ = measured(t, plane(*models), corner)
    assert found["loss"][0][2] == pytest.approx(float(loss[0]), rel=1e-4)


def test_bad_input() -> None:
    with pytest.raises(GlocalError, match="clients or seeds"):
        landscape(digits(), points="layers", **QUICK)
    with pytest.raises(GlocalError, match="size must be"):
        landscape(digits(), size=0, **QUICK)
    with pytest.raises(GlocalError, match="no server"):
        landscape(digits(), "local(lr=0.1, max_epochs=1)", size=2, **QUICK)
