"""A user's table on the command line: the column report, its files, and nothing invented."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.data.loading import load
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.reading import read_table

Command = Callable[..., tuple[Any, str, str]]

QUICK = ["--rounds", "1", "--model", "logistic", "--baseline", "none", "--jobs", "1"]
COLUMNS = ["--client", "hospital", "--label", "outcome"]


@pytest.fixture
def hospitals(command: Command) -> Command:
    """The command, in a folder with a file of three hospitals in Windows-1252."""
    r = random.Random(0)
    lines = ["patient_id;hospital;age;weight;admitted;ward;outcome"]
    for i in range(90):
        age = "" if r.random() < 0.1 else r.randint(20, 90)
        weight = f"{r.gauss(75, 9):.1f}".replace(".", ",")
        day = f"{r.randint(1, 28)}.{r.randint(1, 12)}.2024"
        site, ward = ["Görlitz", "Köln", "Wien"][i % 3], r.choice(["north", "south", ""])
        lines.append(f"{1000 + i};{site};{age};{weight};{day};{ward};{r.choice(['no', 'yes'])}")
    Path("h.csv").write_bytes("\n".join(lines).encode("cp1252"))
    return command


def test_the_column_report_is_printed_once_and_kept(hospitals: Command) -> None:
    code, out, err = hospitals(
        *("run", "fedavg", "--data", "h.csv", *COLUMNS, *QUICK, "--out", "r", "--json", "-")
    )
    assert code == 0
    assert json.loads(out)
    about = (
        "glocal: h.csv: 90 rows of 3 clients, by column 'hospital'; read as Windows-1252 (cp1252); "
        "the separator is a semicolon\n"
    )
    assert err.count(about) == 1
    assert all(line.split() for line in err.splitlines())
    report = {line.split()[0]: line for line in err.partition(about)[2].splitlines()}
    assert "a number and if it is missing" in report["age"]
    assert "decimal commas" in report["weight"]
    assert "admitted !" in report["admitted"]
    assert "left out: an id" in report["patient_id"]
    assert "the clients" in report["hospital"]
    assert "2 one-hot features and if it is missing" in report["ward"]

    kept = {row["column"]: row for row in json.loads(Path("r/columns.json").read_text())}
    assert set(kept) == set(read_table("h.csv"))
    assert kept["age"]["missing"] > 0
    assert "like an id" in kept["patient_id"]["warnings"][0]

    fitted = Preprocessing.from_json(Path("r/preprocessing.json").read_bytes())
    fed = load("h.csv", client="hospital", label="outcome")
    assert fitted == fed.preprocessing
    assert torch.equal(fitted.apply(read_table("h.csv")), fed.x)


def test_columns_are_chosen_by_options(hospitals: Command) -> None:
    words = ["data", "h.csv", *COLUMNS, "--drop", "admitted,ward", "--drop", "age"]
    code, out, err = hospitals(*words)
    assert code == 0
    assert "3 clients (by column 'hospital')" in " ".join(out.split())
    assert "shape (1,)" in out
    assert err.count("left out: not asked for") == 3
    code, out, _ = hospitals(
        "data", "h.csv", *COLUMNS, "--features", "patient_id", "--features", "age"
    )
    assert code == 0
    assert "shape (3,)" in out


def test_clients_are_not_invented(hospitals: Command) -> None:
    code, out, err = hospitals("run", "fedavg", "--data", "h.csv", "--label", "outcome", *QUICK)
    assert (code, out) == (2, "")
    assert err.startswith("glocal: h.csv has no column 'client', so nothing says whose each row is")
    assert err.count("\n") == 1
    words = ["run", "fedavg", "--data", "h.csv", "--label", "outcome", "--partition", "iid"]
    code, _, err = hospitals(*words, "--clients", "4", *QUICK, "--out", "r")
    assert code == 0
    assert "90 rows of 4 clients, simulated by iid" in err


def test_a_run_that_never_began_leaves_no_report_behind(hospitals: Command) -> None:
    words = ["run", "fedavg(shared=nope*)", "--data", "h.csv", *COLUMNS, *QUICK, "--out", "r"]
    assert hospitals(*words)[0] == 2
    assert not Path("r").exists()


def test_statistics_of_each_client_on_the_command_line(hospitals: Command) -> None:
    words = ["run", "fedavg", "--data", "h.csv", *COLUMNS, "--preprocessing", "client"]
    assert hospitals(*words, *QUICK, "--out", "r")[0] == 0
    saved = json.loads(Path("r/preprocessing.json").read_text())
    assert saved["clients"] == ["Görlitz", "Köln", "Wien"]


def test_compare_tells_each_participant_and_writes_csv(hospitals: Command) -> None:
    words = ["compare", "fedavg", "--metric", "auc", "--data", "h.csv", *COLUMNS, "--rounds", "1"]
    words += ["--model", "logistic", "--baseline", "local(max_epochs=1)", "--jobs", "1"]
    files = ["--csv", "t.csv", "--json", "t.json", "--picture", "t.svg"]
    code, out, err = hospitals(*words, "--out", "r", *files)
    assert code == 0
    assert "leave it out (--drop) unless later dates mean something" in err
    assert out.endswith("Run folder: r\nPicture: t.svg\n")
    said = json.loads(Path("t.json").read_text(encoding="utf-8"))["participants"]
    assert [each["client"] for each in said] == ["Görlitz", "Köln", "Wien"]
    assert all(each["sentence"] in " ".join(out.split()) for each in said)
    assert json.loads(Path("r/result.json").read_text(encoding="utf-8"))["participants"] == said
    lines = Path("t.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("client,method,metric,value")
    assert [line.split(",")[:3] for line in lines[1:]] == [
        [each["client"], "fedavg", "auc"] for each in said
    ]
    # What is finished is written again, and its settings are an experiment's.
    again = ["--csv", "a.csv", "--picture", "a.svg"]
    assert hospitals("resume", "r", *again)[0] == 0
    assert Path("a.csv").read_bytes() == Path("t.csv").read_bytes()
    assert Path("a.svg").read_bytes() == Path("t.svg").read_bytes()
    kept = tomllib.loads(Path("r/fedavg/settings.toml").read_text(encoding="utf-8"))
    assert "clients" not in kept
    assert (kept["chosen"]["clients"], kept["metric"]) == (3, "auc")
    same = ["compare", "r/fedavg/settings.toml", "--baseline", "local(max_epochs=1)"]
    assert hospitals(*same, "--out", "s", "--json", "a.json")[0] == 0
    assert Path("a.json").read_bytes() == Path("t.json").read_bytes()

    assert hospitals(*words, "--csv", "no/t.csv")[0] == 2
    code, _, err = hospitals("run", "fedavg", *QUICK, "--picture", "n.png")
    assert (code, "leave out --picture, or --baseline none" in err) == (2, True)
    code, _, err = hospitals(*words, "--csv", "-", "--json", "-")
    assert (code, "both print" in err) == (2, True)
