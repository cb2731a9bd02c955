"""Every registered method and slot filler by name, and method specs made into methods.

A spec is a base, its hyper-parameters in brackets, and fillers joined by ``+``:
``fedprox(mu=0.1)+uniform+adam(lr=0.01)``. A filler used as a base means fedavg with it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from glocal import combine, optim, sharing, weighting
from glocal.errors import GlocalError, unknown
from glocal.method import Method, Plan, Stage
from glocal.methods.apfl import apfl
from glocal.methods.common import TrainingArgs
from glocal.methods.ditto import ditto
from glocal.methods.fedavg import fedavg
from glocal.methods.fedper import fedper
from glocal.methods.fedprox import fedprox
from glocal.methods.fedrep import fedrep
from glocal.methods.lg_fedavg import lg_fedavg
from glocal.methods.local import local
from glocal.methods.mtl import mtl
from glocal.methods.pfedme import pfedme
from glocal.methods.scaffold import scaffold
from glocal.methods.superfed import superfed_lm, superfed_mm
from glocal.sharing import Selector
from glocal.spec import Call, parse_call, split_plus

Base = Callable[..., Method | Plan]

BASES: dict[str, Base] = {
    "apfl": apfl,
    "ditto": ditto,
    "fedavg": fedavg,
    "fedper": fedper,
    "fedprox": fedprox,
    "fedrep": fedrep,
    "lg-fedavg": lg_fedavg,
    "local": local,
    "mtl": mtl,
    "pfedme": pfedme,
    "scaffold": scaffold,
    "superfed-lm": superfed_lm,
    "superfed-mm": superfed_mm,
}

FILLERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "by-examples": ("weighting", weighting.by_examples),
    "grad-norm": ("weighting", weighting.by_update_norm),
    "uniform": ("weighting", weighting.uniform),
    "mean": ("combine", combine.mean),
    "sgd": ("server_opt", optim.sgd),
    "adam": ("server_opt", optim.adam),
    "adamw": ("server_opt", optim.adamw),
}

SELECTORS: dict[str, Callable[..., Selector]] = {
    "all-but-last": sharing.all_but_last,
    "everything": sharing.everything,
    "first": sharing.first,
    "last": sharing.last,
    "nothing": sharing.nothing,
}


def methods() -> list[str]:
    """The names a spec may begin with as a base."""
    return sorted(BASES)


def resolve(spec: str) -> Method | Plan:
    """The method a spec describes."""
    if not isinstance(spec, str):
        raise GlocalError(f"a method is a name such as 'fedavg' or a Method, not {spec!r}.")
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        parse_call(part) for part in split_plus(spec)
    ]
    name, args, kwargs = calls[0]
    if name in FILLERS:
        calls.insert(0, ("fedavg", (), {}))
        name, args, kwargs = calls[0]
    if name not in BASES:
        raise unknown("method", name, [*BASES, *FILLERS])
    slots = _fill(spec, calls[1:])
    kwargs = dict(kwargs)
    if name == "local" and (slots or "shared" in kwargs):
        raise GlocalError(
            f"local sends nothing, so the rest of {spec!r} would do nothing: leave it out."
        )
    if "shared" in kwargs:
        chosen = selector(kwargs.pop("shared"))
        # A method that splits the model itself (FedRep) must know the split; others need not.
        knows = "shared" in inspect.signature(BASES[name]).parameters
        (kwargs if knows else slots)["shared"] = chosen
    base: Method | Plan = _call(name, BASES[name], args, kwargs, _settings(BASES[name]))
    if not slots:
        return base
    if isinstance(base, Method):
        return base.replace(**slots)
    return Plan(
        tuple(Stage(s.method.replace(**slots), s.rounds, s.goal, s.name) for s in base.stages)
    )


def _fill(spec: str, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> dict[str, Any]:
    slots: dict[str, Any] = {}
    by: dict[str, str] = {}
    for name, args, kwargs in calls:
        if name in BASES:
            raise GlocalError(
                f"{name} is a method of its own and cannot fill a slot of another: begin the spec "
                f"with it, as in '{name}+{'+'.join(by.values()) or 'uniform'}'."
            )
        if name not in FILLERS:
            raise unknown("slot filler", name, FILLERS)
        slot, make = FILLERS[name]
        if slot in slots:
            raise GlocalError(
                f"{by[slot]} and {name} in {spec!r} fill the same slot ({slot}): keep one of them."
            )
        slots[slot] = _call(name, make, args, kwargs, set(inspect.signature(make).parameters))
        by[slot] = name
    return slots


def _settings(base: Base) -> set[str]:
    own = {p.name for p in inspect.signature(base).parameters.values() if p.kind != p.VAR_KEYWORD}
    return own | set(TrainingArgs.__annotations__) | {"shared"}


def _call(
    name: str,
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    known: set[str],
) -> Any:
    for setting in kwargs:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known)
    try:
        return make(*args, **kwargs)
    except GlocalError:
        raise
    except (TypeError, ValueError) as error:
        example = f"{name}({next(iter(sorted(known)), '')}=…)"
        raise GlocalError(
            f"{name} cannot take {_shown(args, kwargs)}: give settings by name and as numbers, "
            f"as in {example}."
        ) from error


def _shown(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())]) or "no settings"


def selector(value: Any) -> Selector:
    """``shared=``: a name, a pattern, ``first(n)``, ``last(n)``, or several in a list."""
    if isinstance(value, Selector):
        return value
    if isinstance(value, Call) or (isinstance(value, str) and value in SELECTORS):
        call = value if isinstance(value, Call) else Call(value, (), {})
        if call.name not in SELECTORS:
            raise unknown("selector", call.name, SELECTORS)
        return _call(  # type: ignore[no-any-return]
            call.name, SELECTORS[call.name], list(call.args), dict(call.kwargs), {"n"}
        )
    if isinstance(value, str):
        return sharing.matching(*value.split("|"))
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return sharing.matching(*value)
    raise GlocalError(f"shared={value!r} must be names, a pattern, first(n) or last(n).")


class _Callable(types.ModuleType):
    """``glocal.methods`` is this package, and ``glocal.methods()`` lists what is in it."""

    def __call__(self) -> list[str]:
        return methods()


sys.modules[__name__].__class__ = _Callable
