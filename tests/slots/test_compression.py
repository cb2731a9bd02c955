"""Compressed updates in a federation: what is remembered, what is counted, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params
from glocal.data.federation import Federation
from glocal.methods import registry, resolve
from glocal.methods.fedavg import fedavg
from glocal.report.comparison import show_comparison
from glocal.slots.client import Local, Phase
from glocal.slots.compression import Compression, compress_updates
from glocal.slots.compressors import low_rank, quantised, top_k
from glocal.slots.method import Method
from glocal.testing import check_method, ragged


def fitted(spec: str | Method, fed: Federation | None = None, **given: Any) -> glocal.Run:
    plain = {"rounds": 3, "model": "mlp(3)", "sampled": 3, "baseline": "none"}
    return glocal.fit(spec, ragged() if fed is None else fed, **{**plain, **given})


def one_round(local: Local, client: Any, params: Params, number: int) -> tuple[Params, Any]:
    """What a client sends and keeps whose update is what it receives."""
    down: Downlink = {"params": params, "round": torch.tensor(float(number))}
    task: Any = None
    sent, kept, _ = local.finish(task, down, local.start(task, down, client))
    return sent, kept


def echo() -> Local:
    """A client that sends what it receives, and does not train."""
    return Local(
        phases=(Phase("train", 1, lambda task, down, carry, batch, key: carry),),
        start=lambda task, down, client: {},
        finish=lambda task, down, carry: (down["params"], {}, {}),
    )


NAMES = frozenset({"w", "b"})


@settings(max_examples=20)
@given(
    st.sampled_from([top_k(0.1), quantised(2, rounding="nearest"), low_rank(1)]),
    st.integers(0, 99),
)
def test_what_was_sent_and_what_is_remembered_are_all_updates(
    compression: Compression, seed: int
) -> None:
    local, task = compress_updates(echo(), compression, NAMES), Any
    key = rng.key(seed)
    updates = [
        {"w": rng.normal(rng.fold(key, 2 * t), (5, 4)), "b": rng.normal(rng.fold(key, t), (3,))}
        for t in range(6)
    ]
    client = local.init(task, updates[0], key)  # type: ignore[arg-type]
    assert not any(bool(leaf.any()) for leaf in client["unsent"].values())
    total = tree.zeros(updates[0])
    for t, update in enumerate(updates):
        sent, client = one_round(local, client, update, t)
        total = tree.add(total, sent)
    for name in NAMES:
        want = torch.stack([update[name] for update in updates]).sum(0)
        assert torch.allclose(total[name] + client["unsent"][name], want, atol=1e-5)


def test_without_feedback_nothing_is_kept_and_what_is_drawn_has_a_key() -> None:
    params = {"w": torch.ones(2, 2), "b": torch.ones(2), "own": torch.ones(3)}
    for compression, keeps in (
        (top_k(0.5), {"unsent/w", "unsent/b"}),
        (top_k(0.5, feedback=False), set()),
        (quantised(4), {"key"}),
    ):
        state = compress_updates(echo(), compression, NAMES).init(None, params, rng.key(0))  # type: ignore[arg-type]
        assert {name for name, _ in tree.flatten(state)} == keeps


def test_rounding_is_drawn_anew_for_each_client_and_round() -> None:
    local = compress_updates(echo(), quantised(2), NAMES)
    params = {"w": torch.linspace(-1, 1, 60), "b": torch.ones(1)}
    clients = [local.init(None, params, rng.key(seed)) for seed in (0, 0, 1)]  # type: ignore[arg-type]
    again = [one_round(local, client, params, 4)[0]["w"] for client in clients]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])
    assert not torch.equal(again[0], one_round(local, clients[0], params, 5)[0]["w"])


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("spec", ["fedavg(epochs=1)", "fedper(momentum=0.5)"])
def test_top_k_of_everything_is_the_plain_method_to_the_bit(spec: str, engine: str) -> None:
    plain, sparse = (fitted(s, engine=engine) for s in (spec, f"{spec}+top-k(1.0)"))
    assert all(torch.equal(plain.model[k], sparse.model[k]) for k in plain.model)
    assert list(plain.clients) == list(sparse.clients)
    same = {k: v for k, v in plain.summary.items() if k not in ("seconds",)}
    assert same == {k: v for k, v in sparse.summary.items() if k in same}


@pytest.mark.parametrize(
    "spec",
    [
        "fedavg+top-k(0.2)",
        "fedavg+quantised(4)",
        "fedper+low-rank(1)",
        "scaffold+quantised(3,rounding=nearest)",
    ],
)
def test_the_contract(spec: str) -> None:
    check_method(spec)


def test_the_memory_of_clients_on_disk_is_the_same() -> None:
    spec = "fedavg(epochs=1)+top-k(0.1)"
    near, far = fitted(spec), fitted(spec, states="disk")
    assert all(torch.equal(near.model[k], far.model[k]) for k in near.model)
    forgetful = fitted("fedavg(epochs=1)+top-k(0.1,feedback=false)").model
    assert any(not torch.equal(near.model[k], forgetful[k]) for k in forgetful)


SENT = {
    # Of 33 numbers 4, each with 6 bits that say where: 24 bits, which is less than 33.
    "fedavg+top-k(0.1)": (4, 4 * 4 + 3),
    # Half of them: a bit for each of the 33.
    "fedavg+top-k(0.5)": (17, 17 * 4 + 5),
    # Four tensors of 18, 3, 9 and 3 numbers.
    "fedavg+quantised(4)": (33, (9 + 2 + 5 + 2) + 4 * 4),
    # 3 × 6 and 3 × 3 matrices, and two vectors.
    "fedavg+low-rank(1)": (9 + 3 + 6 + 3, 4 * 21),
    # The body alone is shared: 21 numbers, 3 of them sent, of 5 bits each.
    "fedper+top-k(0.1)": (3, 3 * 4 + 2),
    # The control variate goes whole, and so does a loss.
    "scaffold+top-k(0.1)": (4 + 33, 19 + 4 * 33),
    "term+top-k(0.1)": (4 + 1, 19 + 4),
}


@pytest.mark.parametrize("spec", SENT)
def test_what_is_sent_by_hand(spec: str) -> None:
    """Three clients in each of two rounds; what comes down is not compressed."""
    s = fitted(spec, rounds=2).summary
    numbers, size = SENT[spec]
    assert (s["params_up"], s["bytes_up"]) == (6 * numbers, 6 * size)
    assert s["bytes_down"] == 4 * s["params_down"]
    assert s["traffic"]["bytes_up"]["shared"] + s["traffic"]["bytes_up"].get("extra", 0) == 6 * size


def test_clients_that_keep_no_more_than_a_memory_have_one_model() -> None:
    assert not fitted("fedavg+top-k(0.1)").summary["personal"]
    assert fitted("fedper+top-k(0.1)").summary["personal"]


def test_the_clip_of_dp_comes_last() -> None:
    """However much a client has remembered, it moves the sum by no more than the clip."""
    method = resolve("fedavg(lr=1.0)+top-k(0.1)+dp(clip=0.01,noise=0.0)")
    run = fitted(method, rounds=1, sampled=6)  # type: ignore[arg-type]
    assert run.trained is not None
    moved = float(tree.norm(tree.sub(run.model, run.trained.training.task.params)))
    assert 0 < moved <= 0.01


def test_an_own_compressor_by_object_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REGISTERED", {})

    @glocal.register("signs")
    def signs(*, length: float = 0.01) -> Compression:
        def compress(update: Params, key: Any) -> Params:
            return tree.map(lambda x: length * torch.sign(x), update)

        return Compression("signs", compress, feedback=False, draws=False)

    named = fitted("fedavg(epochs=1)+signs(length=0.02)")
    by_object = fitted(fedavg(epochs=1).replace(compression=signs(length=0.02)))
    assert all(torch.equal(named.model[k], by_object.model[k]) for k in named.model)
    assert any(not torch.equal(x, named.model[k]) for k, x in fitted("fedavg").model.items())
    (tmp_path / "own.py").write_text(
        "from glocal.slots.compressors import top_k\n"
        "from glocal.slots.compression import Compression\n"
        "def half() -> Compression:\n    return top_k(0.5)\n"
    )
    half = fitted(f"fedavg+{tmp_path / 'own.py'}:half", rounds=1)
    assert half.summary["bytes_up"] == 3 * SENT["fedavg+top-k(0.5)"][1]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("fedevg+top-k", "fedevg sends no update of the model, so top-k would do nothing"),
        ("local+top-k", "local sends nothing"),
        ("fedavg+top-k+quantised", r"fill the same slot \(compression\): keep one"),
        ("fedavg+top-k+dp(where=local)", "nothing would be saved by top-k: leave it out, or use"),
        ("mtl+top-k", "has in it what top-k left out before: write feedback=false"),
        ("fedavg+top-k(2)", "share must be above 0"),
    ],
)
def test_combinations_that_make_no_sense(spec: str, why: str) -> None:
    with pytest.raises(GlocalError, match=why):
        resolve(spec)
    resolve("mtl+top-k(feedback=false)")
    resolve("fedavg+top-k+dp(where=central)")


def test_bytes_are_shown_where_they_are_not_four_for_each_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = {spec: fitted(spec, rounds=1) for spec in ("fedavg", "fedavg+top-k(0.1)")}
    show_comparison({"fedavg": runs["fedavg"]})
    assert "bytes" not in capsys.readouterr().out
    show_comparison(runs)
    text = capsys.readouterr().out
    assert "in bytes all that is sent" in text
    head, *rows = (re.split("  +", line) for line in text.splitlines()[1:4])
    assert [row[head.index("bytes up")] for row in rows] == ["396", "57"]  # 3 · 33 · 4; 3 · 19
