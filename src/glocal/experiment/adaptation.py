"""After training: each client adapts the model it was given to its own data.

Yu, Bagdasaryan, Shmatikov: *Salvaging federated learning by local adaptation*, 2020. With G the
model a client was given, A the one it adapts (A starts at G) and CE its loss,

    fine-tune      CE(A), all parameters
    freeze-base    CE(A), the last layer alone (or whichever ``train`` says)
    ewc            CE(A) + Σ_j (λ/2) F_j (A_j − G_j)²
    distill        (1 − α) CE(A) + α T² KL(softmax(G/T) ‖ softmax(A/T))

F is the mean over examples of the squared gradient of each example's log-likelihood at G. The task
that ewc must not forget is the union of all participants' data, so F is of that: Σ_i n_i F_i / Σ_i
n_i, of which each client computes F_i at the model it was given, and sends it once. ``fisher=own``
takes the client's own F_i, ``fisher=public`` that of public data; nothing is then sent. Where a
method has privacy, which protects no F_i, it is ``own`` unless said. The paper prints
distillation's weights the other way round, α T² CE + (1 − α) KL: ``form=paper`` has that. ``best``
is all four, and of them each client's best.

Whatever is chosen (the rate, the epoch, the technique) is chosen on the client's own validation
data, by the rules of the local baseline (:mod:`glocal.experiment.baseline`), with as many rates to
choose from; a client that does no better than with G there stays at G. All clients and rates adapt
as one program where the engine can.

Departure: the pull of ewc is taken implicitly, ``A ← (A − η∇CE + ηλF G) / (1 + ηλF)``, which is
stable at any λ; the plain gradient step overshoots once ηλF exceeds 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.padding import over_positions
from glocal.core.spec import Call, parse_call, split_plus
from glocal.core.types import Batch, Carry, Downlink, Params, Tree
from glocal.core.validation import build, not_negative, positive
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.evaluation.evaluate import scored
from glocal.evaluation.scores import comparable
from glocal.experiment.baseline import BLOCK_BYTES
from glocal.experiment.early_stopping import Best, Selected, train
from glocal.experiment.fisher import Public, fisher, fisher_of_union
from glocal.experiment.local_epochs import Keys, OnEpoch
from glocal.methods import selector
from glocal.methods.local import GRID, LocalTraining
from glocal.nn.optim import sgd
from glocal.nn.task import Task, label_weights, weighted_mean
from glocal.slots.client import Candidates, Objective, Phase, check_counts, plain_loss
from glocal.slots.sharing import Selector, everything
from glocal.slots.sharing import last as last_layers


@dataclass(frozen=True, kw_only=True)
class Technique(LocalTraining):
    """How a client adapts; its state has the model under ``w`` and G under ``g``."""

    name: str
    moves: Selector
    """Which parameters are adapted."""
    lam: float | None
    """The strength of ewc's pull; none: no Fisher information is taken."""
    fisher: str
    """Whose that is: ``union``, ``own``, ``public``, or by rule (``auto``)."""
    candidates: Candidates = lambda task, down, client: {"adapted": client["w"]}

    @property
    def public(self) -> bool:
        """Whether public data is needed."""
        return self.fisher == "public"

    @property
    def of_union(self) -> bool:
        """Whether clients send their Fisher information, which is added up."""
        return self.lam is not None and self.fisher in ("auto", "union")

    def decided(self, private: bool) -> Technique:
        """By rule, the Fisher information of the union; own, where the method has privacy."""
        return replace(self, fisher="own") if private and self.fisher == "auto" else self

    def check(self, task: Task, public: Public | None, *, private: bool = False) -> None:
        """Refuse, before anyone trains, what does not fit the model or lacks its data."""
        if self.fisher == "union" and private:
            raise GlocalError(
                "ewc(fisher=union) sends what each client's data says, and the method's privacy "
                "does not protect that: use ewc(fisher=own)."
            )
        if self.public and public is None:
            raise GlocalError(
                "ewc(fisher=public) needs public data: give public=(x, y) in Python, or adapt the "
                "finished run with 'glocal adapt DIR --public FILE.safetensors'."
            )
        self.moves.pick(task.names)


