"""The public surface, and what importing it takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import glocal

HEAVY = ("typer", "rich", "sklearn", "scipy", "safetensors", "tomli_w", "pandas", "click")
HEAVY += ("openpyxl", "polars", "pyarrow")

HIDDEN = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {blocked!r}
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )


def test_all_is_sorted_and_everything_in_it_is_there() -> None:
    assert glocal.__all__ == sorted(glocal.__all__)
    assert set(glocal._HOME) == set(glocal.__all__)
    for name in glocal.__all__:
        assert getattr(glocal, name) is not None
    assert glocal.__version__.count(".") == 2


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'glocal' has no attribute 'fitt'"):
        glocal.fitt  # noqa: B018


def test_a_name_may_be_imported_before_any_module() -> None:
    done = run("from glocal import fit, list_methods, load; assert 'fedavg' in list_methods()")
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_wait_for_torch() -> None:
    done = run("import glocal, sys; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_the_core_runs_with_torch_and_numpy_alone() -> None:
    """Importing, a federation of one's own, a run, and the conformance kit's module."""
    code = HIDDEN.format(blocked=set(HEAVY)) + (
        "import torch, glocal, glocal.testing, glocal.engines, glocal.nn.augment, glocal.nn\n"
        "fed = glocal.testing.ragged()\n"
        "alone = 'local(max_epochs=1)'\n"
        "run = glocal.fit('fedprox', fed, model='mlp(4)', rounds=1, baseline=alone)\n"
        "assert len(run.clients) == 6\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_what_is_hidden_is_not_found() -> None:
    done = run(HIDDEN.format(blocked=set(HEAVY)) + "import rich\n")
    assert "No module named 'rich'" in done.stderr
