"""A client joins: who takes part in what, what stays untouched, and what is printed and refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
import toys
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.evaluation.intervals import student
from glocal.methods import resolve
from glocal.methods.fedavg import fedavg
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.slots.pretraining import by_itself
from glocal.slots.server_half import whole_model
from glocal.slots.sharing import last
from glocal.slots.weighting import Weighting
from glocal.studies.newcomer import arrival
from glocal.studies.newcomer.join import Joined, join
from glocal.testing import SIZES, ragged
from glocal.training.sampling import Among, Fixed, Fraction, Poisson

QUICK = "local(lr=0.1,max_epochs=3)"
NEW = 3
METHODS = ["fedavg", "scaffold", "fedavg(shared=last(1))", "fedrep(head_epochs=2)", "ditto"]


def join_(method: Any = "fedavg", fed: Federation | None = None, **settings: Any) -> Joined:
    settings = {
        "client": str(NEW),
        "model": "mlp(7)",
        "rounds": 2,
        "own_epochs": 2,
        "join_rounds": 2,
        "baseline": QUICK,
        **settings,
    }
    return join(method, ragged() if fed is None else fed, **settings)


def other_newcomer() -> Federation:
    """The same federation, but for everything the newcomer has."""
    fed = ragged()
    x, y = fed.x.clone(), fed.y.clone()
    for split in (fed.train, fed.val, fed.test):
        rows = split.of(NEW)
        x[rows] = 5 * rng.normal(rng.key(9), x[rows].shape)
        y[rows] = (y[rows] + 1) % 3
    return replace(fed, x=x, y=y, y_train=y)


def same(a: Any, b: Any) -> bool:
    return tree.structure(a) == tree.structure(b) and all(
        map(torch.equal, tree.leaves(a), tree.leaves(b))
    )


def staged() -> Plan:
    """Changes its stage by what validation says, in which the newcomer must have no part."""
    first, second = fedavg(), fedavg().replace(shared=last(1))
    return Plan((Stage(first, goal=0.55), Stage(second, name="lg")))


@pytest.mark.parametrize("method", [*METHODS, staged()], ids=lambda m: str(m)[:12])
def test_the_newcomer_has_no_part_in_training(method: Any) -> None:
    a, b = (join_(method, fed, rounds=4) for fed in (ragged(), other_newcomer()))
    assert same(a.before.progress.server, b.before.progress.server)
    assert same(a.before.progress.clients.saved()[1], b.before.progress.clients.saved()[1])
    assert a.before.progress.history == b.before.progress.history
    assert a.clients["before"] == b.clients["before"]
    assert a.rows["accuracy"] != b.rows["accuracy"]
    alone = glocal.fit(method, arrival.parts(ragged(), NEW).old, **fit_settings(rounds=4))
    assert alone.trained is not None
    assert same(a.before.progress.server, alone.trained.progress.server)


def fit_settings(**settings: Any) -> dict[str, Any]:
    return {"model": "mlp(7)", "baseline": QUICK, **settings}


def test_a_table_is_scaled_without_the_newcomer() -> None:
    gen = torch.Generator().manual_seed(0)
    numbers = torch.randn(60, generator=gen)
    owner = [f"c{i // 20}" for i in range(60)]

    def old(shift: float) -> Tensor:
        moved = [float(v) + shift * (who == "c1") for v, who in zip(numbers, owner, strict=True)]
        table = {"a": moved, "y": [i % 2 for i in range(60)], "who": owner}
        fed = arrival.parts(glocal.federation(table, "y", "who"), "c1").old
        return fed.x[fed.train.rows]

    assert torch.equal(old(0.0), old(50.0))
    assert float(old(0.0).mean()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_without_old_clients_what_they_keep_is_untouched(method: str) -> None:
    joined = join_(method)
    before, after = joined.before.progress, joined.after.progress
    ids, kept = before.clients.saved()
    assert ids.tolist() == [0, 1, 2, 3, 4]
    again = after.clients.saved()[1]
    assert same(kept, tree.row(again, slice(0, 5)))
    assert not same(before.server["params"], after.server["params"])
    assert [line["cohort"] for line in after.history] == [1, 1]


def test_with_old_clients_they_train_too() -> None:
    joined = join_("ditto", fraction=0.4, join_rounds=3)
    assert [line["cohort"] for line in joined.after.progress.history] == [3] * 3
    kept = joined.before.progress.clients.saved()[1]
    assert not same(kept, tree.row(joined.after.progress.clients.saved()[1], slice(0, 5)))


@pytest.mark.parametrize("method", ["fedavg", "fedavg(shared=last(1))", "pfedme", "ditto"])
def test_at_once_is_what_the_server_sends(method: str) -> None:
    joined = join_(method)
    t = joined.before.training
    model = whole_model(t.task, joined.before.progress.server)
    x, y = ragged()[NEW].test
    right = (t.task.predict(model, x).argmax(1) == y).double().mean()
    assert joined.summary["at_once"] == float(right)


@pytest.mark.parametrize("method", ["fedper", "ditto"])
def test_joined_is_the_newcomers_own_model(method: str) -> None:
    joined = join_(method, rounds=6, join_rounds=4)
    models, task = joined.after.models(), joined.after.training.task
    x, y = ragged()[NEW].test
    right = [
        float((task.predict(tree.row(models, i), x).argmax(1) == y).double().mean())
        for i in range(6)
    ]
    assert joined.summary["joined"] == right[5]
    assert right[0] != right[5]  # another's would not do


def stepwise(method: Any, epochs: int) -> tuple[Any, Any, dict[str, Tensor]]:
    """The newcomer before and after its own training, and what it then predicts with."""
    done = join_(method).before
    both = arrival.parts(ragged(), NEW).both
    joint = arrival.joint(done.training, done.progress, both, 0.0)
    progress = arrival.welcome(done.progress, joint)
    sent = tree.map(torch.clone, progress.server)
    first = tree.map(torch.clone, tree.row(progress.clients.rows or {}, 5))
    (model,) = arrival.own_training(joint, progress, epochs)(torch.tensor([5])).values()
    assert same(progress.server, sent), "own training touched the server"
    assert same(done.progress.server, sent)
    return first, tree.row(progress.clients.rows or {}, 5), tree.row(model, 0)


@pytest.mark.parametrize(
    ("method", "moving"),
    [
        ("fedavg(lr=0.05, batch_size=0)", "layers"),
        ("fedavg(shared=last(1), lr=0.05, batch_size=0)", "layers.0"),
    ],
)
def test_own_training_by_hand(method: str, moving: str) -> None:
    """Full batches: three plain steps, of the whole model or of the private layer alone."""
    _, _, model = stepwise(method, 3)
    done = join_(method).before
    task = done.training.task
    w = whole_model(task, done.progress.server)
    x, y = ragged()[NEW].train
    batch = {"x": x, "y": y, "weight": torch.ones(len(x))}
    for _ in range(3):
        grads, _ = task.grad(lambda p: task.loss(p, batch, rng.key(0)), w)
        w = {k: v - 0.05 * grads[k] if k.startswith(moving) else v for k, v in w.items()}
    for name, leaf in model.items():
        torch.testing.assert_close(leaf, w[name], rtol=0, atol=1e-5)


def test_own_training_of_a_global_model_is_thrown_away() -> None:
    first, then, _ = stepwise("scaffold", 2)
    assert same(first, then)


@pytest.mark.parametrize(
    "method",
    ["fedavg(shared=last(1), momentum=0.9, weight_decay=0.1)", "fedper", "fedrep(head_epochs=2)"],
)
def test_own_training_holds_what_is_shared(method: str) -> None:
    first, then, model = stepwise(method, 2)
    done = join_(method).before
    for name, leaf in done.progress.server["params"].items():
        assert torch.equal(model[name], leaf)
    for name, leaf in first["private"].items():
        assert not torch.equal(then["private"][name], leaf)
        torch.testing.assert_close(model[name], then["private"][name])


def test_own_training_of_a_personal_model_is_kept() -> None:
    first, then, model = stepwise("ditto", 2)
    assert not same(first["v"], then["v"])
    assert same(model, then["v"])


def test_no_own_training_changes_nothing() -> None:
    joined = join_("fedper", own_epochs=0)
    assert joined.summary["own_training"] == joined.summary["at_once"]
    trained = join_("fedper", own_epochs=30)
    assert trained.summary["own_training"] != trained.summary["at_once"]


@pytest.mark.parametrize("method", [*toys.TOYS.values()], ids=[*toys.TOYS])
def test_any_method_can_be_joined(method: Callable[[], Method | Plan]) -> None:
    joined = join_(method(), rounds=4, fraction=0.5)
    assert len(joined.clients) == 5
    assert all(0 <= a <= 1 for a in joined.rows["accuracy"])


def test_a_weighting_with_a_number_for_each_client_begins_anew() -> None:
    """As agnostic weightings keep: five numbers among the old clients, six with the newcomer."""

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        counted = state["seen"].index_add(0, uplink.ids, torch.ones(len(uplink.ids)))
        return torch.softmax(counted[uplink.ids], 0), {"seen": counted}

    counting = Weighting("counting", weigh, lambda setting: {"seen": torch.zeros(setting.clients)})
    joined = join_(fedavg().replace(weighting=counting))
    assert joined.before.progress.server["weighting"]["seen"].tolist() == [2.0] * 5
    assert joined.after.progress.server["weighting"]["seen"].tolist() == [0.0] * 5 + [2.0]


def test_a_weighting_that_needs_everybody_gives_way() -> None:
    """AAggFF-S decides over all clients at once: those of one newcomer are not its business."""
    joined = join_("aaggff-s")
    assert joined.before.progress.server["weighting"]["p"].shape == (5,)
    assert joined.after.progress.server["weighting"] == {}
    joined = join_("aaggff-d")
    assert joined.after.progress.server["weighting"]["g"].shape == (6,)


def test_rows_and_summary_say_the_same() -> None:
    joined = join_("fedavg", seeds=3)
    s = joined.summary
    assert joined.rows["stage"] == ["at once", "own training", "joined", "alone"]
    assert joined.rows["accuracy"] == [s[k] for k in ("at_once", "own_training", "joined", "alone")]
    for row in joined.rows[:3]:
        assert row["benefit"] == pytest.approx(row["accuracy"] - s["alone"])
    assert joined.rows["old_own"][:2] == [s["old_before"]] * 2
    assert joined.rows["old_own"][2] == pytest.approx(s["old_after"])
    assert (
        joined.rows["old_pooled"] == [None] * 4
    )  # clients' own ids say nothing of how they differ
    assert joined.clients["client"] == ["0", "1", "2", "4", "5"]
    for row in joined.clients:
        assert row["change"] == pytest.approx(row["after"] - row["before"])
        assert row["low"] <= row["change"] <= row["high"]
    assert s["old_change"] == pytest.approx(s["old_after"] - s["old_before"])
    assert sum(s["old_by_seed"]) / 3 == pytest.approx(s["old_change"])
    assert s["old_paired"]["change"] == pytest.approx(s["old_change"])
    assert s["old_worse_off"] + s["old_better_off"] + s["old_undecided"] == s["old_clients"] == 5
    size = 6 * 7 + 7 + 7 * 3 + 3
    assert (s["params_up"], s["params_down"]) == (2 * size, 3 * size)  # received, then two rounds
    assert join_("fedper").summary["params_down"] == size + 2 * (6 * 7 + 7)


def test_the_interval_over_seeds_is_students() -> None:
    """Mean 2, standard deviation 1, t(0.95; 2) = 2.920."""
    assert student([1.0, 2.0, 3.0])[1:] == pytest.approx(
        (2 - 2.91999 / math.sqrt(3), 2 + 2.91999 / math.sqrt(3)), abs=1e-4
    )
    assert student([1.0]) == (1.0, None, None)


def test_who_can_be_pooled() -> None:
    def valid(partition: str, *transforms: str, client: int = 4) -> bool:
        fed = glocal.load("digits", clients=5, partition=partition, transforms=transforms)
        return arrival.parts(fed, client).old.label_shift_only

    assert valid("iid")
    assert valid("iid", "rotate(90, clients=only(4))")
    assert valid("dirichlet(1.0)", "pair-noise(0.2)", "rotate(90, only(4))")
    assert not valid("iid", "rotate(90, clients=only(4))", client=3)
    assert not valid("iid", "rotate(90, clients=only(3, 4))")
    assert valid("iid", "rotate(90)")  # all alike
    assert valid("iid", "rotate(90)", "rotate(90, clients=only(4))")
    assert not arrival.parts(ragged(), 0).old.label_shift_only


def test_parts_are_the_same_clients() -> None:
    fed = ragged()
    p = arrival.parts(fed, "2")
    assert p.old.names == ("0", "1", "3", "4", "5")
    assert (p.new.names, p.both.names) == (("2",), ("0", "1", "3", "4", "5", "2"))
    for part in (p.old, p.new, p.both):
        for mine in part:
            theirs = fed[fed.names.index(mine.name)]
            for a, b in zip(
                (mine.train, mine.val, mine.test),
                (theirs.train, theirs.val, theirs.test),
                strict=True,
            ):
                assert torch.equal(a[0], b[0])
                assert torch.equal(a[1], b[1])
    assert sum(p.both.train.counts().tolist()) < sum(SIZES)


def test_drawing_among_some() -> None:
    key = rng.key(0)
    assert Among((0, 1, 2), None, always=(3,)).cohort(4, key).tolist() == [3]
    assert Among((0, 2, 5), Fraction(1.0)).cohort(7, key).tolist() == [0, 2, 5]
    assert Among((0, 1, 2, 4), Fixed(2), always=(3,)).share(5) == pytest.approx(3 / 5)
    drawn = [Among((1, 4, 6), Poisson(0.5), (2,)).cohort(8, rng.fold(key, r)) for r in range(50)]
    assert {k for c in drawn for k in c.tolist()} == {1, 2, 4, 6}
    assert all(2 in c.tolist() and c.tolist() == sorted(c.tolist()) for c in drawn)
    with pytest.raises(GlocalError, match="name it once"):
        Among((0, 1), None, always=(1,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client": "nobody"}, "unknown client 'nobody'"),
        ({"client": 6}, "there is no client 6: give a name, or an index up to 5"),
        ({"fraction": 1.5}, "fraction of old clients must be from 0 to 1, not 1.5"),
        ({"fraction": -0.1}, "fraction of old clients must be from 0 to 1"),
        ({"train_fraction": 0}, "fraction must be above 0"),
        ({"join_rounds": 0}, "join_rounds must be an integer of 1 or more"),
        ({"own_epochs": -1}, "own_epochs must be an integer"),
        ({"seeds": 0}, "seeds must be an integer"),
        ({"method": "local"}, "with local there is nothing to join"),
        ({"tune": True}, "tune is not for those who join later"),
        ({"patience": 3}, "patience is not for those who join later"),
        ({"baseline": "best"}, "newcomers are set against the same model alone"),
        ({"method": "fedavg(lr=1e9)", "own_epochs": 0}, "not finite"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        join_(**settings)


def test_own_training_that_diverges_names_the_client() -> None:
    done = join_("fedavg(lr=0.01)").before
    wild = replace(done.training, plan=Plan((Stage(fedavg(lr=1e20)),)))
    joint = arrival.joint(wild, done.progress, arrival.parts(ragged(), NEW).both, 0.0)
    with pytest.raises(GlocalError, match="client 3's own training is not finite"):
        arrival.own_training(joint, arrival.welcome(done.progress, joint), 3)


def test_nobody_to_join() -> None:
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    fed = glocal.federation(x, torch.arange(12) % 2, [0] * 12)
    with pytest.raises(GlocalError, match="nobody to join"):
        join_(fed=fed, client="0")


@pytest.mark.parametrize("spec", ["fedavg", "pfedme", "fedevg"])
def test_a_client_that_trains_by_itself_is_the_same_but_for_its_phases(spec: str) -> None:
    local = as_plan(resolve(spec)).stages[0].method.local
    copy = by_itself(local, frozenset(), 3)
    assert [phase.epochs for phase in copy.phases] == [3] * len(local.phases)
    for field in fields(local):
        same = getattr(copy, field.name) == getattr(local, field.name)
        assert same == (field.name != "phases"), field.name
    assert copy.solve_before_evaluation == (spec != "fedavg")
    assert copy.keeps_whole_model == (spec == "fedevg")
