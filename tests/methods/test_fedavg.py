"""FedAvg and FedProx against plain PyTorch loops written out here, and against numbers by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from glocal.core import rng
from glocal.data.federation import Federation
from glocal.engines import Engine, Sequential, Vectorised
from glocal.engines.batching import plan as batches
from glocal.methods import resolve
from glocal.methods.fedavg import fedavg
from glocal.nn import optim
from glocal.nn.task import Task
from glocal.slots.method import Method, as_plan
from glocal.testing import ragged
from glocal.training.loop import WORK, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Fraction
from toys import seeded

ENGINES = [Sequential(), Vectorised()]
Extra = Callable[[nn.Module, nn.Module], Tensor]

pytestmark = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)))


def trained(
    method: str | Method, engine: Engine, *, rounds: int = 4, share: float = 0.5
) -> tuple[Training, Progress]:
    made = as_plan(resolve(method) if isinstance(method, str) else method)
    training = Training(made, Task(net()), ragged(), engine, Fraction(share), rounds, seed=3)
    return training, training.run(training.begin(training.task.params))


def cohorts(training: Training) -> list[list[int]]:
    n = len(training.fed)
    return [training.sampler.cohort(n, training.key(0, r)).tolist() for r in range(training.rounds)]


def client_loop(
    start: nn.Module,
    fed: Federation,
    client: int,
    key: Tensor,
    opt: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    epochs: int,
    extra: Extra = lambda model, start: torch.zeros(()),
) -> nn.Module:
    """What a client does, as anybody would write it."""
    model = copy.deepcopy(start)
    optimiser = opt(list(model.parameters()))
    mine = rng.fold(rng.fold(key, client), 0).view(1)
    cut = batches(fed.train, torch.tensor([client]), mine, epochs, 10)
    for rows, weight in zip(cut.rows[0], cut.weight[0], strict=True):
        rows = rows[weight > 0]
        loss = nn.functional.cross_entropy(model(fed.x[rows]), fed.y_train[rows])
        optimiser.zero_grad()
        (loss + extra(model, start)).backward()
        optimiser.step()
    return model


def fedavg_loop(
    training: Training,
    opt: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    epochs: int = 1,
    extra: Extra = lambda model, start: torch.zeros(()),
) -> nn.Module:
    """Rounds of local training, and the mean of the models weighted by examples."""
    server, fed = net(), training.fed
    for r, cohort in enumerate(cohorts(training)):
        models = [
            client_loop(server, fed, k, training.key(WORK, r), opt, epochs, extra) for k in cohort
        ]
        n = [len(fed[k].train[0]) for k in cohort]
        with torch.no_grad():
            for p, *each in zip(
                server.parameters(), *(m.parameters() for m in models), strict=True
            ):
                p.copy_(sum(w * q for w, q in zip(n, each, strict=True)) / sum(n))
    return server


def assert_equal(server: dict[str, Tensor], model: nn.Module, tolerance: float = 1e-5) -> None:
    for name, p in model.named_parameters():
        torch.testing.assert_close(server[name], p.detach(), rtol=0, atol=tolerance)


def test_fedavg_is_the_plain_loop(engine: Engine) -> None:
    training, done = trained("fedavg(lr=0.1,momentum=0.9,epochs=2)", engine)
    reached = {k for cohort in cohorts(training) for k in cohort}
    assert len(reached) < len(training.fed) or training.rounds > 1
    assert_equal(
        done.server["params"],
        fedavg_loop(training, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 2),
    )


def test_fedavg_with_weight_decay_and_nesterov(engine: Engine) -> None:
    spec = "fedavg(lr=0.05,epochs=1,momentum=0.5,weight_decay=0.01,nesterov=true)"
    training, done = trained(spec, engine)
    settings = {"momentum": 0.5, "weight_decay": 0.01, "nesterov": True}
    assert_equal(
        done.server["params"],
        fedavg_loop(training, lambda p: torch.optim.SGD(p, 0.05, **settings)),  # type: ignore[arg-type]
    )


def test_a_schedule_is_a_factor_on_the_rate_by_round(engine: Engine) -> None:
    training, done = trained("fedavg(lr=0.1,epochs=1,schedule=step(0.5,2))", engine, rounds=3)
    server, fed = net(), training.fed
    for r, rate in enumerate((0.1, 0.1, 0.05)):
        one = Training(
            training.plan, training.task, fed, engine, training.sampler, 1, training.seed
        )
        server = _one_round(one, server, r, cohorts(training)[r], rate)
    assert_equal(done.server["params"], server)


def _one_round(
    training: Training, server: nn.Module, r: int, cohort: list[int], rate: float
) -> nn.Module:
    after, fed = copy.deepcopy(server), training.fed
    models = [
        client_loop(
            server, fed, k, training.key(WORK, r), lambda p: torch.optim.SGD(p, rate), epochs=1
        )
        for k in cohort
    ]
    n = torch.tensor([float(len(fed[k].train[0])) for k in cohort])
    with torch.no_grad():
        for p, *each in zip(after.parameters(), *(m.parameters() for m in models), strict=True):
            p.copy_(torch.tensordot(n / n.sum(), torch.stack(each), 1))
    return after


def test_fedprox_is_the_plain_loop_with_the_term_written_out(engine: Engine) -> None:
    def term(model: nn.Module, start: nn.Module) -> Tensor:
        pairs = zip(model.parameters(), start.parameters(), strict=True)
        return 0.7 / 2 * sum(((p - q.detach()) ** 2).sum() for p, q in pairs)  # type: ignore[return-value]

    training, done = trained("fedprox(mu=0.7,lr=0.1,momentum=0.9,epochs=2)", engine)
    reference = fedavg_loop(training, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 2, term)
    assert_equal(done.server["params"], reference)


def test_fedprox_without_its_term_is_fedavg(engine: Engine) -> None:
    _, prox = trained("fedprox(mu=0)", engine)
    _, avg = trained("fedavg", engine)
    for name, leaf in avg.server["params"].items():
        torch.testing.assert_close(prox.server["params"][name], leaf, rtol=0, atol=1e-7)


def test_a_fedprox_step_by_hand(engine: Engine) -> None:
    """One weight, ``f(w) = ½(w − 3)²``, η = 0.1, μ = 2, from w = 1: first pull-free, then pulled.

    ``w₁ = 1 − 0.1·(1 − 3) = 1.2``; ``w₂ = 1.2 − 0.1·((1.2 − 3) + 2·(1.2 − 1)) = 1.34``.
    """
    from glocal import federation

    line = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[1.0], [0.0]]))
    fed = federation([[1.0]] * 6, [0, 1] * 3, clients=["a"] * 6)
    half_square = Task(line, losses=lambda logits, y: 0.5 * (logits[:, 0] - 3.0) ** 2)
    for epochs, w in ((1, 1.2), (2, 1.34)):
        made = as_plan(resolve(f"fedprox(mu=2,lr=0.1,batch_size=0,epochs={epochs})"))
        training = Training(made, half_square, fed, engine, Fraction(1.0), 1, 0)
        done = training.run(training.begin(half_square.params))
        assert done.server["params"]["weight"].flatten().tolist() == pytest.approx([w, 0.0])


def test_sharing_nothing_is_each_clients_own_loop(engine: Engine) -> None:
    training, done = trained("fedavg(shared=nothing,lr=0.1,epochs=1,momentum=0.9)", engine)
    own = [net() for _ in training.fed]
    for r, cohort in enumerate(cohorts(training)):
        for k in cohort:
            own[k] = client_loop(
                own[k],
                training.fed,
                k,
                training.key(WORK, r),
                lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
                epochs=1,
            )
    ids, states = done.clients.saved()
    assert ids.tolist() == sorted({k for cohort in cohorts(training) for k in cohort})
    for i, k in enumerate(ids.tolist()):
        assert_equal({n: v[i] for n, v in states["private"].items()}, own[k])


def test_private_layers_are_trained_from_where_they_were_left(engine: Engine) -> None:
    training, done = trained("fedavg(shared=last(1),lr=0.1,epochs=1)", engine)
    server, own = net(), [net() for _ in training.fed]
    shared = ("2.weight", "2.bias")
    for r, cohort in enumerate(cohorts(training)):
        models = []
        for k in cohort:
            own[k].load_state_dict(
                {n: p for n, p in server.state_dict().items() if n in shared}, strict=False
            )
            opt = lambda p: torch.optim.SGD(p, 0.1)  # noqa: E731
            own[k] = client_loop(own[k], training.fed, k, training.key(WORK, r), opt, epochs=1)
            models.append(own[k].state_dict())
        n = torch.tensor([float(len(training.fed[k].train[0])) for k in cohort])
        mean = {
            s: torch.tensordot(n / n.sum(), torch.stack([m[s] for m in models]), 1) for s in shared
        }
        server.load_state_dict(mean, strict=False)
    for name in shared:
        torch.testing.assert_close(
            done.server["params"][name], server.state_dict()[name], rtol=0, atol=1e-5
        )
    ids, states = done.clients.saved()
    for i, k in enumerate(ids.tolist()):
        for name, leaf in states["private"].items():
            torch.testing.assert_close(leaf[i], own[k].state_dict()[name], rtol=0, atol=1e-5)


def test_any_optimiser_may_be_the_servers_and_goes_on_from_round_to_round(engine: Engine) -> None:
    method = fedavg(lr=0.1, epochs=1).replace(server_opt=optim.adam(0.05, beta2=0.99))
    training, done = trained(method, engine)
    server, fed = net(), training.fed
    adam = torch.optim.Adam(server.parameters(), 0.05, betas=(0.9, 0.99))
    for r, cohort in enumerate(cohorts(training)):
        after = _one_round(training, server, r, cohort, 0.1)
        for p, q in zip(server.parameters(), after.parameters(), strict=True):
            p.grad = (p - q).detach()
        adam.step()
    assert len(fed) > len(cohorts(training)[0])
    # Adam divides by the size of a gradient, and so enlarges what is lost in a small one.
    assert_equal(done.server["params"], server, 2e-4)


@pytest.mark.parametrize(("filler", "mean"), [("by-examples", 3 / 4), ("uniform", 1 / 2)])
def test_weights_by_hand(engine: Engine, filler: str, mean: float) -> None:
    """Clients of 6 and 2 examples: one moves the weight by 1 and the other leaves it."""
    from glocal import federation

    line = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        line.weight.zero_()
    x = [[1.0]] * 8 + [[0.0]] * 4
    fed = federation(x, [0, 1] * 6, clients=["a"] * 8 + ["b"] * 4, split=(0.75, 0.125, 0.125))
    assert fed.train.counts().tolist() == [6, 2]
    slope = Task(line, losses=lambda logits, y: -logits[:, 0])
    made = as_plan(resolve(f"fedavg(lr=1,epochs=1,batch_size=0)+{filler}"))
    training = Training(made, slope, fed, engine, Fixed(2), 1, 0)
    done = training.run(training.begin(slope.params))
    assert done.server["params"]["weight"].flatten().tolist() == pytest.approx([mean, 0.0])
