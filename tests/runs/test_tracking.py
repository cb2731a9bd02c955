"""Trackers: what arrives, that a run can go on, and that training outlives them."""

import json
import math
import socket
import struct
import sys

import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.runs import tracking
from glocal.runs.tracking import Tracker, open_trackers

SETTINGS = {"method": "fedavg", "rounds": 5, "partition": None}
SUMMARY = {"mean": 0.9, "worst10": 0.8, "rounds": 5, "epsilon": None, "accuracies": [[0.9]]}
CLIENTS = [
    {"client": "a", "accuracy": 0.9, "benefit": 0.1},
    {"client": "b", "accuracy": 0.7, "benefit": math.nan},
]


def line(number, **more):
    return {"round": number, "cohort": 4, "update_norm": 1 / number, "stage": "x", **more}


class Noted:
    """A tracker that keeps what it is told, and fails when it is told to."""

    def __init__(self, failing=()):
        self.told, self.failing = [], failing

    def _note(self, *what):
        self.told.append(what)
        if what[0] in self.failing:
            raise ConnectionError("gone\nfor good: http://me:secret@host/")

    def line(self, line):
        self._note("line", line["round"])

    def finish(self, summary, clients):
        self._note("finish", summary["mean"])

    def close(self, end):
        self._note("close", end)


def test_a_tracker_that_fails_is_left_out_with_one_warning():
    good, bad, said = Noted(), Noted(failing=["line"]), []
    with Tracker({"bad": bad, "good": good}, said.append) as tracker:
        for number in (1, 2):
            tracker.line(line(number))
        tracker.finish(SUMMARY, CLIENTS)
    assert good.told == [("line", 1), ("line", 2), ("finish", 0.9), ("close", "FINISHED")]
    assert bad.told == [("line", 1)]
    assert said == [
        "bad no longer takes what happens (ConnectionError: gone for good: http://host/); "
        "the run goes on without it."
    ]


@pytest.mark.parametrize(
    ("error", "end"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (None, "KILLED")]
)
def test_how_a_run_ended_is_passed_on(error, end):
    sink = Noted(failing=["close"])
    said = []

    def train():
        with Tracker({"sink": sink}, said.append) as tracker:
            tracker.line(line(1))
            if error is not None:
                raise error

    if error is None:
        train()
    else:
        with pytest.raises(error):  # and not what the tracker raised
            train()
    assert sink.told[-1] == ("close", end)
    assert len(said) == 1


