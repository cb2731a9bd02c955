"""Run folders listed: states, damage, and nothing written or disturbed."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import glocal
from glocal.cli import app as cli
from glocal.core import locks
from glocal.core.errors import GlocalError
from glocal.runs import listing
from glocal.runs import query as asking

ALONE = "local(lr=0.1, max_epochs=2)"
QUICK = ["--model", "logistic", "--rounds", "2", "--clients", "4", "--baseline", ALONE]


def command(*words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["glocal", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    return stop.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A comparison of two methods, a run on another partition, and a run saved from Python."""
    place = tmp_path_factory.mktemp("made")
    x = np.random.default_rng(0).normal(size=(160, 3))
    np.savez(place / "toy.npz", x=x, y=(x.sum(1) > 0).astype(int) + (x[:, 0] > 1))
    root, partition = place / "runs", "dirichlet(0.3)"
    quick = ["--data", place / "toy.npz", *QUICK, "--partition", partition]
    plain = ("--repeats", "1", "--no-tune", "--baseline", "same")
    assert command("compare", "local", "fedavg", *quick, *plain, "--out", root / "both") == 0
    other = ["--partition", "iid", "--repeats", "2", "--seed", "1"]
    assert command("run", "fedprox(mu=0.1)", *quick, *other, "--out", root / "één") == 0
    fed = glocal.load(str(place / "toy.npz"), clients=4, partition=partition)
    glocal.fit("fedavg", fed, model="logistic", rounds=2, baseline=ALONE).save(root / "saved")
    for place, seconds in (("both/local", 1), ("both/fedavg", 2), ("één", 3), ("saved", 4)):
        for name in listing.FILES:
            if (root / place / name).exists():
                os.utime(root / place / name, (1e9 + seconds, 1e9 + seconds))
    return root


