"""Method specs made into methods.

A spec is a base, its hyper-parameters in brackets, and components joined by ``+``:
``fedprox(mu=0.1)+uniform+adam(lr=0.01)``. A component used as a base means fedavg with it (one that
acts on private layers, lg-fedavg with it), and the settings it does not know are fedavg's:
``adam(lr=0.01, epochs=1)`` is ``fedavg(epochs=1)+adam(lr=0.01)``, where ``lr`` is the server's.
``name@preset`` brings the settings of a paper (:mod:`glocal.methods.presets`).
``own.py:name`` is a method or a component of the user's own. Every base also takes ``shared``,
which layers are, and ``rounds``, how many it trains for where that is not what the settings say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from glocal.core import validation
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.own_code import is_own, told
from glocal.core.spec import Call, parse_call, split_plus, written
from glocal.methods import presets, registry
from glocal.nn import optim
from glocal.slots import sharing
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.slots.sharing import Selector

SELECTORS: dict[str, Callable[..., Selector]] = {
    "all-but-last": sharing.all_but_last,
    "everything": sharing.everything,
    "first": sharing.first,
    "last": sharing.last,
    "nothing": sharing.nothing,
}

EVERY_BASE = ("shared", "rounds")
"""What every base takes beside its own settings and those of training."""


OF_PRIVATE_LAYERS = ("auxiliary", "pretraining")
"""Slots that act where clients keep layers private; a stage that shares all goes without."""


def resolve(spec: str) -> Method | Plan:
    """The method a spec describes."""
    if not isinstance(spec, str):
        raise GlocalError(f"a method is a name such as 'fedavg' or a Method, not {shown(spec)}.")
    first, *components = calls(spec)
    entry = registry.lookup(first.name)
    name, kwargs = first.name, dict[str, Any](first.kwargs)
    if entry is None:
        raise unknown("method", name, registry.known())
    slots = _fill(spec, components)
    rounds = kwargs.pop("rounds", None)
    if name == "local" and rounds is not None:
        raise GlocalError("local has no rounds: give max_epochs instead.")
    if name == "local" and (slots or "shared" in kwargs):
        raise GlocalError(
            f"local sends nothing, so the rest of {shown(spec)} would do nothing: leave it out."
        )
    if name == "propfair-loss" and "weighting" in slots and slots["weighting"].name == "propfair":
        raise GlocalError(
            f"propfair-loss and propfair in {shown(spec)} are two spellings of one tilt, which "
            "would count twice: keep one of them."
        )
    if "shared" in kwargs:
        chosen = selector(kwargs.pop("shared"))
        # A method that splits the model itself (FedRep) must know the split; others need not.
        knows = "shared" in inspect.signature(entry.make).parameters
        (kwargs if knows else slots)["shared"] = chosen
    base: Method | Plan = _made(entry.make, Call(name, first.args, kwargs), EVERY_BASE)
    if "server_opt" in slots:
        _refuse_a_second_optimiser(spec, name, base, slots["server_opt"])
    if rounds is not None:
        base = replace(as_plan(base), rounds=rounds)
    if not slots:
        return base
    if isinstance(base, Method):
        return base.replace(**slots)
    return replace(base, stages=tuple(_filled(stage, slots, base) for stage in base.stages))


def _filled(stage: Stage, slots: dict[str, Any], plan: Plan) -> Stage:
    """A stage with its slots filled: what needs private layers, where there are some."""

    def private(stage: Stage) -> bool:
        return (slots.get("shared") or stage.method.shared).name != "everything"

    if not private(stage) and any(map(private, plan.stages)):
        slots = {name: made for name, made in slots.items() if name not in OF_PRIVATE_LAYERS}
    return replace(stage, method=stage.method.replace(**slots))


def calls(spec: str) -> list[Call]:
    """The base of a spec, which is a method's, and the components joined to it."""
    first, *components = presets.parsed(spec)
    entry = registry.lookup(first.name)
    if entry is not None and entry.slot != "method":
        return [*_as_base(first, entry), *components]
    return [first, *components]


def with_setting(spec: str, name: str, value: Any) -> str:
    """A spec whose base has one more setting: ``ditto`` at lr = 0.1 is ``ditto(lr=0.1)``."""
    base, *components = split_plus(spec)
    if name in parse_call(base)[2]:
        raise GlocalError(f"{name} is given in {shown(spec)} already: leave it out there.")
    inside = base[:-1].rstrip() if base.endswith(")") else f"{base}("
    comma = "" if inside.endswith("(") else ", "
    return "+".join([f"{inside}{comma}{name}={written(value)})", *components])


