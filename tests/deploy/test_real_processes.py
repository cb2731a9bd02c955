"""Real processes, TLS and node keys: killed and started again, they end with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import real

pytest.importorskip("flwr", reason="make test-deploy installs it")

DP = "fedavg+dp(clip=0.5,noise=0.5)"
METHODS = ("ditto", "scaffold", "superfed-mm", "lg-fedavg", DP)
ROLES = ("shim", "node", "supernode", "superlink", "serverapp")


@pytest.mark.deploy
def test_ditto_with_its_supernode_and_superlink_killed_has_the_bits_of_a_simulation(
    tmp_path: Path,
) -> None:
    folder = real.made(tmp_path / "d", "ditto")
    with real.up(folder) as process:
        real.after_rounds(folder, 1)
        real.kill_in_a_round("supernode", folder)
        real.after_rounds(folder, 2)
        real.kill_in_a_round("superlink", folder)
        real.ended(process, folder)
    real.assert_same_bits(folder)


@pytest.mark.deploy_all
@pytest.mark.parametrize("method", METHODS)
def test_methods_have_the_bits_of_a_simulation(method: str, tmp_path: Path) -> None:
    folder = real.made(tmp_path / "d", method)
    with real.up(folder) as process:
        real.after_rounds(folder, 1)
        hidden = real.hidden_key(folder)
        real.ended(process, folder)
    assert (hidden is not None) == ("dp(" in method)
    real.assert_same_bits(folder, hidden)
    real.keep(f"{method}: the same bits; rounds of {real.seconds_a_round(folder)}")


@pytest.mark.deploy_all
@pytest.mark.parametrize("role", ROLES)
def test_whatever_is_killed_in_a_round_the_end_is_the_same(role: str, tmp_path: Path) -> None:
    method = DP if role in ("superlink", "serverapp") else "ditto"
    folder = real.made(tmp_path / "d", method)
    with real.up(folder) as process:
        real.after_rounds(folder, 1)
        hidden = real.hidden_key(folder)
        real.kill_in_a_round(role, folder)
        real.ended(process, folder)
    real.assert_same_bits(folder, hidden)
    seconds = real.seconds_a_round(folder)
    real.keep(f"{role} killed in round 2 of {method}: the same bits; rounds of {seconds}")
