"""Secret keys: what is drawn, by the hash itself, for one key and for many, vmapped or not."""

from __future__ import annotations

import hashlib

import pytest
import torch

from glocal.core import secret


def test_draws_and_children_are_the_hash_of_key_and_purpose() -> None:
    key = secret.of_seed(3)
    raw = key.numpy().tobytes()
    drawn = hashlib.shake_256(b"\x01" + raw + bytes(8)).digest(24)
    assert secret.bits(key, 3).numpy().tobytes() == drawn
    child = hashlib.shake_256(b"\x00" + raw + (7).to_bytes(8, "little")).digest(32)
    assert secret.fold(key, 7).numpy().tobytes() == child
    assert int(secret.narrow(key)) == int(secret.bits(key, 1)[0])


def test_nothing_drawn_is_a_key() -> None:
    """Who sees all draws of a key must not hold a key of it by that."""
    key = secret.of_seed(0)
    seen = set(secret.bits(key, 100).tolist())
    for other in (key, secret.fold(key, 0), secret.of_seed(1), secret.fold(secret.of_seed(1), 0)):
        assert not seen & set(other.tolist())


def test_fresh_keys_are_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not torch.equal(secret.fresh(), secret.fresh())
    monkeypatch.setattr("secrets.token_bytes", lambda n: bytes(range(n)))
    assert secret.fresh().numpy().tobytes() == bytes(range(32))


def test_stacks_and_vmap_draw_what_one_key_draws() -> None:
    key, numbers = secret.of_seed(5), torch.arange(4)
    keys = secret.fold(key, numbers)
    each = [secret.gaussian(secret.fold(key, i, 9), (2, 3)) for i in range(4)]
    over_keys = torch.vmap(lambda k: secret.gaussian(secret.fold(k, 9), (2, 3)))(keys)
    over_numbers = torch.vmap(lambda i: secret.gaussian(secret.fold(key, i, 9), (2, 3)))(numbers)
    both = torch.vmap(lambda k, i: secret.fold(k, i))(keys, numbers)
    assert torch.equal(over_keys, torch.stack(each))
    assert torch.equal(over_numbers, torch.stack(each))
    assert torch.equal(both, torch.stack([secret.fold(keys[i], i) for i in range(4)]))
    nested = torch.vmap(torch.vmap(lambda k: secret.bits(k, 2)))(keys.view(2, 2, 4))
    assert torch.equal(nested.view(4, 2), secret.bits(keys, 2))
