"""Several methods at once: processes that each train one method, its repeats side by side.

Small models train on one thread, so a comparison on one process leaves all cores but one idle. The
repeats of a method, and those of the local baseline, depend on nothing but the configuration and
the data: processes share them out, and what they came to is collected here. What comes out is the
same as of one process, to the bit where as many repeats are side by side.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from glocal.core.errors import ClientError, GlocalError
from glocal.core.interrupts import Stopped
from glocal.core.locks import hold
from glocal.core.processes import begin_worker, call, cores, lost_workers_explained, without_script
from glocal.core.progress import print_note
from glocal.data.federation import Federation
from glocal.experiment.best_runner import AloneRepeats, BestAlone, fits
from glocal.experiment.config import Config
from glocal.experiment.ray_pool import RayPool, cluster_jobs
from glocal.experiment.repeat import Repeat
from glocal.experiment.runner import (
    AnyRunner,
    Callbacks,
    Federated,
    Runner,
    baseline_of,
    groups,
    run_seeds,
    runner_of,
    set_against,
)
from glocal.experiment.setup import Setup, make
from glocal.methods import registry
from glocal.slots.method import Method, Plan
from glocal.training.checkpoint import CheckpointPolicy

LONG = 100
"""Rounds of all methods and repeats together from which on it pays to start processes."""

BASELINE = ""
"""What the local baseline is called here: no method has that name."""

BEST = " "
"""What scikit-learn's fits of clients alone are called here."""


def jobs_for(methods: int, config: Config, small: bool) -> int:
    """How many processes: the number asked for, or by rule one a core, where a core is one thread.

    The rule looks at nothing but the settings, the model and the machine.
    """
    tasks = config.repeats * (methods + 1)  # a method's repeats can be divided
    if isinstance(config.jobs, str):
        return min(cluster_jobs(), tasks)
    if config.jobs:
        return min(config.jobs, tasks)
    long = config.rounds * config.repeats * methods >= LONG
    return min(cores(), tasks) if small and long and config.device == "cpu" else 1