def _technique(
    name: str,
    training: Mapping[str, Any],
    *,
    objective: Objective = plain_loss,
    moves: Selector | None = None,
    lam: float | None = None,
    fisher: str = "auto",
) -> Technique:
    """A technique that minimises ``objective``, an epoch at a time."""
    settings = _training(training)
    adapted, optimiser = moves or everything(), settings["opt"]

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        w, moving = carry["w"], adapted.pick(task.names)
        part = {k: w[k] for k in task.names if k in moving}
        grads, _ = task.grad(lambda p: objective(task, carry, {**w, **p}, batch, key), part)
        rate = carry["lr"] * down["lr"]
        part, opt = optimiser.update(grads, carry["opt"], part, rate)
        if lam is not None:

            def pulled(a: Tensor, g: Tensor, f: Tensor) -> Tensor:
                pull = rate * lam * f
                # The limits, exactly: no pull leaves a, an endless one gives g.
                held: Tensor = g + (a - g) / (1 + pull)
                return held

            part = tree.map(pulled, part, *({k: carry[s][k] for k in part} for s in ("g", "f")))
        return {**carry, "w": {k: part.get(k, w[k]) for k in w}, "opt": opt}

    return Technique(
        name=name,
        phases=(Phase("adapt", 1, step),),
        moves=adapted,
        lam=lam,
        fisher=fisher,
        **settings,
    )


class TrainingArgs(TypedDict, total=False):
    """What every technique takes; ``lr`` fixes the rate, else clients pick from a grid."""

    lr: float
    max_epochs: int
    patience: int
    batch_size: int
    momentum: float


def fine_tune(**training: Unpack[TrainingArgs]) -> Technique:
    """All parameters, on the client's loss."""
    return _technique("fine-tune", training)


def freeze_base(train: Any = None, **training: Unpack[TrainingArgs]) -> Technique:
    """Only some layers, the last by default: ``train`` takes what ``shared=`` takes."""
    moves = last_layers(1) if train is None else selector(train)
    return _technique("freeze-base", training, moves=moves)


FISHERS = ("auto", "union", "own", "public")


def ewc(
    lam: float = 5000.0, *, fisher: str = "auto", **training: Unpack[TrainingArgs]
) -> Technique:
    """Held near the given model where that matters: by its Fisher information, times ``lam``."""
    not_negative(lam=lam)
    if fisher not in FISHERS:
        raise unknown("fisher", str(fisher), FISHERS)
    return _technique("ewc", training, lam=lam, fisher=fisher)


def distill(
    alpha: float = 0.95,
    temperature: float = 6.0,
    *,
    form: str = "usual",
    **training: Unpack[TrainingArgs],
) -> Technique:
    """Taught by the given model at a ``temperature``, with weight ``alpha``."""
    positive(temperature=temperature)
    if not 0 <= alpha <= 1:
        raise GlocalError(f"alpha must be from 0 to 1, not {alpha}.")
    if form not in ("usual", "paper"):
        raise unknown("form", str(form), ("usual", "paper"))
    T = temperature
    hard, soft = (1 - alpha, alpha * T**2) if form == "usual" else (alpha * T**2, 1 - alpha)

    def objective(task: Task, carry: Carry, w: Params, batch: Batch, key: Tensor) -> Tensor:
        x = task.inputs(batch, key)
        student = task.logits(w, x, key)
        teacher = (task.predict(carry["g"], x) / T).log_softmax(-1)
        kl = (teacher.exp() * (teacher - (student / T).log_softmax(-1))).sum(-1)
        each = over_positions(kl, batch["y"]) if kl.dim() > 1 else kl
        both = hard * task.losses(student, batch["y"]) + soft * each
        return weighted_mean(both, label_weights(batch))

    return _technique("distill", training, objective=objective)


HELD = ("g", "f")
"""Of a client's state: the model it was given, and its Fisher information."""

TECHNIQUES: dict[str, Callable[..., Technique]] = {
    "fine-tune": fine_tune,
    "freeze-base": freeze_base,
    "ewc": ewc,
    "distill": distill,
}


