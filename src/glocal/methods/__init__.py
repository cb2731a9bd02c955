"""Every registered method and slot filler by name, and method specs made into methods.

A spec is a base, its hyper-parameters in brackets, and fillers joined by ``+``:
``fedprox(mu=0.1)+uniform+adam(lr=0.01)``. A filler used as a base means fedavg with it, and the
settings it does not know are fedavg's: ``adam(lr=0.01, epochs=1)`` is
``fedavg(epochs=1)+adam(lr=0.01)``, where ``lr`` is the server's.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from glocal.core import validation as fields
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call, parse_call, split_plus
from glocal.methods.aaggff_d import aaggff_d
from glocal.methods.aaggff_s import aaggff_s
from glocal.methods.afl import afl
from glocal.methods.apfl import apfl
from glocal.methods.ditto import ditto
from glocal.methods.fedavg import fedavg
from glocal.methods.fedcgan import fedcgan
from glocal.methods.fedcvae import fedcvae
from glocal.methods.fedevg import fedevg
from glocal.methods.fedmgda import fedmgda
from glocal.methods.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from glocal.methods.fedper import fedper
from glocal.methods.fedprox import fedprox
from glocal.methods.fedrep import fedrep
from glocal.methods.lg_fedavg import lg_fedavg
from glocal.methods.local import local
from glocal.methods.mtl import mtl
from glocal.methods.pfedme import pfedme
from glocal.methods.propfair import propfair, propfair_loss
from glocal.methods.q_fedavg import q_fedavg
from glocal.methods.scaffold import scaffold
from glocal.methods.superfed import superfed_lm, superfed_mm
from glocal.methods.term import term
from glocal.nn import optim
from glocal.nn.server_optim import adagrad, adam, momentum, yogi
from glocal.slots import aggregation as combine
from glocal.slots import privacy, robust, sharing, weighting
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.slots.sharing import Selector

Base = Callable[..., Method | Plan]

BASES: dict[str, Base] = {
    "apfl": apfl,
    "ditto": ditto,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedcgan": fedcgan,
    "fedcvae": fedcvae,
    "fedevg": fedevg,
    "fedper": fedper,
    "fedprox": fedprox,
    "fedrep": fedrep,
    "fedyogi": fedyogi,
    "lg-fedavg": lg_fedavg,
    "local": local,
    "mtl": mtl,
    "pfedme": pfedme,
    "propfair-loss": propfair_loss,
    "scaffold": scaffold,
    "superfed-lm": superfed_lm,
    "superfed-mm": superfed_mm,
}

FILLERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "aaggff-d": ("weighting", aaggff_d),
    "aaggff-s": ("weighting", aaggff_s),
    "afl": ("weighting", afl),
    "by-examples": ("weighting", weighting.by_examples),
    "fedmgda": ("weighting", fedmgda),
    "grad-norm": ("weighting", weighting.by_update_norm),
    "propfair": ("weighting", propfair),
    "q-fedavg": ("weighting", q_fedavg),
    "term": ("weighting", term),
    "uniform": ("weighting", weighting.uniform),
    "geometric-median": ("combine", robust.geometric_median),
    "krum": ("combine", robust.krum),
    "mean": ("combine", combine.mean),
    "median": ("combine", robust.median),
    "multi-krum": ("combine", robust.multi_krum),
    "norm-bound": ("combine", robust.norm_bound),
    "trimmed-mean": ("combine", robust.trimmed_mean),
    "dp": ("privacy", privacy.dp),
    "sgd": ("server_opt", optim.sgd),
    "momentum": ("server_opt", momentum),
    "adam": ("server_opt", adam),
    "yogi": ("server_opt", yogi),
    "adagrad": ("server_opt", adagrad),
}

SELECTORS: dict[str, Callable[..., Selector]] = {
    "all-but-last": sharing.all_but_last,
    "everything": sharing.everything,
    "first": sharing.first,
    "last": sharing.last,
    "nothing": sharing.nothing,
}


def methods() -> list[str]:
    """The names a spec may begin with: methods, and fillers, which then mean fedavg with them."""
    return sorted({*BASES, *FILLERS})


def resolve(spec: str) -> Method | Plan:
    """The method a spec describes."""
    if not isinstance(spec, str):
        raise GlocalError(f"a method is a name such as 'fedavg' or a Method, not {shown(spec)}.")
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        parse_call(part) for part in split_plus(spec)
    ]
    name, args, kwargs = calls[0]
    if name in FILLERS:
        calls[:1] = _as_base(name, args, kwargs)
        name, args, kwargs = calls[0]
    if name not in BASES:
        raise unknown("method", name, [*BASES, *FILLERS])
    slots = _fill(spec, calls[1:])
    kwargs = dict(kwargs)
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
        knows = "shared" in inspect.signature(BASES[name]).parameters
        (kwargs if knows else slots)["shared"] = chosen
    base: Method | Plan = _call(name, BASES[name], args, kwargs, ("shared",))
    if "server_opt" in slots:
        _refuse_a_second_optimiser(spec, name, base, slots["server_opt"])
    if not slots:
        return base
    if isinstance(base, Method):
        return base.replace(**slots)
    return Plan(
        tuple(Stage(s.method.replace(**slots), s.rounds, s.goal, s.name) for s in base.stages)
    )


def _as_base(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """A filler used as a base, as fedavg and the filler: the settings it knows are its own."""
    own = fields.declared(FILLERS[name][1])[1].keys()
    known = [*own, *fields.declared(fedavg)[1], "shared"]
    for setting in kwargs:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known)
    training = {k: v for k, v in kwargs.items() if k not in own}
    return [
        ("fedavg", (), training),
        (name, args, {k: v for k, v in kwargs.items() if k in own}),
    ]


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


def _begun(name: str, fillers: Sequence[str]) -> str:
    """A spec that begins with this method, with these fillers if they go with it."""
    spec = "+".join([name, *fillers])
    try:
        resolve(spec)
    except GlocalError:
        return name
    return spec


def _fill(spec: str, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> dict[str, Any]:
    slots: dict[str, Any] = {}
    by: dict[str, str] = {}
    for name, args, kwargs in calls:
        if name in BASES:
            raise GlocalError(
                f"{name} is a method of its own and cannot fill a slot of another: begin the spec "
                f"with it, as in '{_begun(name, list(by.values()) or ['uniform'])}'."
            )
        if name not in FILLERS:
            raise unknown("slot filler", name, FILLERS)
        slot, make = FILLERS[name]
        if slot in slots:
            raise GlocalError(
                f"{by[slot]} and {name} in {shown(spec)} fill the same slot ({slot}): keep one of "
                "them."
            )
        slots[slot] = _call(name, make, args, kwargs)
        by[slot] = name
    return slots


def _call(
    name: str,
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    more: Sequence[str] = (),
) -> Any:
    fields.check_call(name, make, args, kwargs, more)
    try:
        return make(*args, **kwargs)
    except GlocalError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise GlocalError(
            f"{name} cannot take {_shown(args, kwargs)}: {error}; 'glocal methods' lists what it "
            "takes."
        ) from error


def _shown(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    given = [*map(shown, args), *(f"{k}={shown(v)}" for k, v in kwargs.items())]
    return ", ".join(given) or "no settings"


def selector(value: Any) -> Selector:
    """``shared=``: a name, a pattern, ``first(n)``, ``last(n)``, or several in a list."""
    if isinstance(value, Selector):
        return value
    if isinstance(value, Call) or (isinstance(value, str) and value in SELECTORS):
        call = value if isinstance(value, Call) else Call(value, (), {})
        if call.name not in SELECTORS:
            raise unknown("selector", call.name, SELECTORS)
        return _call(  # type: ignore[no-any-return]
            call.name, SELECTORS[call.name], list(call.args), dict(call.kwargs)
        )
    if isinstance(value, str):
        return sharing.matching(*value.split("|"))
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return sharing.matching(*value)
    raise GlocalError(f"shared={shown(value)} must be names, a pattern, first(n) or last(n).")


class _Callable(types.ModuleType):
    """``glocal.methods`` is this package, and ``glocal.methods()`` lists what is in it."""

    def __call__(self) -> list[str]:
        return methods()


sys.modules[__name__].__class__ = _Callable