def share(config: Config, methods: int, jobs: int) -> int:
    """Repeats of a method in one process: all, unless there are more processes than methods."""
    return -(-config.repeats // max(1, jobs // methods))


def repeats(
    methods: Mapping[str, str | Method | Plan],
    runners: Mapping[str, Runner],
    fed: Federation,
    first: Setup,
    jobs: int,
    lanes: Mapping[str, int],
    callbacks: Callbacks,
    checkpoints: Mapping[str, CheckpointPolicy],
    known: Sequence[Repeat],
) -> Iterator[tuple[str, list[Repeat], AloneRepeats]]:
    """Every method's repeats and those of its local baseline, as processes have done them.

    A task is a method's repeats, as many as train side by side (``lanes``). Of the local baseline
    that all methods share, some repeats may be ``known``.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise GlocalError(
            "with jobs=2 or more, a script's calls go under if __name__ == '__main__'."
        )
    config, count = first.config, first.config.repeats
    # One of the methods may be the local baseline: it is trained once.
    baselines = set_against(config, runners)
    themselves = [n for n, runner in runners.items() if baselines[n] is runner]
    shared = themselves[0] if themselves else BASELINE
    against = [] if config.baseline == "none" else [shared, *([BEST] if fits(first) else [])]
    finished: dict[str, dict[int, Repeat]] = defaultdict(dict)
    finished[shared] = dict(enumerate(known))
    wanted = list(dict.fromkeys([*against, *runners]))
    hear: dict[str, Callable[..., None]] = {
        "tick": callbacks.report,
        "line": callbacks.on_line,
        "note": print_note,
    }
    # The local baseline is none of the methods: its checkpoints are where all share them.
    anybody = next(iter(checkpoints.values()), None)
    kept = {name: checkpoints.get(name, anybody) for name in wanted}
    tasks = []
    for name in wanted:
        left_out = [r for r in range(count) if r not in finished[name]]
        runner = _runner(name, config, runners)
        if isinstance(runner, Federated):
            fitting = lanes[name]
            together = min(fitting, share(config, len(runners), jobs))
        else:  # clients alone are side by side, all repeats of them; scikit-learn's fits are not
            fitting = together = 1 if name == BEST else count
        divided = groups(runner, left_out, together, kept[name])
        tasks += [(name, some, fitting) for some in divided]
    # What takes longest is begun first, so that all processes end at about the same time.
    tasks.sort(key=lambda task: -_cost(task[0], task[1][0], _runner(task[0], config, runners)))
    sent = _sent(config, fed, methods, kept)
    pool, messages, stop = _pool(config, jobs, sent)
    left, halted = list(runners), False
    try:
        with lost_workers_explained(), without_script(sent):
            running = {pool.submit(_work, *task): task for task in tasks}
        while left:
            done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            while not messages.empty():
                kind, *said = messages.get()
                hear[kind](*said)
            if anybody is not None and anybody.stop():
                stop.set()
                for future in [f for f in running if f.cancel()]:
                    del running[future]
                    halted = True
            for future in done & running.keys():
                name, some, _ = running.pop(future)
                try:
                    with lost_workers_explained(), named(name, len(runners)):
                        finished[name] |= zip(some, pickle.loads(future.result()), strict=True)
                except Stopped:
                    halted = True
            if halted and not running:
                raise Stopped
            while left and all(len(finished[n]) == count for n in (left[0], *against)):
                name = left.pop(0)
                method = runners[name]
                every = {n: [finished[n][r] for r in range(count)] for n in (name, *against)}
                if name in themselves:
                    every[shared] = every[name]
                if isinstance(method, Federated):
                    every[name][0] = method.restored(first, every[name][0])
                same = every[shared] if against else []
                yield name, every[name], AloneRepeats.of(first, same, every.get(BEST, []))
    finally:
        pool.shutdown(wait=not left, cancel_futures=True)
        if left:  # stopped half-way: what still runs would run for nobody
            for child in multiprocessing.active_children():
                child.kill()


def _pool(config: Config, jobs: int, sent: bytes) -> tuple[Any, Any, Any]:
    """Workers, what they say, and by which they are stopped: processes, or those of a cluster."""
    if config.jobs == "ray":
        cluster = RayPool(jobs, _given, sent, gpu=config.device != "cpu")
        return cluster, cluster, cluster
    context, threads = multiprocessing.get_context("spawn"), max(1, cores() // jobs)
    messages, stop = context.SimpleQueue(), context.Event()
    pool = ProcessPoolExecutor(
        jobs,
        context,
        initializer=call,
        initargs=(_begin.__module__, _begin.__name__, sent, messages, stop, threads),
    )
    return pool, messages, stop


def _cost(name: str, repeat: int, runner: AnyRunner) -> float:
    """How long a task may take beside others: clients alone try most.

    Scikit-learn's first fits come second, since they need no compiler, for whose first run others
    wait; the rest comes last: small pieces, with which all processes end at about the same time.
    """
    if name == BEST:
        return sys.float_info.max if repeat == 0 else 0.0
    if not isinstance(runner, Federated):
        return math.inf
    steps = [stage.method.local.phases for stage in runner.plan.stages]
    return max(sum(p.gradients * max(p.epochs, 1) for p in phases) for phases in steps)


def _sent(
    config: Config,
    fed: Federation,
    methods: Mapping[str, str | Method | Plan],
    kept: Mapping[str, CheckpointPolicy | None],
) -> bytes:
    """What a worker needs, pickled here: as it is, torch would pass it in shared memory."""
    try:
        return pickle.dumps((config, fed, dict(methods), kept, registry.REGISTERED))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise GlocalError(
            f"this cannot be sent to other processes ({error}): give methods and models by "
            "name, or use jobs=1."
        ) from error


def _runner(name: str, config: Config, runners: Mapping[str, Runner]) -> AnyRunner:
    if name == BEST:
        return BestAlone()
    return baseline_of(config) if name == BASELINE else runners[name]


@contextmanager
def named(name: str, methods: int) -> Iterator[None]:
    """Of several methods, say which one a client could not train."""
    try:
        yield
    except ClientError as error:
        if not name.strip():
            raise
        error.method = name
        if methods == 1:
            raise
        told = ClientError(f"{name}: {error}")
        told.method = name
        raise told from error


@dataclass
class _Worker:
    """What a worker process was given at its start."""

    config: Config
    fed: Federation
    methods: Mapping[str, str | Method | Plan]
    messages: Any
    checkpoints: Mapping[str, CheckpointPolicy | None]


_WORKER: list[_Worker] = []


def _begin(sent: bytes, messages: Any, stop: Any, threads: int) -> None:
    """In a new worker: whom to tell, and not to answer signals to stop, which the parent does."""
    begin_worker()
    _given(sent, messages, stop, threads)


def _given(sent: bytes, messages: Any, stop: Any, threads: int) -> None:
    """What a worker works with, and whom it tells."""
    torch.set_num_threads(threads)
    config, fed, methods, kept, names = pickle.loads(sent)
    registry.REGISTERED.update(names)

    def note(text: str) -> None:
        messages.put(("note", text))

    checkpoints = {n: k and replace(k, stop=stop.is_set, note=note) for n, k in kept.items()}
    _WORKER.append(_Worker(config, fed, methods, messages, checkpoints))


def _work(name: str, repeats: tuple[int, ...], lanes: int) -> bytes:
    """Repeats of one method, pickled here: as they are, torch would pass them in shared memory.

    ``lanes`` trainings fit into memory side by side.
    """
    worker = _WORKER[0]

    def tell(kind: str) -> Callable[..., None]:
        return lambda *said: worker.messages.put((kind, *said))

    methods = {} if name in (BASELINE, BEST) else {name: runner_of(name, worker.methods[name])}
    runner = _runner(name, worker.config, methods)
    keeping = worker.checkpoints.get(name)
    writing: AbstractContextManager[None] = nullcontext()
    if keeping is not None:
        # A worker whose parent was killed may write for a moment longer: wait for that.
        safe = re.sub(r"[^A-Za-z0-9]+", "_", name)[:50] or "baseline"
        writing = hold(keeping.folder / "at-work" / f"{safe}-{repeats[0] + 1}", wait=60)
    with writing:
        setups = [make(worker.config, worker.fed, repeat) for repeat in repeats]
        told = Callbacks(tell("tick"), tell("line"))
        results = run_seeds(runner, setups, told, keeping, lanes=lanes)
    return pickle.dumps([replace(result, trained=None) for result in results])
