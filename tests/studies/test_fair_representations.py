"""The study of fair representations: figures, the choice of λ, the command and its sentences."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.cli import app as cli
from glocal.core.errors import GlocalError
from glocal.evaluation import attribute_probe
from glocal.experiment.config import Config
from glocal.report.fair_representations import short_names
from glocal.studies import fair_representations as study

LG = "lg-fedavg(warmup=0, shared=last(1))"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 people of four sites, whose label and sex go together."""
    gen = np.random.default_rng(0)
    sex, score = gen.integers(0, 2, 240), gen.normal(size=240)
    label = (score + sex + 0.3 * gen.normal(size=240) > 0.5).astype(int)
    path = tmp_path_factory.mktemp("people") / "people.csv"
    rows = zip(sex + 0.2 * gen.normal(size=240), score, ["mf"[s] for s in sex], label, strict=True)
    lines = [f"{a:.3f},{b:.3f},{s},{y},{'abcd'[i % 4]}" for i, (a, b, s, y) in enumerate(rows)]
    path.write_text("\n".join(["a,b,sex,label,client", *lines]) + "\n")
    return path


def config(people: Path, **given: Any) -> Config:
    settings = {"protected": ("sex",), "model": "mlp(4, 4)", "rounds": 2, "validate_every": 0}
    return Config(data=str(people), split=(0.5, 0.2, 0.3), **{**settings, **given})


def test_specs_put_the_adversary_where_the_private_layers_end(people: Path) -> None:
    fed = config(people).federation(announced=False)
    against = study.Against(pretrain=3, lam_local=0.5, optimiser="adam", hidden=64)
    specs = study.all_specs(["fedavg", LG], [1, 0, 1], config(people), fed, against)
    assert list(specs) == [("fedavg", 0), ("fedavg", 1), (LG, 0), (LG, 1)]
    assert specs["fedavg", 1].endswith("shared=true, at='layers.2')")
    assert specs[LG, 0].endswith(
        "steps=1, hidden=64, optimiser=adam)+pretrain(epochs=3, weight=0.5)"
    )
    alone = study.all_specs(["fedavg"], [1], config(people), fed)
    assert alone["fedavg", 1].endswith("at='layers.2')")  # the last layer


def test_the_command_prints_writes_and_draws(
    people: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(attribute_probe, "STEPS", 60)
    monkeypatch.setattr(attribute_probe, "DECAYS", (0.03,))
    words = ["--data", str(people), "--protected", "sex", "--model", "mlp(4, 4)", "--rounds", "2"]
    words += ["--repeats", "2", "--lam", "0", "--lam", "2", "--least", "0.1", LG, "fedavg"]
    files = [tmp_path / "out.json", tmp_path / "out.png"]
    words += ["--json", str(files[0]), "--picture", str(files[1])]
    monkeypatch.setattr(sys, "argv", ["glocal", "study", "fair-representations", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "fresh linear AUC %" in said
    assert "Right by a constant guess: label" in said
    assert files[1].read_bytes()[:4] == b"\x89PNG"
    result = json.loads(files[0].read_text())
    assert [(row["method"], row["lam"]) for row in result["rows"]] == [
        (method, lam) for method in (LG, "fedavg") for lam in (0.0, 2.0)
    ]
    for row in result["rows"]:
        (of_sex,) = row["attributes"].values()
        assert row["adversary"] == of_sex["adversary"]
        # One of the inputs is the sex but for noise: nothing was hidden in two rounds.
        assert of_sex["mlp"]["mean"] > 0.6
        assert len(row["accuracy"]["values"]) == 2
        assert row["post_fit"]["mean"] >= max(row["linear"]["mean"], row["mlp"]["mean"])
    assert [row["method"] for row in result["chosen"]] == [LG, "fedavg"]


def cell(accuracy: float, linear: float, mlp: float) -> dict[str, Any]:
    found = {"val_linear": linear, "val_mlp": mlp}
    return {"val_accuracy": accuracy, "attributes": {"sex": found, "race": found}}


def test_lambda_is_chosen_on_validation_data() -> None:
    cells = {0.0: cell(0.84, 0.7, 0.8), 1.0: cell(0.81, 0.6, 0.58), 3.0: cell(0.78, 0.5, 0.5)}
    assert study.choice(cells, 0.8) == 1.0
    assert study.choice(cells, 0.0) == 3.0
    assert study.choice(cells, 0.9) == 0.0  # none is so accurate: the most accurate
    chance = {0.0: cell(0.84, 0.5, 0.4), 1.0: cell(0.81, 0.45, 0.42)}
    assert study.choice(chance, 0.8) == 0.0  # below one half is chance, too


def test_the_adversary_is_found_beside_what_other_components_keep(people: Path) -> None:
    quick = config(people, rounds=1)
    found = study.fair_representations([f"{LG}+top-k(0.5)"], quick, lams=[1])
    assert 0 <= found["rows"][0]["adversary"]["mean"] <= 1


def test_people_of_one_kind_at_each_client_are_refused(people: Path, tmp_path: Path) -> None:
    head, *rows = people.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    alike = [",".join([a, b, "mf"[c in "ab"], y, c]) for a, b, _, y, c in cells]
    (tmp_path / "alike.csv").write_text("\n".join([head, *alike]) + "\n")
    with pytest.raises(GlocalError, match="no client has test rows with two values of 'sex'"):
        study.fair_representations([LG], config(tmp_path / "alike.csv"), lams=[1])


@pytest.mark.parametrize(
    ("methods", "given", "lams", "problem"),
    [
        ([LG], {"protected": (), "drop": ("sex",)}, [1], "the data has none: name the columns"),
        ([f"{LG}+aux-head"], {}, [1], "adds the adversary itself: leave aux-head out"),
        ([LG], {}, [], "give at least one"),
        ([LG], {}, [-1], "lam must be"),
        (["local"], {}, [1], "local"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    people: Path, methods: list[str], given: dict[str, Any], lams: list[float], problem: str
) -> None:
    with pytest.raises(GlocalError, match=problem):
        study.fair_representations(methods, config(people, **given), lams=lams)


def test_namesakes_in_a_legend_show_the_settings_in_which_they_differ() -> None:
    methods = ["lg-fedavg(warmup=0, epochs=1)", "lg-fedavg(warmup=0, epochs=10)", "fedavg(lr=1)"]
    assert short_names(methods) == ["lg-fedavg epochs=1", "lg-fedavg epochs=10", "fedavg"]
