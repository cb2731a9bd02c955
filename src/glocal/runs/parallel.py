"""Several methods and repeats at once: processes that each train one repeat of one method.

Small models train on one thread, so a comparison on one process leaves all cores but one idle. A
repeat of a method, and a repeat of being alone, depend on nothing but the settings: they are dealt
to processes and put together here. What comes out is the same as of one process, to the bit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any

import torch

from glocal.core.errors import ClientError, GlocalError
from glocal.core.interrupts import Stopped
from glocal.core.progress import Report, print_note
from glocal.experiment import memory_estimate as limits
from glocal.experiment.config import Order, itself
from glocal.experiment.fit import Run, assembled, fit
from glocal.experiment.repeat import Repeat, threads_for
from glocal.methods import resolve
from glocal.runs.folder import slug
from glocal.runs.locks import hold
from glocal.slots.method import Plan, as_plan
from glocal.training.checkpoint import Keeping
from glocal.training.loop import Progress

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.runs.settings import Settings

LONG = 100
"""Rounds of all methods and repeats together from which on it pays to start processes."""

OnLine = Callable[[str, dict[str, Any]], None]
"""Called with a method's spec and a line of its history."""


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(specs: Sequence[str], settings: Settings, small: bool) -> int:
    """How many processes: the number asked for, or by rule one a core, where a core is one thread.

    The rule looks at nothing but the settings, the model and the machine.
    """
    tasks = settings.repeats * (len(specs) + 1)
    if settings.jobs:
        return min(settings.jobs, tasks)
    long = settings.rounds * settings.repeats * len(specs) >= LONG
    return min(cores(), tasks) if small and long and settings.device == "cpu" else 1


def train_all(
    specs: Sequence[str],
    settings: Settings,
    fed: Federation,
    report: Report,
    on_line: OnLine = lambda spec, line: None,
    alone: Sequence[Repeat] = (),
    keeping: Mapping[str, Keeping] | None = None,
) -> Iterator[tuple[str, Run]]:
    """Train every method, and yield each as soon as it is done, in the order of ``specs``.

    What cannot be done is refused before anyone trains. ``alone`` are the yardsticks of all
    repeats, if they are known from an earlier run on the same data. ``keeping`` says for each
    method where its checkpoints are; training goes on from those.
    """
    keeping = keeping or {}
    plans = {spec: as_plan(resolve(spec)) for spec in specs}
    arguments = settings.fit_arguments()
    order = Order(**arguments)
    here = order.place(fed, 0)
    jobs = jobs_for(specs, settings, here.small)
    needs = {spec: order.needs(plan, here, jobs) for spec, plan in plans.items()}
    if not settings.jobs:
        jobs = min(limits.processes(need, jobs) for need in needs.values())
    if any(need and need.disk for need in needs.values()):
        jobs = 1  # who writes the result must have the file that the states are in
    for spec, need in needs.items():
        among = need and limits.counted(replace(need.sizes, processes=jobs))
        name = spec if len(specs) > 1 else "this run"
        limits.check(among, here.fed.x.device, name, keeping.get(spec))
    if jobs == 1:
        for spec in specs:
            with _named(spec, len(specs)):
                run = fit(
                    spec,
                    fed,
                    **arguments,
                    checkpoints=keeping.get(spec),
                    progress=report,
                    on_line=partial(on_line, spec),
                )
            yield spec, run
        return
    yield from _dealt(plans, order, settings, fed, jobs, report, on_line, alone, keeping)


Task = tuple[str, int]
"""A spec and a repeat."""


