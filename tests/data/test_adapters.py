"""Objects shaped as Flower's and FLamby's data sets are, as federations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from glocal.core.errors import GlocalError
from glocal.data.adapters import from_flamby, from_flower

GEN = np.random.default_rng(0)


class Columns:
    """A partition as ``datasets.Dataset`` is: columns by name."""

    def __init__(self, n: int, size: int = 5) -> None:
        self.columns = {
            "img": list(GEN.integers(0, 256, (n, size, size, 3), dtype=np.uint8)),
            "label": [i % 2 for i in range(n)],
        }
        self.column_names = list(self.columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


class Partitioned:
    """A data set as ``flwr_datasets.FederatedDataset`` is."""

    def __init__(self, sizes: tuple[int, ...] = (6, 8, 5)) -> None:
        self.parts = [Columns(n) for n in sizes]
        self.partitioners = {"train": type("Partitioner", (), {"num_partitions": len(sizes)})()}

    def load_partition(self, partition_id: int) -> Columns:
        return self.parts[partition_id]

    def load_split(self, split: str) -> Columns:
        if split != "test":
            raise ValueError(f"no split {split}")
        return Columns(4)


def test_flowers_partitions_are_clients() -> None:
    data = Partitioned()
    fed = from_flower(data, test="test")
    assert fed.names == ("0", "1", "2")
    assert fed.x.shape == (19, 3, 5, 5)
    assert float(fed.x.max()) <= 1
    first = torch.from_numpy(np.stack(data.parts[0]["img"])).permute(0, 3, 1, 2) / 255
    assert torch.allclose(fed.x[:6], first)
    assert fed.central is not None
    assert len(fed.central[1]) == 4
    assert len(from_flower(data, 2)) == 2


def test_what_flowers_object_lacks() -> None:
    data = Partitioned()
    with pytest.raises(GlocalError, match="partition 0 has no column 'target': it has img, label"):
        from_flower(data, label="target")
    with pytest.raises(GlocalError, match=r"'other' could not be loaded.*no split other"):
        from_flower(data, test="other")
    data.parts[1].columns["img"][3] = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(GlocalError, match="img of partition 1 has examples of several shapes"):
        from_flower(data)
    with pytest.raises(GlocalError, match="does not say how many partitions"):
        from_flower(object())


class Centre:
    """A data set of one centre as FLamby's are."""

    def __init__(self, center: int, train: bool, pooled: bool) -> None:
        assert not pooled
        n = (8 if train else 3) + center
        self.x = torch.full((n, 4), float(center)) + torch.arange(n)[:, None] / 100
        self.y = (torch.arange(n) % 2).float()[:, None]
        if center == 9:
            self.x = self.x[:0]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[i], self.y[i]


def test_flambys_centres_keep_their_test_sets() -> None:
    fed = from_flamby(Centre, 3)
    assert fed.names == ("0", "1", "2")
    assert fed.describe["data"] == "Centre"
    assert fed.test.counts().tolist() == [3, 4, 5]
    assert (fed.train.counts() + fed.val.counts()).tolist() == [8, 9, 10]
    assert bool((fed.x[fed.test.of(2)].floor() == 2).all())
    assert from_flamby(Centre, [0, 2]).names == ("0", "2")
    with pytest.raises(GlocalError, match="centre 9 has no train examples"):
        from_flamby(Centre, [0, 9])