def test_warnings_go_print_note(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(tracking.TRACKERS, "noted", lambda *about: Noted(failing=["line"]))
    monkeypatch.setitem(tracking.PACKAGES, "noted", "json")
    with open_trackers(["noted", "noted"], tmp_path, "t", {}) as tracker:
        tracker.line(line(1))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("glocal: noted no longer takes what happens")
    assert said.err.count("\n") == 1


def test_unknown_and_missing_trackers_are_refused(monkeypatch, tmp_path):
    with pytest.raises(GlocalError, match="did you mean 'tensorboard'"):
        open_trackers(["tensorbord"], tmp_path, "t", {})
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(GlocalError, match=r"pip install 'glocal\[tensorboard\]'"):
        open_trackers(["tensorboard"], tmp_path, "t", {})
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(GlocalError, match=r"pip install 'glocal\[mlflow\]'"):
        tracking.check(["mlflow"])
    assert list(tmp_path.iterdir()) == []


def test_only_finite_numbers_are_passed_on():
    told = {"round": 1, "repeat": 2, "a": 1, "b": math.nan, "c": True, "d": None, "e": "x"}
    assert dict(tracking._numbers({**told, "left_out": ["p", "q"]})) == {"a": 1, "left_out": 2}


def events(folder):
    """All events of a log, in the order in which TensorBoard reads them."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.glob("events.*")):
        data = file.read_bytes()
        while data:
            (size,) = struct.unpack("Q", data[:8])
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def scalars(folder, tag):
    """What TensorBoard shows: a log that begins again takes back what was there from its step."""
    kept = {}
    for event in events(folder):
        if event.HasField("session_log"):
            kept = {step: value for step, value in kept.items() if step < event.step}
        for value in event.summary.value:
            if value.tag == tag:
                assert event.step not in kept
                kept[event.step] = value.simple_value
    return kept


def test_tensorboard_has_the_rounds_once_though_a_run_was_taken_up_again(tmp_path):
    pytest.importorskip("tensorboardX")
    with open_trackers(["tensorboard"], tmp_path, "t", SETTINGS) as tracker:
        assert list(tmp_path.iterdir()) == []
        for number in (1, 2, 3):
            tracker.line(line(number))
        # On disk at once: whoever is killed has lost nothing.
        assert set(scalars(tmp_path / "tensorboard" / "rounds", "update_norm")) == {1, 2, 3}
    with open_trackers(["tensorboard"], tmp_path, "t", SETTINGS) as tracker:
        for number in (3, 4):
            tracker.line(line(number, val_accuracy=0.5))
        tracker.finish(SUMMARY, CLIENTS)
    log = tmp_path / "tensorboard" / "rounds"
    assert len(list(log.iterdir())) == 2
    assert scalars(log, "update_norm") == pytest.approx({1: 1, 2: 1 / 2, 3: 1 / 3, 4: 1 / 4})
    assert set(scalars(log, "val_accuracy")) == {3, 4}
    assert scalars(log, "stage") == {}


def test_tensorboard_has_repeats_apart_and_what_came_of_the_run(tmp_path):
    pytest.importorskip("tensorboardX")
    with open_trackers(["tensorboard"], tmp_path, "t", SETTINGS) as tracker:
        for number in (1, 2):
            for repeat in (1, 2):
                tracker.line(line(number, repeat=repeat))
    for _ in range(2):  # the second time is all there is
        with open_trackers(["tensorboard"], tmp_path, "t", SETTINGS) as tracker:
            tracker.line(line(2, repeat=2))
            tracker.finish(SUMMARY, CLIENTS)
    root = tmp_path / "tensorboard"
    assert {p.name for p in root.iterdir()} == {"repeat-1", "repeat-2", "final"}
    for repeat in (1, 2):
        assert set(scalars(root / f"repeat-{repeat}", "cohort")) == {1, 2}
    assert scalars(root / "final", "final/mean") == {5: pytest.approx(0.9)}
    shown = {v.tag: v for e in events(root / "final") for v in e.summary.value}
    assert shown["clients/accuracy"].histo.num == 2
    assert shown["clients/benefit"].histo.num == 1
    text = b"".join(shown["settings/text_summary"].tensor.string_val).decode()
    assert "| method | fedavg |" in text
    assert "partition" not in text


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow with nothing in the environment, and what we set there gone afterwards."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("TRACKING_URI", "EXPERIMENT_NAME", "EXPERIMENT_ID"):
        monkeypatch.delenv(f"MLFLOW_{name}", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return pytest.importorskip("mlflow")


def read_back(mlflow, folder):
    client = mlflow.MlflowClient((folder / "mlflow").as_uri())
    run = client.get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])
    runs = client.search_runs([run.info.experiment_id])
    steps = {
        name: [m.step for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    return client, run, runs, steps


def test_mlflow_goes_on_in_the_same_run_with_every_round_once(mlflow, tmp_path):
    folder = tmp_path / "één run"
    folder.mkdir()
    with open_trackers(["mlflow"], folder, "a title", SETTINGS) as tracker:
        assert list(folder.iterdir()) == []
        for number in (1, 2, 3):
            for repeat in (1, 2):
                tracker.line(line(number, repeat=repeat))
    assert read_back(mlflow, folder)[1].info.status == "KILLED"
    with open_trackers(["mlflow"], folder, "a title", SETTINGS) as tracker:
        tracker.line(line(2, repeat=2))
        assert read_back(mlflow, folder)[1].info.status == "RUNNING"
        for number in (3, 4):
            tracker.line(line(number, repeat=2, val_accuracy=0.5))
        tracker.finish(SUMMARY, CLIENTS)
    client, run, runs, steps = read_back(mlflow, folder)
    assert len(runs) == 1
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a title")
    assert run.data.params == {"method": "fedavg", "rounds": "5"}
    assert steps["update_norm/repeat-1"] == [1, 2, 3]
    assert steps["update_norm/repeat-2"] == [1, 2, 3, 4]
    assert steps["val_accuracy/repeat-2"] == [3, 4]
    assert run.data.metrics["mean"] == 0.9
    assert "epsilon" not in run.data.metrics
    found = client.download_artifacts(run.info.run_id, "clients.json", str(tmp_path))
    with open(found) as file:
        assert json.load(file) == {"clients": [CLIENTS[0], {**CLIENTS[1], "benefit": None}]}


def test_mlflow_begins_anew_where_its_run_is_gone(mlflow, tmp_path):
    for _ in range(2):
        with open_trackers(["mlflow"], tmp_path, "t", SETTINGS) as tracker:
            tracker.line(line(1))
        client, run, runs, steps = read_back(mlflow, tmp_path)
        assert (len(runs), steps["cohort"]) == (1, [1])
        client.delete_run(run.info.run_id)
    (tmp_path / "mlflow.json").write_text("{")
    with open_trackers(["mlflow"], tmp_path, "t", SETTINGS) as tracker:
        tracker.line(line(1))
    assert len(read_back(mlflow, tmp_path)[2]) == 1


def test_mlflow_that_fails_on_the_way_does_not_end_the_training(mlflow, tmp_path, monkeypatch):
    said, lines = [], []
    fed = glocal.federation(*toy(), clients=[0, 1] * 20, seed=0)

    def fail(*_, **__):
        raise mlflow.exceptions.MlflowException("the server is gone")

    with open_trackers(["mlflow"], tmp_path, "t", SETTINGS, said.append) as tracker:

        def on_line(one):
            lines.append(one)
            tracker.line(one)
            monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fail)

        yard = "local(lr=0.1, max_epochs=1)"
        run = glocal.fit("fedavg", fed, rounds=3, baseline=yard, on_line=on_line)
        tracker.finish(run.summary, run.clients)
    assert [one["round"] for one in lines] == [1, 2, 3]
    assert len(said) == 1
    assert "the server is gone" in said[0]
    assert read_back(mlflow, tmp_path)[3]["cohort"] == [1]


def toy():
    import torch

    x = torch.arange(120.0).reshape(40, 3) / 120
    return x, (x[:, 0] > 0.5).long()


def test_tensorboard_has_the_learning_curves_of_a_run(tmp_path):
    pytest.importorskip("tensorboardX")
    x, y = toy()
    fed = glocal.federation(x, y, [i // 20 for i in range(40)], central=(x, y))
    about = {"model": "mlp(2)", "rounds": 4, "validate_every": 2, "baseline": "none"}
    with open_trackers(["tensorboard"], tmp_path, "t", SETTINGS) as tracker:
        run = glocal.fit("fedavg", fed, **about, on_line=tracker.line)
    log = tmp_path / "tensorboard" / "rounds"
    names = ("train_loss", "val_loss", "val_accuracy", "val_worst10", "val_gini")
    for name in (*names, "central_accuracy"):
        recorded = {line["round"]: line[name] for line in run.history if name in line}
        assert scalars(log, name) == pytest.approx(recorded)
        assert set(recorded) == {2, 4}


def test_an_mlflow_server_that_does_not_answer_is_refused(mlflow, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{port}")
    with pytest.raises(GlocalError, match="cannot be used") as refused:
        open_trackers(["mlflow"], tmp_path, "t", SETTINGS)
    assert "secret" not in str(refused.value)
    assert "MLFLOW_TRACKING_URI" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_mlflow_uses_the_place_and_the_experiment_that_the_environment_names(
    mlflow, tmp_path, monkeypatch
):
    place = (tmp_path / "elsewhere").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    folder = tmp_path / "run"
    folder.mkdir()
    with open_trackers(["mlflow"], folder, "t", SETTINGS) as tracker:
        tracker.line(line(1))
    assert [p.name for p in folder.iterdir()] == ["mlflow.json"]
    client = mlflow.MlflowClient(place)
    experiment = client.get_experiment_by_name("mine")
    assert len(client.search_runs([experiment.experiment_id])) == 1
    # Here there is nothing of it: another place, another run.
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with open_trackers(["mlflow"], folder, "t", SETTINGS) as tracker:
        tracker.line(line(2))
    assert read_back(mlflow, folder)[3]["cohort"] == [2]
