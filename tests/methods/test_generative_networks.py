"""Networks as pure functions, also where several threads call them at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from glocal.core import rng
from glocal.methods.generative import networks

NETS = networks.Nets((3,), 2, 2, 1)


def test_threads_do_not_see_each_other_s_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are made to be inside the network at the same time."""
    x = rng.normal(rng.key(0), (4, 3))
    drawn = [NETS.init("critic", rng.key(k)) for k in range(2)]
    want = [torch.cat([out.reshape(len(x), -1) for out in NETS.critic(w, x)], 1) for w in drawn]
    both, plain = threading.Barrier(2, timeout=30), networks.Trunk.forward

    def together(trunk: networks.Trunk, x: Tensor, label: Tensor | None = None) -> Tensor:
        both.wait()
        out = plain(trunk, x, label)
        both.wait()
        return out

    monkeypatch.setattr(networks.Trunk, "forward", together)

    def one(w: Any) -> Tensor:
        return torch.cat([out.reshape(len(x), -1) for out in NETS.critic(w, x)], 1)

    with ThreadPoolExecutor(2) as threads:
        got = list(threads.map(one, drawn))
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)
