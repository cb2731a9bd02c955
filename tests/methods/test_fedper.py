"""FedPer: body and head train together, and only the body is averaged."""

from __future__ import annotations

import pytest
from loops import (
    BODY,
    ENGINES,
    HEAD,
    SGD,
    batches,
    cohorts,
    examples,
    first,
    gap,
    loss,
    mean,
    same,
    slope,
    state,
    trained,
)

from glocal.engines import Engine
from glocal.testing import check_method

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


@both_engines
def test_fedper_is_the_plain_loop(engine: Engine) -> None:
    training, done = trained("fedper(lr=0.1,epochs=2,momentum=0.5,weight_decay=0.01)", engine)
    w, heads = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        bodies = []
        for k in cohort:
            mine = SGD({**w, **heads.get(k, {n: first()[n] for n in HEAD})}, 0.1, 0.5, 0.01)
            for x, y in batches(training, r, k, 2):
                mine.step(slope(loss, mine.model, x, y))
            heads[k] = {n: mine.model[n] for n in HEAD}
            bodies.append({n: mine.model[n] for n in BODY})
        w = {**w, **mean(bodies, examples(training, cohort))}
    same(done.server["params"], {n: w[n] for n in BODY})
    for k, head in heads.items():
        same(state(done, k)["private"], head)
    one, two, *_ = heads.values()
    assert gap(one, two) > 1e-2


@both_engines
def test_with_everything_shared_it_is_fedavg(engine: Engine) -> None:
    _, done = trained("fedper(shared=everything,momentum=0.9)", engine)
    _, avg = trained("fedavg(momentum=0.9)", engine)
    same(done.server["params"], avg.server["params"], 0.0)


def test_contract() -> None:
    check_method("fedper(momentum=0.9,weight_decay=0.01,epochs=2)")