def leaves_rate_open(spec: str) -> bool:
    """Whether a spec's clients have a learning rate, and it does not say which."""
    base = calls(spec)[0]
    entry = registry.lookup(base.name)
    takes = validation.declared(entry.make)[1].keys() if entry is not None else set()
    return "lr" in takes and "lr" not in base.kwargs


def _as_base(call: Call, entry: registry.Entry) -> tuple[Call, Call]:
    """A component used as a base is fedavg with it: the settings it knows are its own.

    One that acts on private layers is lg-fedavg with it.
    """
    base = "lg-fedavg" if entry.slot in OF_PRIVATE_LAYERS else "fedavg"
    of_base = registry.entries("method")[base].make
    own = validation.declared(entry.make)[1].keys()
    known = [*own, *validation.declared(of_base)[1], *EVERY_BASE]
    for setting in call.kwargs:
        if setting not in known:
            raise unknown(f"setting of {call.name}", setting, known)
    settings = {k: v for k, v in call.kwargs.items() if k in own}
    training = {k: v for k, v in call.kwargs.items() if k not in own}
    return Call(base, (), training), Call(call.name, call.args, settings)


def _refuse_a_second_optimiser(
    spec: str, name: str, base: Method | Plan, opt: optim.Optimizer
) -> None:
    """The base's own would be dropped, and its settings with it, without a word."""
    plain = optim.sgd()
    for stage in as_plan(base).stages:
        own = stage.method.server_opt
        if (own.name, own.lr) != (plain.name, plain.lr):
            raise GlocalError(
                f"{name} brings its own server optimiser ({own.name}), and {opt.name} in "
                f"{shown(spec)} fills the same slot (server_opt): leave {opt.name} out, or write "
                f"fedavg+{opt.name}."
            )


def _begun(name: str, components: Sequence[str]) -> str:
    """A spec that begins with this method, with these components if they go with it."""
    spec = "+".join([name, *components])
    try:
        resolve(spec)
    except GlocalError:
        return name
    return spec


def _fill(spec: str, calls: Sequence[Call]) -> dict[str, Any]:
    slots: dict[str, Any] = {}
    by: dict[str, str] = {}
    for call in calls:
        name, entry = call.name, registry.lookup(call.name)
        if entry is not None and entry.slot == "method":
            raise GlocalError(
                f"{name} is a method of its own and cannot fill a slot of another: begin the spec "
                f"with it, as in '{_begun(name, list(by.values()) or ['uniform'])}'."
            )
        if entry is None:
            raise unknown("component", name, registry.known(*registry.COMPONENTS))
        slot = entry.slot
        if slot in slots:
            raise GlocalError(
                f"{by[slot]} and {name} in {shown(spec)} fill the same slot ({slot}): keep one of "
                "them."
            )
        slots[slot] = _made(entry.make, call)
        by[slot] = name
    return slots


def _made(make: Callable[..., Any], call: Call, more: Sequence[str] = ()) -> Any:
    validation.check_call(call.name, make, call.args, call.kwargs, more)
    try:
        return make(*call.args, **call.kwargs)
    except GlocalError:
        raise
    except Exception as error:  # whatever a user's function raises
        given = [*map(shown, call.args), *(f"{k}={shown(v)}" for k, v in call.kwargs.items())]
        if is_own(call.name) or call.name in registry.REGISTERED:
            made = f"{call.name}({', '.join(given)})"
            raise GlocalError(f"{made} cannot be made: {told(error)}.") from error
        if not isinstance(error, TypeError | ValueError | OverflowError):
            raise
        raise GlocalError(
            f"{call.name} cannot take {', '.join(given) or 'no settings'}: {error}; 'glocal "
            "methods' lists what it takes."
        ) from error


def selector(value: Any) -> Selector:
    """``shared=``: a name, a pattern, ``first(n)``, ``last(n)``, or several in a list."""
    if isinstance(value, Selector):
        return value
    if isinstance(value, Call) or (isinstance(value, str) and value in SELECTORS):
        return validation.build("selector", SELECTORS, value)
    if isinstance(value, str):
        return sharing.matching(*value.split("|"))
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return sharing.matching(*value)
    raise GlocalError(f"shared={shown(value)} must be names, a pattern, first(n) or last(n).")