def _dealt(
    plans: dict[str, Plan],
    order: Order,
    settings: Settings,
    fed: Federation,
    jobs: int,
    report: Report,
    on_line: OnLine,
    known: Sequence[Repeat],
    keeping: Mapping[str, Keeping],
) -> Iterator[tuple[str, Run]]:
    yardsticks = {s: s if itself(p) else settings.yardstick for s, p in plans.items()}
    wanted = list(dict.fromkeys([*yardsticks.values(), *plans]))
    found: dict[str, dict[int, Repeat]] = defaultdict(dict)
    found[settings.yardstick] = dict(enumerate(known))
    tasks = [(s, r) for s in wanted for r in range(settings.repeats) if r not in found[s]]
    context = multiprocessing.get_context("spawn")
    said, stop = context.SimpleQueue(), context.Event()
    # The yardstick may not be among the methods: its checkpoints are where all share them.
    anybody = next(iter(keeping.values()), None)
    kept = {s: keeping.get(s, anybody) for s in wanted}
    pool = ProcessPoolExecutor(
        jobs,
        context,
        initializer=_begin,
        initargs=(settings, said, stop, kept, max(1, cores() // jobs)),
    )
    left = list(plans)
    halted = False
    try:
        running: dict[Future[bytes], Task] = {pool.submit(_work, *t): t for t in tasks}
        while left:
            done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            while not said.empty():
                _pass_on(said.get(), report, on_line)
            if anybody is not None and anybody.stop():
                stop.set()
                for future in [f for f in running if f.cancel()]:
                    del running[future]
                    halted = True
            for future in done & running.keys():
                spec, r = running.pop(future)
                try:
                    with _named(spec, len(plans)):
                        found[spec][r] = pickle.loads(future.result())
                except Stopped:
                    halted = True
            if halted and not running:
                raise Stopped
            while left and all(
                len(found[s]) == settings.repeats for s in (left[0], yardsticks[left[0]])
            ):
                spec = left.pop(0)
                own, alone = (
                    [found[s][r] for r in range(settings.repeats)] for s in (spec, yardsticks[spec])
                )
                same = spec == yardsticks[spec]
                yield spec, assembled(order, spec, fed, own, own if same else alone)
    except BrokenProcessPool as error:
        raise GlocalError(
            "a worker process was ended from outside, perhaps for want of memory: use --jobs 1."
        ) from error
    finally:
        pool.shutdown(wait=not left, cancel_futures=True)
        if left:  # stopped half-way: what still runs would run for nobody
            for child in multiprocessing.active_children():
                child.kill()


@contextmanager
def _named(spec: str, methods: int) -> Iterator[None]:
    """Of several methods, say which one a client could not train."""
    try:
        yield
    except ClientError as error:
        if methods == 1:
            raise
        raise ClientError(f"{spec}: {error}") from error


def _pass_on(message: tuple[Any, ...], report: Report, on_line: OnLine) -> None:
    kind, *rest = message
    if kind == "line":
        on_line(*rest)
    elif kind == "note":
        print_note(*rest)
    else:
        report(*rest)


_SAID: Any = None
_SETTINGS: Any = None
_KEPT: dict[str, Keeping | None] = {}


def _note(text: str) -> None:
    _SAID.put(("note", text))


def _begin(
    settings: Settings, said: Any, stop: Any, kept: dict[str, Keeping | None], threads: int
) -> None:
    """In a new worker: whom to tell, and not to answer signals to stop, which the parent does."""
    global _SAID, _SETTINGS, _KEPT
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _KEPT = {s: k and replace(k, stop=stop.is_set, note=_note) for s, k in kept.items()}
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _SAID, _SETTINGS = said, settings


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers: they end themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


@contextmanager
def _only_here(keeping: Keeping | None, spec: str, repeat: int) -> Iterator[None]:
    """A worker whose parent was killed may write for a moment longer: wait for that."""
    if keeping is None:
        yield
        return
    place = keeping.folder / "at-work" / f"{slug(spec)}-{repeat + 1}"
    with hold(place, wait=60):
        yield


@lru_cache(maxsize=1)
def _prepared(settings: Settings) -> tuple[Federation, Order]:
    return settings.federation(), Order(**settings.fit_arguments())


def _work(spec: str, repeat: int) -> bytes:
    """One repeat of one method, pickled here: as it is, torch would pass it in shared memory."""
    fed, order = _prepared(_SETTINGS)
    here = order.place(fed, repeat)
    plan = as_plan(resolve(spec))
    alone = itself(plan)

    def on_round(done: Progress, new: list[dict[str, Any]]) -> None:
        _SAID.put(("tick", order.title(spec, repeat), done.round, order.rounds))
        for line in new:
            _SAID.put(("line", spec, order.line(line, repeat)))

    def tick(done: int, total: int) -> None:
        _SAID.put(("tick", order.title("alone", repeat), done, total))

    def on_epoch(done: int, total: int) -> None:
        _SAID.put(("tick", order.title(f"{spec}, adapting", repeat), done, total))

    keeping = _KEPT.get(spec)
    with threads_for(here), _only_here(keeping, spec, repeat):
        if alone:
            one = order.by_itself(alone, here, tick, keeping)
        else:
            one = order.federated(plan, here, on_round, on_epoch, keeping, spec)
    return pickle.dumps(one.figures() if repeat else replace(one, trained=None))
