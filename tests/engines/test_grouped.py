"""Clients with different architectures, trained as groups, are what each is by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.engines import Engine, Sequential, Vectorised
from glocal.engines.grouped import Grouped
from glocal.methods import resolve
from glocal.nn.architectures import Architectures, Packed
from glocal.slots.method import as_plan
from glocal.testing import check_method, ragged
from glocal.testing.trained import engine_of, task_of
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed

MODELS = {"small": "headed(mlp(3),width=4)", "large": "headed(mlp(5, 6),width=4)"}


def trained(spec: str, models: object, engine: Engine) -> tuple[Training, Progress]:
    fed, plan = ragged(), as_plan(resolve(spec))
    task = task_of(models, fed, None)  # type: ignore[arg-type]
    training = Training(plan, task, fed, engine_of(task, engine), Fixed(4), 3, 0)
    return training, training.run(training.begin(task.params))


LONGER = pytest.param("lg-fedavg(shared=head, warmup=0)", marks=pytest.mark.slow)


@pytest.mark.parametrize("spec", ["ditto(shared=head)", LONGER])
def test_a_method_with_two_architectures_keeps_the_contract(spec: str) -> None:
    check_method(spec, model=MODELS, rounds=2)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised()])
def test_the_same_architecture_twice_is_one(engine: Engine) -> None:
    spec, model = "fedavg(shared=head, lr=0.1)", "headed(mlp(5),width=4)"
    one, whole = trained(spec, model, engine)
    two, parts = trained(spec, {"a": model, "b": model}, engine)
    assert isinstance(two.task, Architectures)
    for name, leaf in whole.server["params"].items():
        torch.testing.assert_close(parts.server["params"][name], leaf)
    everyone = torch.arange(6)
    ours, theirs = (t.models(p)(everyone)["assembled"] for t, p in ((one, whole), (two, parts)))
    for name, leaf in ours.items():
        torch.testing.assert_close(theirs[name], leaf)


def test_each_client_trains_its_own_architecture() -> None:
    """One client's round by a loop over its own module, of which the group knows nothing."""
    training, progress = trained("fedavg(shared=head, lr=0.1)", MODELS, Vectorised())
    ids = torch.tensor([4, 1, 0, 3])  # in no order, and of both
    work = training.round_of(progress, ids, training.key(9))
    uplink, states = training.engine.round(work)
    assert uplink.ids.tolist() == ids.tolist()
    assert uplink.n.tolist() == training.fed.train.counts()[ids].tolist()
    for place, client in enumerate(ids.tolist()):
        part = training.task.of_clients(ids[place : place + 1])
        assert isinstance(part, Packed)
        assert part.name == ["small", "large"][client % 2]
        one = replace(work.subset(torch.tensor([place])), task=part)
        alone, kept = Sequential().round(one)
        for name, leaf in alone.update.items():
            torch.testing.assert_close(uplink.update[name][place], leaf[0])
        for name, leaf in tree.flatten(kept):
            torch.testing.assert_close(dict(tree.flatten(states))[name][place], leaf[0])


def test_models_are_evaluated_by_their_own_module() -> None:
    training, progress = trained("fedavg(shared=head, lr=0.1)", MODELS, Vectorised())
    ids, fed = torch.tensor([3, 2, 0]), training.fed
    models = training.models(progress)(ids)["assembled"]
    rows = torch.tensor([[0, 1], [2, 3], [4, 5]])
    logits = training.task.of_clients(ids).example_logits
    found = training.engine.evaluate(logits, models, fed.x, fed.y, rows)["logits"]
    for place in range(3):
        part = training.task.of_clients(ids[place : place + 1])
        want = part.predict(tree.row(models, place), fed.x[rows[place]])
        torch.testing.assert_close(found[place], want)
    with pytest.raises(GlocalError, match="not said of any one's"):
        training.engine.evaluate(training.task.example_logits, models, fed.x, fed.y, rows)


def test_the_names_of_its_engines() -> None:
    assert Grouped((Vectorised(), Vectorised())).name == "vectorised"
    assert Grouped((Vectorised(), Sequential())).executed == "vectorised|sequential"