def _training(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as fields of a technique."""
    for name in given:
        if name not in TrainingArgs.__annotations__:
            raise unknown("setting", name, TrainingArgs.__annotations__)
    settings = {"rates": GRID, "max_epochs": 50, "patience": 10, "opt": sgd(1.0), **given}
    if "lr" in given:
        positive(lr=given["lr"])
        settings["rates"] = (float(settings.pop("lr")),)
    if "momentum" in given:
        settings["opt"] = sgd(1.0, momentum=settings.pop("momentum"))
    for name in ("max_epochs", "patience"):
        check_counts(epochs=settings[name], batch_size=settings.get("batch_size", 1))
    return settings


def techniques(given: str | Technique | Sequence[Technique] | None) -> list[Technique]:
    """``best`` (all of them), or some joined by ``+``: ``fine-tune(lr=0.01)+ewc(lam=100)``."""
    if given is None:
        return []
    found: list[Any] = []
    if not isinstance(given, str):
        found = list(given) if isinstance(given, Sequence) else [given]
        if not found or not all(isinstance(each, Technique) for each in found):
            raise GlocalError(f"{shown(given)} is not text: write adapt like 'fine-tune+ewc'.")
    for part in split_plus(given) if isinstance(given, str) else ():
        name, args, kwargs = parse_call(part)
        if name != "best" and name not in TECHNIQUES:
            raise unknown("adaptation", name, ["best", *TECHNIQUES])
        if name == "best" and args:
            raise GlocalError("best takes settings by name, as in best(max_epochs=20).")
        wanted = TECHNIQUES if name == "best" else [name]
        found += [build("adaptation", TECHNIQUES, Call(each, args, kwargs)) for each in wanted]
    names = [t.name for t in found]
    for name in names:
        if names.count(name) > 1:
            asked = given if isinstance(given, str) else "+".join(names)
            raise GlocalError(f"{name} is there twice in {shown(asked)}: keep one of them.")
    return found


def adapt(
    task: Task,
    fed: Federation,
    engine: Engine,
    technique: Technique,
    given: Params,
    seed: int,
    ids: Tensor | None = None,
    *,
    public: Public | None = None,
    union: Params | None = None,
    on_epoch: OnEpoch = lambda epoch, state: None,
    resumed: Tree | None = None,
) -> Selected[Params]:
    """The clients ``ids`` (all of them by default) adapt the models they were given, at once.

    ``given`` is stacked in the order of ``ids``. ``union`` is the Fisher information of all
    participants' data (:func:`fisher_of_union`); where it is not given, that of the ``ids``. Of a
    client that stays with its model, the epoch is 0. ``on_epoch`` is called with the epochs done
    and all that they left, which ``resumed`` takes.
    """
    technique.check(task, public)
    device = fed.x.device
    ids = torch.arange(len(fed), device=device) if ids is None else ids
    rates = torch.tensor(technique.rates, device=device)
    runs = ids.repeat_interleave(len(rates))  # a run is one client at one rate

    start = tree.map(lambda x: x.repeat_interleave(len(rates), 0), given)
    # What stays as it begins, of which there is one for each run, need not be kept.
    state = _begun(task, fed, engine, technique, start, rates, ids, public, union)
    if resumed:
        state |= resumed["state"]

    def told(epoch: int, left: Tree) -> None:
        moved = {k: part for k, part in left["state"].items() if k not in HELD}
        on_epoch(epoch, {**left, "state": moved})

    best = Best.of(task, start, runs, fed)
    at_first = scored(task, fed, engine, start, fed.val, runs)
    best.offer(torch.arange(len(runs), device=device), start, at_first, 0)
    keys = Keys(rng.fold(rng.key(seed, device), 0xADA7))
    train(task, fed, engine, technique, state, runs, keys, told, best, resumed)
    won = best.by_client(ids, rates, fed)
    # The last epoch within a standard error may be worse than the start: then the client stays.
    had, cost = at_first.value[:: len(rates)], at_first.loss[:: len(rates)]
    old, new = comparable(had, cost), comparable(won.val_score, won.val_loss)
    gains = (new > old) | ((new == old) & (won.val_loss < cost))
    return Selected(
        tree.where(gains, won.models, given),
        won.rate,
        torch.where(gains, won.epoch, 0),
        torch.where(gains, won.val_score, had),
        torch.where(gains, won.val_loss, cost),
        won.trained,
    )


def _begun(
    task: Task,
    fed: Federation,
    engine: Engine,
    technique: Technique,
    start: Params,
    rates: Tensor,
    ids: Tensor,
    public: Public | None,
    union: Params | None,
) -> Tree:
    """What every run begins with; a run is one client at one rate, and they are side by side."""
    moved = technique.moves.pick(task.names)
    moving = {k: start[k] for k in task.names if k in moved}
    runs = len(ids) * len(rates)
    state: Tree = {
        "w": start,
        "opt": tree.stack([technique.opt.init(tree.row(moving, i)) for i in range(runs)]),
        "g": start,
        "lr": rates.repeat(len(ids)),
    }
    if technique.lam is not None:
        given = tree.map(lambda x: x[:: len(rates)], start)
        if technique.of_union:
            of_all = union or fisher_of_union(task, fed, engine, lambda _: given, ids)
            found = tree.map(lambda f: f.expand(len(ids), *f.shape), of_all)
        else:
            found = fisher(task, fed, engine, given, ids, public if technique.public else None)
        state["f"] = tree.map(lambda x: x.repeat_interleave(len(rates), 0), found)
    return state


def at_once(task: Task, technique: Technique) -> int:
    """Clients that adapt together."""
    return max(1, BLOCK_BYTES // (4 * task.size * len(technique.rates) * 5))
