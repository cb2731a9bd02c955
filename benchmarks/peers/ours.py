"""glocal, as ``glocal.fit`` runs it: its own sampling and drawing of batches are in its time."""

from __future__ import annotations

import torch

from glocal.data.federation import Federation
from glocal.data.split import from_counts
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.experiment.setup import Setup
from glocal.methods.fedavg import fedavg
from glocal.training.loop import Training
from peers.work import Turns, Work

ROUNDS = 200
"""The run is said to be so long, and the turns are its first rounds: what is paid for once (as
compiling) pays in a long run, and a rule may go by that."""


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Rounds of a training; ``setting`` is the engine."""
    here, training = begun(work, setting)
    progress = training.begin(here.task.params)
    turns.params = lambda: [p.detach().cpu().numpy() for p in progress.server["params"].values()]
    with here.threads():
        turns.note = f"{training.engine.name}, {torch.get_num_threads()} threads"
        for r in turns:
            assert r == progress.round
            training.one_round(progress)


def begun(work: Work, engine: str, device: str = "cpu") -> tuple[Setup, Training]:
    """What ``glocal.fit`` makes of such an order."""
    order = Config(
        model=work.model,
        rounds=ROUNDS,
        sampled=work.cohorts.shape[1],
        seed=work.seed,
        engine=engine,
        device=device,
        validate_every=0,  # nobody's time has an evaluation in it
    )
    here = setups.make(order, federation(work), 0)
    method = fedavg(lr=work.rate, batch_size=work.batch_size, epochs=1)
    return here, runner_of("method", method).check(here)


def federation(work: Work) -> Federation:
    """All clients' examples, for training alone."""
    clients, examples = work.y.shape
    x = torch.from_numpy(work.x.reshape(-1, *work.input_shape))
    y = torch.from_numpy(work.y.reshape(-1))
    counts = torch.full((clients,), examples)
    nothing = from_counts(torch.arange(0), torch.zeros_like(counts))
    return Federation(
        x=x,
        y=y,
        y_train=y,
        classes=work.classes,
        names=tuple(map(str, range(clients))),
        train=from_counts(torch.arange(len(y)), counts),
        val=nothing,
        test=nothing,
        label_shift_only=False,
        describe={"data": "random"},
    )
