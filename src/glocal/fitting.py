"""Train a method on a federation and say, for each client, whether it is better off than alone."""

from __future__ import annotations

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glocal import engines, models, newtest, rng, runs, server, tree
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.errors import GlocalError
from glocal.evaluate import Outcome, outcomes, pick
from glocal.ledger import Ledger, published
from glocal.method import Method, Plan, as_plan
from glocal.methods import resolve
from glocal.methods.local import Alone, local
from glocal.progress import Report, reporter
from glocal.results import Table, Trial, client_table, pool_is_valid, summarise
from glocal.sampling import Fixed, Fraction, Poisson, Sampler
from glocal.task import Augment, Losses, Task, cross_entropy, try_out, try_vectorised
from glocal.train import Progress, Training
from glocal.types import Params, Tree
from glocal.yardstick import Yardstick, measure

ONE_THREAD = 30_000
"""Parameters below which threads of a CPU wait for each other longer than they compute."""

ModelLike = str | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Trained:
    """A training that is over, with everything needed to go on or to judge it in other ways."""

    training: Training
    progress: Progress

    def models(self) -> Params:
        """Every client's model (chosen on its validation data), stacked."""
        t = self.training
        everyone = torch.arange(len(t.fed), device=t.fed.x.device)
        return pick(t.task, t.fed, t.engine, t.models(self.progress)(everyone), everyone)[0]


@dataclass(frozen=True)
class Run:
    """What came of a method: a model, a row for each client, the federation's figures."""

    method: str
    model: Params
    """What the server ends with (private layers as they began); of ``local``, nothing."""
    clients: Table
    """One row for each client: accuracy, local_accuracy, benefit, verdict and more."""
    summary: dict[str, Any]
    """mean, worst10, better_off, worse_off, undecided, params_up and more."""
    history: list[dict[str, Any]]
    """A line for each round (for each epoch of ``local``: none)."""
    data: dict[str, Any]
    """Where the data came from and how it was dealt."""
    states: Tree
    """What the clients keep: ``ids`` and their states, stacked (of ``local``: their models)."""
    settings: dict[str, Any]
    """Everything that was chosen, by the caller or by rule."""
    trained: Trained | None = field(default=None, repr=False)
    """The first repeat as it stood after its last round, for judging further; not in files."""
    yardstick: bool = False
    """Whether this is the yardstick itself: its benefit is 0 by definition."""

    def save(self, folder: str | Path) -> None:
        """Write ``result.json`` and the models to a new folder."""
        runs.save(self, runs.prepare(Path(folder)))

    def __repr__(self) -> str:
        """The verdict in a line."""
        s = self.summary
        return (
            f"<Run {self.method}: mean accuracy {s['mean']:.3f} (alone {s['local_mean']:.3f}); "
            f"{s['better_off']} better off, {s['worse_off']} worse off, "
            f"{s['undecided']} undecided of {s['clients']}>"
        )


@dataclass(frozen=True)
class Bench:
    """One repeat's working place: a split of the federation, the task and the engine."""

    fed: Federation
    task: Task
    engine: Engine
    seed: int
    key: str
    """Equal for benches on which a yardstick would come out the same."""
    own: tuple[object, ...]
    """The caller's objects whose ids are in the key: an id means something while they live."""


