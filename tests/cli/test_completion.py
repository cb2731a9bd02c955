"""Completions of the shell: names without an import, checked against the tables that have them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glocal.cli import completion
from glocal.core.target import TASKS
from glocal.data.datasets.registry import SOURCES
from glocal.data.partition import list_partitions
from glocal.data.preprocessing.fitting import MODES
from glocal.data.transforms import TRANSFORMS
from glocal.engines import NAMES as ENGINES
from glocal.experiment.adaptation import TECHNIQUES
from glocal.experiment.config import plain_kinds
from glocal.methods import registry
from glocal.nn.augment import AUGMENTATIONS
from glocal.nn.losses import LOSSES
from glocal.nn.models import REGISTRY
from glocal.nn.precision import PRECISIONS
from glocal.runs.tracking import TRACKERS
from glocal.training.availability import ABSENCES
from glocal.training.client_state.placement import PLACES
from glocal.training.divergence import POLICIES
from glocal.training.stragglers import POLICIES as OF_STRAGGLERS

BUILT_IN = {
    "adapt": [*TECHNIQUES, "best"],
    "augment": AUGMENTATIONS,
    "availability": ABSENCES,
    "data": SOURCES,
    "diverged": POLICIES,
    "engine": ENGINES,
    "losses": LOSSES,
    "metric": {metric for task in TASKS.values() for metric in task.metrics},
    "model": REGISTRY,
    "partition": list_partitions(),
    "precision": PRECISIONS,
    "preprocessing": MODES,
    "states": PLACES,
    "stragglers": OF_STRAGGLERS,
    "task": [*TASKS, "auto"],
    "track": TRACKERS,
    "transforms": TRANSFORMS,
}


@pytest.mark.parametrize("setting", BUILT_IN)
def test_the_names_of_a_setting_are_those_of_its_table(setting: str) -> None:
    complete = completion.of_setting(setting)
    assert complete is not None
    assert set(complete("")) == {each.partition("(")[0] for each in BUILT_IN[setting]}
    assert setting in plain_kinds()


def test_every_setting_that_is_completed_has_a_table_here() -> None:
    assert set(completion.OF_SETTING) == {*BUILT_IN, "baseline", "device"}
    assert completion.of_setting("rounds") is None


def test_methods_and_after_a_plus_components() -> None:
    assert completion.methods("") == list(registry.BUILT_IN)
    assert completion.methods("fedp") == ["fedper", "fedprox"]
    components = [name.partition("+")[2] for name in completion.methods("fedprox(mu=0.1)+")]
    assert sorted(components) == registry.known(*registry.COMPONENTS)
    assert completion.methods("fedavg+uniform+med") == ["fedavg+uniform+median"]


def test_folders_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert completion.run_folders("") == []
    for name in ("2026-01-01-000000-ditto", "2026-02-01-000000-compare"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "notes.txt").touch()
    newest, oldest = "runs/2026-02-01-000000-compare", "runs/2026-01-01-000000-ditto"
    assert completion.run_folders("") == [newest, oldest]
    assert completion.run_folders("runs/2026-01") == [oldest]


SHELL = """
eval "$(_GLOCAL_COMPLETE=source_bash glocal)"
completed() {
    COMP_WORDS=(glocal "$@") COMP_CWORD=$# COMPREPLY=()
    _glocal_completion glocal
    echo "${COMPREPLY[*]}"
}
completed doc
completed run fedpr
completed compare --partition q
completed run fedavg+tr
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_shell(tmp_path: Path) -> None:
    """As bash calls it; torch is not imported, since a Tab would take seconds."""
    script = tmp_path / "glocal"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nfrom glocal.cli.app import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    script.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f'PATH="{tmp_path}:$PATH"\n{SHELL}'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split("\n") == ["doctor", "fedprox", "quantity", "fedavg+trimmed-mean", ""]
