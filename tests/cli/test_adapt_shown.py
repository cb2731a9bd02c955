"""What ``glocal adapt`` shows: pictures, and metrics in their own units."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Command
from glocal.report import adaptation as report

ONE = "fine-tune(lr=0.1, max_epochs=2)"


def test_a_picture_of_one_technique(tmp_path: Path) -> None:
    """Clients alike in everything, who all stay: nothing has an extent of its own."""
    row = {"adapted_by": "none", "adapted_benefit": 0.0, "local_accuracy": 0.5, "n_train": 9}
    one = {
        "summary": {
            "accuracies": [[0.5, 0.5]],
            "adapted": {
                "accuracies": [[0.5, 0.5]],
                "techniques": {"ewc": {"accuracies": [[0.5, 0.5]]}},
            },
            **dict.fromkeys(("better_off", "worse_off"), 0),
            **dict.fromkeys(("adapted_better_off", "adapted_worse_off"), 0),
        },
        "clients": [{**row, "complexity": 1.0}] * 2,
    }
    found = {
        "methods": {"fedavg": one},
        "data": {"data": "digits", "partition": "iid"},
        "settings": {"model": "mlp", "rounds": 3},
    }
    report.draw(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").exists()


def test_another_metric_is_shown_in_its_own_unit(command: Command, tmp_path: Path) -> None:
    """Neither as per cent nor in points; a client without a value is left out of the picture."""
    words = ["run", "fedavg", "--clients", "4", "--rounds", "1", "--model", "mlp(4)"]
    words += ["--metric", "log_loss", "--baseline", "best", "--repeats", "1", "--no-tune"]
    assert command(*words, "--out", str(tmp_path / "run"))[0] == 0
    drawn, found = tmp_path / "p.png", tmp_path / "f.json"
    asked = ["adapt", str(tmp_path / "run"), "--by", ONE, "--json", str(found)]
    code, out, _ = command(*asked, "--picture", str(drawn))
    assert code == 0
    result, text = json.loads(found.read_text()), " ".join(out.split())
    row = result["methods"]["fedavg"]["clients"][0]
    assert f"{row['value']:.3f} {row['adapted_value']:.3f} {row['local_value']:.3f}" in text
    mean = result["methods"]["choice"]["summary"]["mean"]
    assert f"It comes to a mean log loss of {mean:.3f}," in text
    assert "before log loss" in text
    assert "the best that they can train alone, which may be more" in text
    row["adapted_benefit"] = None
    report.draw(result, drawn)
    assert drawn.exists()
