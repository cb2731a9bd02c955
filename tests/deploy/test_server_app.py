"""What runs in Flower's ServerApp: what fails there is written where its operator looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.participants import write_settings, write_tables
from glocal.deploy import flower_server, server_folder, up
from glocal.deploy.init import plan_of
from glocal.deploy.server_folder import ServerFolder


def test_what_fails_without_a_sentence_of_ours_is_in_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path)
    folder = ServerFolder(tmp_path / "server")
    folder.path.mkdir()
    plan_of(write_settings(tmp_path)).write(folder.plan_file)
    monkeypatch.setenv(flower_server.FOLDER, str(folder.path))

    def failing(*given: Any) -> None:
        raise ValueError("code of the plan's own")

    for where, name in ((flower_server, "run_rounds"), (server_folder, "read_plan")):
        monkeypatch.setattr(where, name, failing)
        with pytest.raises(ValueError, match="code of the plan's own"):
            flower_server.main(None, None)  # type: ignore[arg-type]
    log = folder.failures.read_text()
    assert log.count("ValueError: code of the plan's own\n") == 2
    assert log.count("Traceback") == 2
    assert up._size(folder.failures) == len(log)
    assert not folder.error_file.exists()