def fit(
    method: str | Method | Plan,
    fed: Federation,
    *,
    model: ModelLike = "mlp",
    rounds: int = 50,
    fraction: float = 1.0,
    sampled: int | None = None,
    poisson: bool = False,
    repeats: int = 1,
    seed: int = 0,
    engine: str = "auto",
    device: str = "cpu",
    init: Mapping[str, Tensor] | str | Path | None = None,
    losses: Losses = cross_entropy,
    augment: Augment | None = None,
    yardstick: Method | str | None = None,
    validate_every: int = 0,
    new_test: bool = False,
    progress: bool | Report | None = None,
    name: str | None = None,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Run:
    """Train ``method`` on ``fed`` and judge every client against its own yardstick.

    Args:
        method: a spec such as ``"fedprox(mu=0.1)"``, a Method, or a Plan of stages.
        fed: from :func:`glocal.load` or :func:`glocal.federation`.
        model: a name such as ``"mlp"`` or ``"mlp(200, 200)"``, your own module, or a function that
            builds one.
        rounds: communication rounds.
        fraction: share of clients in a round.
        sampled: how many clients in a round, instead of ``fraction``.
        poisson: let every client flip a coin of that probability instead of drawing a fixed number.
        repeats: how often to repeat on another split and seed; verdicts pool over them.
        seed: of everything that is drawn.
        engine: ``auto``, ``sequential`` or ``vectorised``.
        device: ``cpu`` or ``cuda``.
        init: weights to start from, a dict or a safetensors file.
        losses: one loss per example from logits and labels.
        augment: a keyed augmentation of training batches (:mod:`glocal.augment`).
        yardstick: how clients train alone, ``"local"`` with settings; the default tries three
            learning rates with early stopping.
        validate_every: record validation accuracy each so many rounds (0: after the last).
        new_test: also judge all clients' models together on data of unknown origin
            (:mod:`glocal.newtest`).
        progress: show bars: on a terminal by default; or a function (what, done, total).
        name: what to call the run; the spec as typed by default.
        on_line: called with each round's line of the history.
    """
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    name = name or (method if isinstance(method, str) else "method")
    sampler = _sampler(fraction, sampled, poisson, len(fed))
    alone = _alone(yardstick)
    check_whole(rounds=rounds, repeats=repeats)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise GlocalError(f"seed must be a whole number from 0 to 2^63 − 1, not {seed}.")
    own = plan.stages[0].method.local if len(plan.stages) == 1 else None
    if isinstance(own, Alone):
        alone = own
    trials, first = [], None
    together: list[dict[str, Any]] = []
    with reporter(progress) as report, ExitStack() as after:
        after.callback(torch.set_num_threads, torch.get_num_threads())
        for r in range(repeats):
            suffix = f" ({r + 1} of {repeats})" if repeats > 1 else ""
            bench = _bench(fed, model, seed, r, engine, device, init, losses, augment)
            if bench.engine.name == "vectorised" and tree.count(bench.task.params) < ONE_THREAD:
                torch.set_num_threads(1)
            for stage in plan.stages:
                stage.method.shared_names(bench.task)  # refuses what does not fit the model
            yard, judged = _measured(bench, alone, partial(report, f"alone{suffix}"))
            if isinstance(own, Alone):
                trials.append(Trial(bench.fed, judged, judged, Ledger()))
                first = first or _Ended({}, {"ids": torch.arange(len(fed)), **yard.models}, [])
                if new_test:
                    found = newtest.stacked(bench.task, bench.fed, bench.engine, yard.models)
                    together.append(found)
                continue
            training = Training(
                plan,
                bench.task,
                bench.fed,
                bench.engine,
                sampler,
                rounds,
                bench.seed,
                validate_every,
            )

            def on_round(done: Progress, r: int = r, suffix: str = suffix) -> None:
                report(f"{name}{suffix}", done.round, rounds)
                on_line({**done.history[-1], **({"repeat": r + 1} if repeats > 1 else {})})

            done = training.run(training.begin(bench.task.params), on_round)
            judged_method = outcomes(
                bench.task,
                bench.fed,
                bench.engine,
                training.models(done),
                pool=pool_is_valid(bench.fed),
                one_for_all=training.one_for_all(done),
            )
            trials.append(Trial(bench.fed, judged_method, judged, done.ledger))
            first = first or _ended(training, done)
            if new_test:
                together.append(newtest.new_test(Trained(training, done)))
    rows = client_table(trials)
    summary = summarise(rows, trials)
    summary["rounds"] = 0 if isinstance(own, Alone) else rounds
    summary["params_published"] = first.published if first else 0
    summary["parameters"] = tree.count(bench.task.params)
    if new_test:
        summary["new_test"] = newtest.mean(together)
    settings = {
        "method": name,
        "model": model if isinstance(model, str) else type(bench.task.module).__name__,
        "rounds": rounds,
        "fraction": fraction,
        **({"sampled": sampled} if sampled is not None else {}),
        **({"poisson": True} if poisson else {}),
        "repeats": repeats,
        "seed": seed,
        "engine": bench.engine.name,
        "device": device,
    }
    assert first is not None  # repeats is 1 or more
    return Run(
        method=name,
        model=first.model,
        clients=rows,
        summary=summary,
        history=first.history,
        states=first.states,
        data=fed.describe,
        settings=settings,
        trained=first.trained,
        yardstick=isinstance(own, Alone),
    )


@dataclass(frozen=True)
class _Ended:
    model: Params
    states: Tree
    history: list[dict[str, Any]]
    published: int = 0
    trained: Trained | None = None


def _ended(training: Training, done: Progress) -> _Ended:
    ids, states = done.clients.saved()
    whole = server.first_parameters(training.task, done.server)
    setting = training.setting
    # As papers count: what is shared goes down to everybody and up from the sampled, every round.
    sizes = [
        up.get("shared", 0) // max(1, line["cohort"])
        for up, line in zip(done.ledger.up, done.history, strict=True)
    ]
    total = sum(published(1, size, setting.clients, setting.fraction) for size in sizes)
    trained = Trained(training, done)
    return _Ended(whole, {"ids": ids, **states}, done.history, total, trained)


def _bench(
    fed: Federation,
    model: ModelLike,
    seed: int,
    repeat: int,
    engine: str,
    device: str,
    init: Mapping[str, Tensor] | str | Path | None,
    losses: Losses,
    augment: Augment | None,
) -> Bench:
    """The ``repeat``-th split and seed; the first is the caller's own."""
    where = _device(device)
    if repeat:
        fed = fed.fold(repeat)
        seed = rng.seed_of(rng.fold(rng.key(seed), repeat))
    module, fresh, label = _module(model, fed, seed)
    if init is not None:
        load_weights(module, init)
    task = Task(module, losses=losses, augment=augment, fresh=fresh).to(where)
    fed = fed.to(where)
    try_out(task, fed.x, fed.y)
    runner = engines.resolve(engine, task, where)
    if runner.name == "vectorised":
        try_vectorised(task, fed.x, fed.y)
    digest = hashlib.sha256(label.encode())
    for leaf in task.params.values():
        digest.update(leaf.cpu().numpy().tobytes())
    own = (losses, augment, None if isinstance(model, str) else model)
    ids = " ".join(str(id(part)) for part in own)
    key = f"{fed.fingerprint} {digest.hexdigest()} {seed} {where} {runner.name} {ids}"
    return Bench(fed, task, runner, seed, key, own)


_YARDSTICKS: OrderedDict[str, tuple[Yardstick, Outcome, object]] = OrderedDict()
"""The last few, so that methods compared on one federation share theirs."""

KEPT = 32


def _measured(
    bench: Bench, alone: Alone, tick: Callable[[int, int], None]
) -> tuple[Yardstick, Outcome]:
    """The yardstick: trained once for a federation, a model and a seed."""
    key = f"{bench.key} {alone.label}"
    if key not in _YARDSTICKS:
        yard = measure(bench.task, bench.fed, bench.engine, alone, bench.seed, tick)
        judged = outcomes(
            bench.task,
            bench.fed,
            bench.engine,
            lambda ids: {"own": tree.row(yard.models, ids)},
            pool=pool_is_valid(bench.fed),
        )
        _YARDSTICKS[key] = (yard, judged, bench.own)
        while len(_YARDSTICKS) > KEPT:
            _YARDSTICKS.popitem(last=False)
    yard, judged, _ = _YARDSTICKS[key]
    return yard, judged


def _alone(yardstick: Method | str | None) -> Alone:
    method = (
        local()
        if yardstick is None
        else resolve(yardstick)
        if isinstance(yardstick, str)
        else yardstick
    )
    if not isinstance(method, Method) or not isinstance(method.local, Alone):
        raise GlocalError("the yardstick must be local, with settings if you like: local(lr=0.1).")
    return method.local


def _module(
    model: ModelLike, fed: Federation, seed: int
) -> tuple[nn.Module, Callable[[], nn.Module] | None, str]:
    """The module, how to build it afresh (torch's seed is set around that), and a name for it."""
    if isinstance(model, str):
        shape = tuple(fed.x.shape[1:])

        def again() -> nn.Module:
            # Each fresh initialisation is drawn from the seed that is set where it is asked for.
            return models.build(
                model, input_shape=shape, classes=fed.classes, seed=torch.initial_seed()
            )

        return models.build(model, input_shape=shape, classes=fed.classes, seed=seed), again, model
    if isinstance(model, nn.Module):
        return copy.deepcopy(model), None, repr(model)
    if callable(model):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = model()
            except (Exception, SystemExit) as error:  # whatever the user's function raises
                raise GlocalError(
                    f"the model cannot be built: {type(error).__name__}: {error}; it must be "
                    "something that is called without arguments and returns a torch.nn.Module."
                ) from error
        if isinstance(module, nn.Module):
            return module, model, repr(module)
    raise GlocalError(
        "model must be a name such as 'mlp', a torch.nn.Module, or a function that returns one, "
        f"not {type(model).__name__}."
    )


def load_weights(module: nn.Module, init: Mapping[str, Tensor] | str | Path) -> None:
    """Start from given weights: every name and shape must fit."""
    if isinstance(init, str | Path):
        from safetensors.torch import load_file

        try:
            init = load_file(init)
        except Exception as error:  # safetensors raises its own kinds
            raise GlocalError(
                f"the weights in {init} cannot be read ({error}): give a .safetensors file."
            ) from error
    named = dict(module.named_parameters())
    missing, unknown = named.keys() - init.keys(), init.keys() - named.keys()
    if missing or unknown:
        raise GlocalError(
            f"the given weights do not fit the model: missing {sorted(missing) or 'nothing'}, "
            f"unknown {sorted(unknown) or 'nothing'}."
        )
    for key, parameter in named.items():
        if parameter.shape != init[key].shape:
            raise GlocalError(
                f"the given weights do not fit the model: {key} has shape "
                f"{tuple(init[key].shape)}, and the model needs {tuple(parameter.shape)}."
            )
        with torch.no_grad():
            parameter.copy_(init[key])


def _sampler(fraction: float, sampled: int | None, poisson: bool, clients: int) -> Sampler:
    if sampled is not None:
        check_whole(sampled=sampled)
        if sampled > clients:
            raise GlocalError(
                f"{sampled} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        return Poisson(sampled / clients) if poisson else Fixed(sampled)
    return Poisson(fraction) if poisson else Fraction(fraction)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GlocalError(f"unknown device {name!r}: use 'cpu' or 'cuda'.") from error
    if device.type not in ("cpu", "cuda"):
        raise GlocalError(f"device {name!r} is not supported: use 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise GlocalError("there is no CUDA device here: use device='cpu'.")
    return device


def check_whole(**counts: int) -> None:
    """Refuse what is not a whole number of 1 or more."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise GlocalError(f"{name} must be a whole number of 1 or more, not {value}.")
