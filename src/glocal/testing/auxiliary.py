"""The rule that auxiliary models stay with their clients, and without weight change nothing."""

from __future__ import annotations

from dataclasses import replace

from glocal.core import tree
from glocal.core.types import Tree
from glocal.engines import CohortRound, Engine
from glocal.slots.method import Method
from glocal.testing.trees import assert_same, assert_structure, structure
from glocal.testing.watched import uplink_tree
from glocal.training.loop import Training


def check_auxiliary(
    method: Method, training: Training, work: CohortRound, engines: tuple[Engine, ...]
) -> None:
    """Raise unless the auxiliary of ``method``, if clients have their own, stays with them.

    What is sent has the names of the plain method, and none of the auxiliary's. With a weight of 0
    it is the plain method's to the bit, whatever the auxiliary's parameters are, and so is what
    clients keep of the model.
    """
    auxiliary = method.auxiliary
    if auxiliary is None or auxiliary.shared:
        return
    schema, states = training.setting.schema, work.states
    if method.compression is not None:  # which keeps its own beside them
        method, states = method.replace(compression=None), states["inner"]
    idle = method.replace(auxiliary=replace(auxiliary, weight=0.0))
    plain = method.replace(auxiliary=None, pretraining=None)
    half, without = idle.client_half(work.task, schema), plain.client_half(work.task, schema)
    own = {name for name, _ in tree.flatten(states["auxiliary"])}
    moved = {**states, "auxiliary": tree.map(lambda x: x + 0.01, states["auxiliary"])}
    for engine in engines:
        rule = f"auxiliary models stay with the clients ({engine.name})"
        sent, kept = engine.round(replace(work, local=without, states=states["inner"]))
        real, _ = engine.round(
            replace(work, local=method.client_half(work.task, schema), states=states)
        )
        want = structure(uplink_tree(sent))
        assert_structure(rule, "the uplink", structure(uplink_tree(real)), want)
        for where, message in (("downlink", work.down), ("uplink", uplink_tree(real))):
            _raise_if_named(rule, where, message, own)
        rule = f"an auxiliary without weight changes nothing ({engine.name})"
        for how, given in (("", states), (" of another auxiliary", moved)):
            other, after = engine.round(replace(work, local=half, states=given))
            assert_same(rule, f"the uplink{how}", uplink_tree(other), uplink_tree(sent))
            assert_same(rule, f"the model's state{how}", after["inner"], kept)


def _raise_if_named(rule: str, where: str, message: Tree, own: set[str]) -> None:
    for name, _ in tree.flatten(message):
        if name.rpartition("/")[2] in own:
            raise AssertionError(f"{rule}: the {where} has {name!r}, which is the auxiliary's.")