@pytest.fixture
def root(made, tmp_path, monkeypatch):
    """A copy to be damaged, and the folder we are in."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return Path("runs")


@pytest.fixture
def runs(root, capsys):
    """Call ``glocal runs``: exit code, stdout, stderr."""

    def call(*words):
        capsys.readouterr()
        code = command("runs", *words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def by_name(found):
    return {str(run.folder.relative_to("runs")): run for run in found}


def test_runs_are_found_also_inside_comparisons(root):
    found, strange = listing.find([root, root / "both", root])
    runs = by_name(found)
    assert set(runs) == {"both/local", "both/fedavg", "één", "saved"}
    assert strange == []
    assert {run.state for run in found} == {"finished"}
    result = json.loads((root / "één" / "result.json").read_text())
    (own,) = result["methods"].values()
    one = runs["één"]
    assert one.figure("mean") == own["summary"]["mean"]
    assert (one.value("partition"), one.value("rounds"), one.value("seed")) == ("iid", 2, 1)
    assert (one.rounds_done, one.rounds_asked) == (4, 4)
    assert runs["both/fedavg"].value("partition") == "dirichlet(0.3)"  # though none was asked for
    assert runs["both/local"].alone
    assert runs["saved"].method == "fedavg"
    assert runs["saved"].value("data") == runs["both/fedavg"].value("data")
    assert runs["saved"].figure("mean") == runs["both/fedavg"].figure("mean")


def test_nothing_is_written(root):
    def everything():
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}

    (root / "één" / ".lock").touch()
    (root / "één" / "result.json").unlink()
    before = everything()
    listing.find([root])
    assert everything() == before


def test_running_while_the_lock_is_held_and_stopped_after(root):
    folder = root / "één"
    (folder / "result.json").unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "coh')  # half a line
    assert listing.read(folder).state == "stopped"
    with locks.hold(folder):
        run = listing.read(folder)
        rounds = f"{run.rounds_done} of {run.rounds_asked}"
        assert (run.state, rounds, run.problem) == ("running", "4 of 4", None)
    assert listing.read(folder).state == "stopped"


def test_a_run_that_finishes_while_we_look_is_finished(root, monkeypatch):
    folder = root / "één"
    (folder / "result.json").rename(folder / "later")

    def finish(folder_):
        (folder / "later").rename(folder / "result.json")
        return False

    monkeypatch.setattr(locks, "held", finish)
    assert listing.read(folder).state == "finished"


def test_rounds_written_twice_count_once(root):
    folder = root / "both" / "fedavg"
    (folder / "result.json").unlink()
    lines = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(lines + lines)
    assert listing.read(folder).rounds_done == 2


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("result.json", b'{"schema": 1, "meth', "result.json is not valid JSON"),
        ("result.json", b'{"schema": 7, "methods": {}}', "has schema 7, and this version reads 1"),
        ("result.json", b'{"schema": 1, "methods": {"x": {}}}', "no figures of fedprox"),
        ("result.json", b'{"schema": 1, "methods": [1]}', "no figures of fedprox"),
        ("result.json", b"[]", "result.json is not a run's"),
        ("result.json", b"\xff\xfe\x00", "result.json is not valid JSON"),
        ("result.json", b"[" * 100_000, "result.json is not valid JSON"),
        ("settings.toml", b"\x00\xff\x80random", "settings.toml is not valid TOML"),
        ("settings.toml", b"rounds = ", "settings.toml is not valid TOML"),
        ("settings.toml", b"method = 3\n", "names no method"),
        ("settings.toml", b'[tool]\nname = "other"\n', "names no method"),
    ],
)
def test_what_is_damaged_says_why(root, name, content, problem):
    (root / "één" / name).write_bytes(content)
    one = by_name(listing.find([root])[0])["één"]
    assert one.state == "damaged"
    assert problem in one.problem
    assert "\n" not in one.problem


def test_settings_and_figures_of_the_wrong_kind_are_only_shown(root, runs):
    (root / "één" / "settings.toml").write_text(
        'method = "fedavg"\nrounds = "many"\nclients = []\nfederation = 3\nseed = 1e400\n'
    )
    result = {"schema": 1, "methods": {"fedavg": {"summary": {"mean": "x", "gini": float("nan")}}}}
    (root / "één" / "result.json").write_text(json.dumps(result))
    one = listing.read(root / "één")
    assert (one.state, one.figure("mean"), one.figure("gini")) == ("finished", None, None)
    for words in ((), ("--sort", "rounds"), ("--sort", "clients"), ("--where", "rounds>1")):
        assert runs(*words)[0] == 0
    code, out, _ = runs("--json", "-")
    assert code == 0
    assert len(json.loads(out)["runs"]) == 4


def test_what_is_damaged_meets_no_condition(root, runs):
    (root / "één" / "settings.toml").write_text("?")
    for condition in ("seed=0", "seed!=0", "sampled=none", "rounds<9"):
        assert "runs/één " not in runs("--where", condition)[1]
    assert shown(runs("--state", "damaged")[1]) == ["runs/één"]


def test_a_line_that_cannot_be_read_is_named(root, runs):
    (root / "één" / "result.json").unlink()
    (root / "één" / "metrics.jsonl").write_bytes(b'{"round": 1}\nnonsense\n{"round": 2}\n{"ro')
    one = listing.read(root / "één")
    assert (one.state, one.rounds_done) == ("stopped", 2)
    assert one.problem == "line 2 of metrics.jsonl cannot be read"
    assert "line 2 of metrics.jsonl cannot be read." in runs()[1]


def test_folders_without_a_run_are_named_and_left_files_are_damaged(root, runs):
    (root / "notes" / "deep").mkdir(parents=True)
    (root / "left").mkdir()
    (root / "left" / "metrics.jsonl").write_text("")
    found, strange = listing.find([root])
    assert by_name(found)["left"].problem == "there is no settings.toml"
    assert strange == [root / "notes"]
    code, out, _ = runs()
    assert code == 0
    assert "Without a run in it: runs/notes." in out
    assert "runs/left: there is no settings.toml." in out


def test_a_comparison_whose_runs_are_gone_is_damaged(root):
    for name in ("local", "fedavg"):
        shutil.rmtree(root / "both" / name)
    assert by_name(listing.find([root])[0])["both"].problem == (
        "result.json has no figures of just one run"
    )


def test_other_settings_in_the_place_do_not_hide_its_runs(root):
    Path("settings.toml").write_text("colour = 1\n")
    found, _ = listing.find([Path()])
    assert len(found) == 5


def test_names_of_any_bytes_can_be_printed(root, runs):
    strange = os.fsdecode("runs/a\x1b[31m\nb\x80".encode("latin-1"))
    try:
        shutil.copytree(root / "één", strange)
    except OSError:
        pytest.skip("this file system takes no such name")
    code, out, _ = runs()
    assert code == 0
    assert "runs/a�[31m�b�" in out
    assert "\x1b" not in out
    assert runs("--json", "all.json")[0] == 0


def shown(out):
    """The folders of a table with one line a run."""
    return [line.split()[0] for line in out.splitlines() if "  " in line and line[:5] == "runs/"]


def test_the_table_is_newest_first_and_says_once_what_is_the_same(runs):
    code, out, err = runs()
    assert (code, err) == (0, "")
    assert shown(out) == ["runs/saved", "runs/één", "runs/both/fedavg", "runs/both/local"]
    head = "folder state method data rounds seed mean % b/w/s/u when"
    assert " ".join(out.splitlines()[1].split()) == head
    assert "In all of them: 4 clients." in out
    row = next(line for line in out.splitlines() if "één" in line)
    for text in ("finished", "fedprox(mu=0.1)", "toy.npz iid", "2×2", "2001-09-09"):
        assert text in row
    (counts,) = re.findall(r"\d+/\d+/\d+/\d+", row)
    assert sum(map(int, counts.split("/"))) == 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--method", "FEDPROX"], {"één"}),
        (["--method", "fed*"], {"één", "saved", "both/fedavg"}),
        (["--method", "avg*"], set()),
        (["--data", "toy.npz"], {"één", "saved", "both/fedavg", "both/local"}),
        (["--data", "toy"], set()),
        (["--data", "[t]oy.npz"], set()),
        (["--state", "stopped"], set()),
        (["--where", "seed=1"], {"één"}),
        (["--where", "seed!=1"], {"saved", "both/fedavg", "both/local"}),
        (["--where", "partition=dirichlet*"], {"saved", "both/fedavg", "both/local"}),
        (["--where", "repeats = 1", "--where", "method=local"], {"both/local"}),
        (["--where", "mean>0.2", "--where", "checkpoint-every<=0"], {"één", "both/*"}),
        (["--where", "sampled=none", "--where", "poisson=false", "--where", "seed<1"], {"both/*"}),
        (["--where", "split=0.7"], {"één", "both/*"}),
        (["--limit", "1"], {"saved"}),
        (["--limit", "1", "--reverse"], {"both/local"}),
    ],
)
def test_filters(runs, words, expected):
    code, out, _ = runs(*words)
    assert code == 0
    expected |= {"both/local", "both/fedavg"} if "both/*" in expected else set()
    assert set(shown(out)) == {f"runs/{name}" for name in expected - {"both/*"}}
    if not expected:
        assert "None of 4 runs is like that" in out


def test_sorting_puts_the_best_first_and_what_is_missing_last(root, runs):
    (root / "saved" / "result.json").write_text("{")
    found = by_name(listing.find([root])[0])
    means = {n: r.figure("mean") for n, r in found.items() if r.state == "finished"}
    best = sorted(means, key=lambda name: -means[name])
    assert shown(runs("--sort", "mean")[1]) == [f"runs/{n}" for n in [*best, "saved"]]
    assert shown(runs("--sort", "mean", "--reverse")[1])[-1] == "runs/saved"
    assert shown(runs("--sort", "folder")[1])[0] == "runs/both/fedavg"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "round=50"], "unknown setting 'round': did you mean 'rounds'?"),
        (["--where", "rounds"], "is no condition"),
        (["--where", "rounds>x"], "compares with no number"),
        (["--sort", "maen"], "did you mean 'mean'?"),
        (["--state", "done"], "unknown state 'done'"),
        (["--limit", "0"], "--limit must be 1 or more"),
        (["nowhere"], "there is no folder nowhere"),
        (["--compare", "runs/één"], "there is one run to compare here"),
        (["--json", "no/such.json"], "does not exist"),
    ],
)
def test_bad_input_is_one_line(runs, words, said):
    code, out, err = runs(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_an_empty_place_says_what_to_do(runs, root):
    shutil.rmtree(root)
    code, _, err = runs()
    assert code == 2
    assert "make a first run with 'glocal compare'" in err
    root.mkdir()
    code, out, _ = runs()
    assert code == 0
    assert "There are no runs in runs" in out


def test_json_has_settings_and_figures(runs):
    code, out, _ = runs("--json", "-", "--sort", "folder")
    assert code == 0
    first = json.loads(out)["runs"][0]
    assert first["folder"] == "runs/both/fedavg"
    assert first["settings"]["rounds"] == 2
    assert 0 < first["summary"]["mean"] < 1
    assert len(first["federation"]["fingerprint"]) == 64
    assert runs("--json", "list.json")[0] == 0
    assert len(json.loads(Path("list.json").read_text())["runs"]) == 4


def test_compare_shows_what_differs_and_the_figures(runs):
    code, out, _ = runs("--compare", "runs/both/fedavg", "runs/both/local")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["method", "fedavg", "local"] in lines
    assert not any(line[:1] == ["rounds"] for line in lines)
    assert "not comparable" not in out
    means = next(line for line in lines if line[:1] == ["mean"])
    found = by_name(listing.find([Path("runs/both")])[0])
    assert means[2:] == [
        f"{100 * found[n].figure('mean'):.1f}" for n in ("both/fedavg", "both/local")
    ]
    assert next(line for line in lines if line[:2] == ["better", "off"])[-1] == "–"


def test_compare_says_when_figures_are_not_comparable(runs, root):
    (root / "both" / "fedavg" / "result.json").unlink()
    code, out, _ = runs("--compare", "runs/both/fedavg", "runs/één", "runs/both/local")
    assert code == 0
    text = " ".join(out.split())
    assert "not comparable: the runs differ in data, partition or split" in text
    marks = [listing.read(root / n).fingerprint[:12] for n in ("both/fedavg", "één")]
    assert f"(fingerprints A, C: {marks[0]}; B: {marks[1]})" in text
    assert "differ in repeats" in text
    assert "Without figures, as not finished or damaged: A." in text
    assert ["partition", "dirichlet(0.3)", "iid", "dirichlet(0.3)"] in [
        line.split() for line in out.splitlines()
    ]
    found = json.loads(runs("--compare", "runs/both/fedavg", "runs/één", "--json", "-")[1])
    assert found["differing"]["seed"] == ["0", "1"]
    assert found["incomparable"]
    assert [one["label"] for one in found["runs"]] == ["A", "B"]


def test_compare_says_when_the_folders_do_not_name_their_data(runs, root):
    shutil.copytree(root / "saved", root / "again")
    out = runs("--compare", "runs/saved", "runs/again")[1]
    assert "They have the same settings." in out
    assert "may not be comparable" in out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_long_and_wide_names_keep_to_the_columns(runs, root, monkeypatch, columns):
    from rich.cells import cell_len

    shutil.copytree(root / "één", root / ("東京病院" * 12))
    shutil.copytree(root / "both", root / ("comparison-of-many-methods-on-much-data" * 2))
    (root / "saved" / "result.json").write_text("{")
    monkeypatch.setenv("COLUMNS", str(columns))
    out = runs()[1]
    assert max(map(cell_len, out.splitlines())) <= columns
    assert out.count("東") == 12
    out = runs("--compare")[1]
    assert max(map(cell_len, out.splitlines())) <= columns


def test_a_sort_key_may_be_any_setting(root):
    found, _ = listing.find([root])
    assert asking.ordered(found, "validate-every")
    with pytest.raises(GlocalError, match="unknown setting"):
        asking.ordered(found, "nothing_like_it")
