"""Run folders: files whole or not at all, JSON and TOML that others can read."""

import json
import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.experiment import result_files
from glocal.runs import folder as runs

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAF = TEXT | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = LEAF | st.booleans() | st.lists(TEXT) | st.dictionaries(TEXT, LEAF | st.lists(TEXT))


@given(st.dictionaries(TEXT, VALUE))
def test_toml_reads_back(values):
    assert tomllib.loads(files.toml(values)) == values


def test_toml_leaves_out_what_is_none():
    assert tomllib.loads(files.toml({"a": None, "t": {"b": None, "c": [1]}})) == {"t": {"c": [1]}}


def test_json_has_no_nan_and_says_null():
    shown = json.loads(files.dump(files.plain({"a": math.nan, "b": [math.inf, 1.5], "c": (True,)})))
    assert shown == {"a": None, "b": [None, 1.5], "c": [True]}


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    files.write(file, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GlocalError, match="No space left"):
        files.write(file, b"new")
    assert file.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_prepare_refuses_files_and_full_folders(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(GlocalError, match="is a file"):
        runs.prepare(tmp_path / "file")
    with pytest.raises(GlocalError, match="not empty"):
        runs.prepare(tmp_path / "full")
    with pytest.raises(GlocalError, match="cannot be made"):
        runs.prepare(tmp_path / "file" / "below")
    assert runs.prepare(tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("fedavg", "fedavg"),
        ("fedprox(mu=0.1)+uniform", "fedprox_mu=0.1_+uniform"),
        ("../up", "up"),
        ("…", "method"),
    ],
)
def test_a_spec_as_the_name_of_a_folder(spec, name):
    assert result_files.slug(spec) == name


def test_fresh_names_do_not_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: form.replace("%Y-%m-%d-%H%M%S", "now"))
    first = runs.fresh_name("compare")
    first.mkdir(parents=True)
    assert (str(first), str(runs.fresh_name("compare"))) == (
        "runs/now-compare",
        "runs/now-compare-2",
    )
