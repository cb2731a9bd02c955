"""``glocal predict`` and ``glocal export``: new rows, in a process that has only the model."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Command
from glocal.data.preprocessing.columns import Column
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.nn import models
from glocal.prediction.client_model import ClientModel
from glocal.prediction.description import Description
from glocal.runs.restore import restore

RUN = [
    *("run", "ditto", "--data", "h.csv", "--client", "site", "--label", "outcome"),
    *("--rounds", "2", "--model", "mlp(4)", "--baseline", "none", "--jobs", "1", "--out", "r"),
]


def lines(n: int = 60) -> list[str]:
    """Rows as a file of a hospital has them: decimal commas, gaps, words."""
    draw = np.random.default_rng(0)
    out = ["site;age;weight;ward;outcome"]
    for i in range(n):
        age = "" if i % 7 == 0 else int(draw.integers(20, 90))
        weight = f"{draw.normal(75, 9):.1f}".replace(".", ",")
        ward = draw.choice(["heart", "lungs"])
        out.append(f"{('Köln', 'Wien')[i % 2]};{age};{weight};{ward};{draw.choice(['no', 'yes'])}")
    return out


@pytest.fixture
def trained(command: Command) -> Command:
    """The command, in a folder with a table ``h.csv`` and a run ``r`` on it."""
    Path("h.csv").write_text("\n".join(lines()), encoding="utf-8")
    assert command(*RUN)[0] == 0
    return command


def read(text: str) -> dict[str, list[str]]:
    header, *rows = csv.reader(io.StringIO(text))
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def test_a_fresh_process_with_the_model_alone_predicts_what_the_run_evaluated(
    trained: Command,
) -> None:
    restored = restore(Path("r"))[0]
    fed, training = restored.fed, restored.trained.training
    client = fed.names.index("Wien")
    chosen = fed.test.of(client)
    expected = training.engine.evaluate(
        training.task.example_logits,
        restored.trained.models(torch.tensor([client])),
        *(fed.x, fed.y, chosen[None]),
    )["logits"][0].softmax(-1)
    accuracy = json.loads(Path("r/result.json").read_text())["methods"]["ditto"]["clients"][client]

    code, out, _ = trained("export", "r", "--client", "Wien", "--to", "alone/model")
    assert (code, out) == (0, "Model of Wien: alone/model\n")
    header, *rows = lines()
    new = [rows[i] for i in chosen.tolist()]
    Path("alone/new.csv").write_text("\n".join([header, *new]), encoding="utf-8")
    for data in (Path("h.csv"), Path("r/final.safetensors"), Path("r/clients.safetensors")):
        data.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "glocal", "predict", "model", "new.csv", "--out", "p.csv"],
        cwd="alone",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = read(Path("alone/p.csv").read_text())
    assert list(found) == ["prediction", "p_no", "p_yes"]
    shares = np.array([found["p_no"], found["p_yes"]], dtype=float).T
    np.testing.assert_allclose(shares, expected, atol=1e-6, rtol=0)
    labels = [row.split(";")[-1] for row in new]
    right = np.mean([a == b for a, b in zip(found["prediction"], labels, strict=True)])
    assert right == pytest.approx(accuracy["accuracy"])


def test_rows_that_do_not_fit_get_what_the_docs_promise(trained: Command) -> None:
    header, first, second, *_ = lines()
    head = ("predict", "r", "--client", "Köln")

    def predicted(*rows: str, header: str = header) -> tuple[int, str, str]:
        Path("new.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
        return trained(*head, "new.csv")

    code, plain, err = predicted(first, second)
    assert (code, err) == (0, "")
    assert len(read(plain)["prediction"]) == 2
    # Other columns do not matter, nor does the label, nor the order of columns.
    age, weight, ward = (first.split(";")[i] for i in (1, 2, 3))
    code, out, err = predicted(f"{ward};x;{weight};{age}", header="ward;new;weight;age")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == plain.splitlines()[1]
    # An unknown category: a note, and all its features are 0.
    code, out, err = predicted("Köln;50;70,5;kidneys;no", second)
    assert code == 0
    assert err == (
        "glocal: column 'ward' has words that no training row had (kidneys): they count as none of "
        "the known ones.\n"
    )
    assert out.splitlines()[2] == plain.splitlines()[2]
    # A missing column and a wrong type: one sentence that names it, and no prediction.
    code, out, err = predicted("50;70,5", header="age;weight")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(
        "glocal: the rows have no column 'ward', with which the model was trained"
    )
    code, out, err = predicted(second, "Köln;old;70,5;heart;no")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "column 'age' should hold numbers, as in training, and line 3 has 'old'" in err
    # A decimal point is no decimal comma, unless somebody says so.
    assert predicted("Köln;50;70.5;heart;no")[0] == 2
    comma = predicted("Köln;50;70,5;heart;no")[1]
    Path("new.csv").write_text(f"{header}\nKöln;50;70.5;heart;no\n", encoding="utf-8")
    assert trained(*head, "new.csv", "--decimal", ".")[1] == comma
    assert predicted()[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("predict r new.csv", "whose model is it to be? Say so by --client, one of Köln, Wien."),
        ("predict r --client Bern new.csv", "unknown client 'Bern'"),
        ("predict r --client Wien none.csv", "there is no file 'none.csv'"),
        ("predict nowhere --client Wien new.csv", "there is no folder nowhere"),
        ("predict r --client Wien new.csv --out no/p.csv", "the folder of --out no/p.csv does not"),
        ("predict r --client Wien new.csv --method fedavg", "unknown method 'fedavg'"),
        ("predict r --client Wien new.csv --module Net", "--module Net names no code"),
        ("export r --client Wien --to r", "--to r is there already"),
        ("export r --client Wien --to m --format pickle", "unknown format 'pickle'"),
        ("export m --client Köln --to n", "is that of client Wien, not of Köln"),
    ],
)
def test_a_wrong_word_gets_one_sentence(trained: Command, words: str, said: str) -> None:
    Path("new.csv").write_text("\n".join(lines(3)), encoding="utf-8")
    if words.startswith("export m"):
        assert trained("export", "r", "--client", "Wien", "--to", "m")[0] == 0
    code, out, err = trained(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_inputs_of_data_without_a_table_are_arrays(command: Command) -> None:
    words = "run fedavg --clients 4 --partition iid --model mlp(4) --rounds 1 --baseline none"
    assert command(*words.split(), "--jobs", "1", "--out", "r")[0] == 0
    np.save("x.npy", np.zeros((2, 1, 8, 8)))
    code, out, err = command("predict", "r", "--client", "3", "x.npy")
    assert (code, err) == (0, "")
    found = read(out)
    assert list(found) == ["prediction", *(f"p_{digit}" for digit in range(10))]
    assert found["prediction"][0] == found["prediction"][1] in map(str, range(10))
    np.save("x.npy", np.array([None], dtype=object), allow_pickle=True)
    code, out, err = command("predict", "r", "--client", "3", "x.npy")
    assert (code, out) == (2, "")
    assert "x.npy cannot be read as an array of numbers" in err


def test_an_own_model_is_named_again(command: Command) -> None:
    Path("net.py").write_text(
        "from torch import nn\n"
        "def net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    words = "run fedavg --clients 4 --partition iid --model net.py:net --rounds 1 --baseline none"
    assert command(*words.split(), "--jobs", "1", "--out", "r")[0] == 0
    np.save("x.npy", np.zeros((2, 1, 8, 8)))
    asked = ("predict", "r", "--client", "3", "x.npy")
    code, _, err = command(*asked)
    assert code == 2
    assert "this is an own model (net.py:net), which only you can build" in err
    code, out, _ = command(*asked, "--module", "net.py:net")
    assert code == 0
    assert len(out.splitlines()) == 3


def test_numbers_have_one_column_in_their_unit(command: Command) -> None:
    header, *rows = lines()
    ages = "\n".join([header, *(row for row in rows if row.split(";")[1])])
    Path("h.csv").write_text(ages, encoding="utf-8")
    words = [*RUN, "--task", "regression"]
    words[words.index("outcome")] = "age"
    assert command(*words)[0] == 0
    code, out, err = command("predict", "r", "--client", "Wien", "h.csv", "--out", "p.csv")
    assert (code, out, err) == (0, "", "")
    found = read(Path("p.csv").read_text())
    assert list(found) == ["prediction"]

    restored = restore(Path("r"))[0]
    fed, k = restored.fed, restored.fed.names.index("Wien")
    chosen = fed.test.of(k).tolist()
    labels = [float(row.split(";")[1]) for row in ages.splitlines()[1:]]
    errors = [abs(float(found["prediction"][i]) - labels[i]) for i in chosen]
    row = json.loads(Path("r/result.json").read_text())["methods"]["ditto"]["clients"][k]
    assert np.mean(errors) == pytest.approx(row["value"], rel=1e-6)


def test_a_word_that_counts_as_other_is_named(command: Command) -> None:
    grouped = Preprocessing((Column("ward", "category", levels=("heart",), other=True),))
    about = Description(
        *("Wien", "fedavg", "classification", "accuracy", ("no", "yes"), "logistic"),
        own=False,
        input_shape=(2,),
        tokens=False,
        outputs=2,
    )
    module = models.build("logistic", input_shape=(2,), classes=2)
    ClientModel("Wien", module, about, grouped).save("m")
    Path("new.csv").write_text("ward\nheart\nkidneys\n")
    code, _, err = command("predict", "m", "new.csv")
    assert (code, err) == (
        0,
        "glocal: column 'ward' has words that no training row had, or few had (kidneys): they "
        "count as (other).\n",
    )
