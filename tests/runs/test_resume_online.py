"""Clients that are away or slow in a run that is stopped and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stopping import same, stop_after

from conftest import Command

pytestmark = pytest.mark.usefixtures("few_digits")


def test_a_run_with_absent_and_slow_clients_resumes_to_the_bit(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "scaffold", "--clients", "6", "--model", "mlp(8)", "--rounds", "4"]
    words += ["--baseline", "none", "--checkpoint-every", "1"]
    words += ["--availability", "on-off(2, 1)+dropout(0.3)", "--stragglers", "use(0.7)"]
    assert command(*words, "--out", "whole")[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert command(*words, "--out", "a")[0] == 130
    assert command("resume", "a")[0] == 0
    assert same(Path("whole"), Path("a"))
    lines = [json.loads(line) for line in Path("a/metrics.jsonl").read_text().splitlines()]
    assert any("away" in line for line in lines)
    assert any("stragglers" in line for line in lines)
    text = Path("a/settings.toml").read_text()
    assert 'availability = "on-off(2, 1)+dropout(0.3)"' in text
    assert 'stragglers = "use(0.7)"' in text
