"""Data that is not where examples are made is refused before anyone trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal import federation
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of

METHODS = ("fedevg", "fedcgan(width=1)", "fedcvae(width=1)")
every_method = pytest.mark.parametrize("spec", METHODS)
OWNER, LABELS = np.arange(60) % 3, np.arange(60) // 3 % 2


def begin(spec: str, fed: Federation) -> None:
    """All that is looked at before the first round."""
    order = Config(model="mlp(2)", rounds=1)
    runner_of("method", spec).check(setups.make(order, fed, 0))


def pictures() -> torch.Tensor:
    """From 0 to 1."""
    return torch.sigmoid(3 * rng.normal(rng.key(0), (60, 1, 4, 4)))


def table(scale: float, middle: float = 0.0) -> Federation:
    return federation(middle + scale * rng.normal(rng.key(0), (60, 3)), LABELS, OWNER)


@every_method
def test_images_must_be_from_0_to_1(spec: str) -> None:
    x = pictures()
    begin(spec, federation(x, LABELS, OWNER))
    begin(spec, federation(x + 1e-5, LABELS, OWNER))
    wrong = {
        "x / 255": [(255 * x).numpy().astype("uint8"), 255 * x],
        "x / [0-9.]+": [16 * x],
        r"\(x \+ [0-9.]+\) / [0-9.]+": [(x - x.mean()) / x.std(), x - 0.01],
    }
    for advice, given in wrong.items():
        for pixels in given:
            with pytest.raises(GlocalError, match=f"from 0 to 1, .*scale them .* as in {advice}"):
                begin(spec, federation(pixels, LABELS, OWNER))


@every_method
def test_the_numbers_of_a_table_must_be_standardised(spec: str) -> None:
    begin(spec, table(1.0))
    for fed in (table(1000.0), table(1.0, 10.0)):
        with pytest.raises(GlocalError, match=r"from -4 to 4, and .* % of column . lie outside"):
            begin(spec, fed)


@every_method
def test_one_bad_column_is_named_and_scaling_mends_it(spec: str) -> None:
    columns = {
        "age": rng.normal(rng.key(0), (60,)).tolist(),
        "income": (1000 * rng.normal(rng.key(1), (60,))).tolist(),
        "colour": ["red", "green"] * 30,
        "label": LABELS,
        "site": OWNER,
    }
    begin(spec, federation(columns, "label", "site"))
    with pytest.raises(GlocalError, match="of column 'income' lie outside: standardise"):
        begin(spec, federation(columns, "label", "site", scale=False))


def test_a_few_far_numbers_are_no_reason() -> None:
    """Of a standardised column at most a sixteenth can be there, and that much is allowed."""
    x = torch.zeros(48, 1)
    x[::16] = 15**0.5 + 0.2
    owner = np.arange(48) % 3
    fed = federation(x, np.arange(48) // 3 % 2, owner)
    begin("fedevg", fed)
    with pytest.raises(GlocalError, match="% of column 0 lie outside"):
        begin("fedevg(low=0.1,high=5)", fed)


@pytest.mark.parametrize("spec", ["fedevg(low=-0.1,high=255)", "fedevg(boxed=false)"])
def test_bounds_that_hold_the_data_are_enough(spec: str) -> None:
    fed = federation(255 * pictures(), LABELS, OWNER)
    begin(spec, fed)
    with pytest.raises(GlocalError, match=r"or give bounds that hold them, as in fedevg\(low="):
        begin("fedevg(high=200)", fed)
