import json

import pytest
import torch

from glocal.studies import bench
from glocal.studies.bench import CASES, CONTESTANTS, HEADER, Case, render, run_bench

DENSE = Case("dense", "mlp(4)", (6,), clients=3, examples=5, batch_size=2, classes=3)
IMAGES = Case("images", "lenet", (1, 8, 8), clients=2, examples=4, batch_size=3, classes=3)
TEXT = Case("text", "char-lstm(hidden=4, layers=1)", (5,), 2, 4, 2, classes=7)


def test_every_contestant_is_timed_on_every_case_and_ends_at_the_same_loss() -> None:
    ticks: list[tuple[str, int, int]] = []
    result = run_bench(
        repeats=2, cases=[DENSE, IMAGES, TEXT], progress=lambda *tick: ticks.append(tick)
    )
    assert [case["name"] for case in result["cases"]] == ["dense", "images", "text"]
    assert [case["auto"] for case in result["cases"]] == ["vectorised", "sequential", "vectorised"]
    for case in result["cases"]:
        assert all(case[f"{who}_ms"] > 0 for who in CONTESTANTS)
        losses = [case[f"loss_{who}"] for who in CONTESTANTS]
        assert max(losses) - min(losses) <= bench.TOLERANCE
        assert 0 <= case["difference"] <= bench.TOLERANCE
    assert result["cases"][0]["parameters"] == 6 * 4 + 4 + 4 * 3 + 3
    assert {"cores", "threads", "torch", "python"} <= result["machine"].keys()
    assert ticks[-1] == ("bench", 9, 9)  # a warm-up and two repeats of three cases
    json.dumps(result)


def test_rows_have_the_ratios() -> None:
    times = {"loop_ms": 30.0, "sequential_ms": 20.0, "vectorised_ms": 10.0, "auto_ms": 12.5}
    case = {"name": "x", **times, "auto": "vectorised", "loss_loop": 2.0}
    (row,) = render({"cases": [case]})
    assert len(row) == len(HEADER)
    ratios = dict(zip(HEADER, row, strict=True))
    assert ratios["loop / sequential"] == "1.50"
    assert ratios["loop / vectorised"] == "3.00"
    assert ratios["best / auto"] == "0.80"


def test_the_cases_that_others_rely_on() -> None:
    assert [case.name for case in CASES] == ["mlp-small", "mlp", "lenet", "cnn"]


def test_a_contestant_that_skips_work_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = bench.plain_loop

    def lazy(initial, x, y, orders, *settings):  # type: ignore[no-untyped-def]
        return honest(initial, x, y, [order[:-1] for order in orders], *settings)

    monkeypatch.setattr(bench, "plain_loop", lazy)
    with pytest.raises(RuntimeError, match=r"dense: sequential ends at loss .* same work"):
        run_bench(repeats=1, cases=[DENSE])


def test_a_contestant_that_diverges_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = bench.plain_loop

    def broken(*given):  # type: ignore[no-untyped-def]
        return {k: torch.full_like(v, torch.nan) for k, v in honest(*given).items()}

    monkeypatch.setattr(bench, "plain_loop", broken)
    with pytest.raises(RuntimeError, match="same work"):
        run_bench(repeats=1, cases=[DENSE])
