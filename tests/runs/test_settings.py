"""Settings: what a file may hold, what Python may give, and one sentence for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glocal.core import validation as fields
from glocal.core.errors import GlocalError
from glocal.core.own_code import load_own
from glocal.experiment.config import Config, plain_kinds
from glocal.experiment.config_reading import from_mapping
from glocal.experiment.setup import augmentation
from glocal.runs.settings import read


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    text = """
        method = "fedprox(mu=0.1)"
        rounds = 3
        fraction = 1
        split = [0.6, 0.2, 0.2]
        transforms = ["rotate(90, clients=2)"]
        poisson = true
        [federation]
        anything = "at all"
    """
    method, settings = read(write(tmp_path, text))
    assert method == "fedprox(mu=0.1)"
    assert settings == Config(
        rounds=3,
        split=(0.6, 0.2, 0.2),
        transforms=("rotate(90, clients=2)",),
        poisson=True,
    )
    assert settings == from_mapping({**settings.as_toml()})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('rounds = "many"', "rounds must be an integer, not 'many': write rounds = 50."),
        ("rounds = true", "rounds must be an integer, not true: write rounds = 50."),
        ("rounds = 2.0", "rounds must be an integer, not 2.0: write rounds = 50."),
        ("rounds = 2020-01-31", "rounds must be an integer, not 2020-01-31: write rounds"),
        ("rounds = 99999999999999999999", "rounds must be smaller than 2^63, not 99999999999"),
        ("fraction = nan", "fraction must be a number, not nan: write fraction = 1."),
        ("poisson = 1", "poisson must be true or false, not 1: write poisson = false."),
        ("sampled = 1.5", "sampled must be an integer, not 1.5: write sampled = 1."),
        ("data = 3", 'data must be text, not 3: write data = "digits".'),
        ("split = [0.8, 0.2]", "split must be three numbers, not [0.8, 0.2]: write split = [0.7,"),
        ('split = [0.7, "x", 0.2]', "split must be three numbers, not [0.7, 'x', 0.2]"),
        ('transforms = "x"', "transforms must be a list of texts, not 'x': write transforms = ["),
        ("transforms = [1]", "transforms must be a list of texts, not [1]"),
        ("[rounds]\na = 1", "rounds must be an integer, not a table: write rounds = 50."),
        ("rouds = 3", "unknown setting 'rouds': did you mean 'rounds'? known are adapt, "),
        ("[round]\na = 1", "unknown setting 'round': did you mean 'rounds'?"),
        ("versions = 1", "versions is a table of what a run found: leave it out."),
        ("fraction = 0.5\nsampled = 2", "fraction and sampled say the same thing twice"),
        ("jobs = -1", "jobs must be an integer of 0 or more, not -1."),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_what_to_write(
    tmp_path: Path, lines: str, said: str
) -> None:
    path = write(tmp_path, f'method = "fedavg"\n{lines}\n')
    with pytest.raises(GlocalError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no method: add a line such as method = "),
        ("method = 3", 'method must be text, not 3: write method = "fedavg"'),
        ("method", "is not valid TOML"),
        ("a = " + "[" * 5000, "too long or nested too deep"),
        ("a = " + "9" * 5000, "too long or nested too deep"),
    ],
)
def test_what_is_no_settings_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        read(write(tmp_path, text))


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for path, said in [
        (tmp_path / "none.toml", "there is no file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / ("x" * 5000 + ".toml"), "x[.]{3} cannot be read: File name too long"),
        (tmp_path / "bytes.toml", "is not text in UTF-8"),
    ]:
        with pytest.raises(GlocalError, match=said):
            read(path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rounds": "many"}, "rounds must be an integer, not 'many'"),
        ({"rounds": True}, "rounds must be an integer, not True"),
        ({"rounds": 2**63}, "rounds must be smaller than"),
        ({"fraction": float("inf")}, "fraction must be a number, not inf"),
        ({"split": (0.7, 0.1, "x")}, "split must be three numbers, not"),
        ({"split": 3}, "split must be three numbers, not 3"),
        ({"transforms": "x"}, "transforms must be a list of texts, not 'x'"),
        ({"new_test": 0}, "new_test must be true or false, not 0"),
        ({"seed": None}, "seed must be an integer, not None"),
        ({"data": "d" * 10, "label": 10**5000}, "label must be text, not a number of thousands"),
    ],
)
def test_python_gets_the_same_sentences(values: dict[str, Any], said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        Config(**values)


def test_augmentations_and_models_in_files_that_make_no_sense() -> None:
    for text, said in [
        ("crop(-1)", "crop's pad must be an integer from 0 to 256, not -1"),
        ("crop(true)", "in crop, pad must be an integer, not True: write crop[(]pad=4[)]"),
        ("crop(4, 4)", "crop takes settings by name"),
        ("flip(1)", "flip takes no settings: write it without brackets"),
        ("flp", "unknown augmentation 'flp': did you mean 'flip'"),
    ]:
        with pytest.raises(GlocalError, match=said):
            augmentation(text)
    with pytest.raises(GlocalError, match=r"there is no file .*x[.]{3} for the model Net"):
        load_own("x" * 5000 + ".py:Net", "model")


def test_what_an_error_tells_to_write_is_right(tmp_path: Path) -> None:
    """Every setting as its own error would write it, in one file."""
    lines = [
        f"{name} = {fields.written(getattr(Config(), name), kind)}"
        for name, kind in plain_kinds().items()
        if getattr(Config(), name) is not None  # "text" names no attack
    ]
    method, settings = read(write(tmp_path, "\n".join(['method = "fedavg"', *lines])))
    assert method == "fedavg"
    assert settings.rounds == Config().rounds
    assert fields.written(123456789, int) == "123456789"
