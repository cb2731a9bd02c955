"""Every name that a method's spec may use: methods, and the components that go into their slots.

A method takes one line here. Users add their own with :func:`register`, or name a function in a
file as ``own.py:name``, which needs no line at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, get_type_hints

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.own_code import is_own, load_own, told
from glocal.core.spec import parse_call
from glocal.nn.optim import Optimizer
from glocal.slots.aggregation import Combine
from glocal.slots.auxiliary import Auxiliary
from glocal.slots.compression import Compression
from glocal.slots.example_privacy import ExamplePrivacy
from glocal.slots.method import Method, Plan
from glocal.slots.pretraining import Pretraining
from glocal.slots.privacy import Privacy
from glocal.slots.weighting import Weighting


class Entry(NamedTuple):
    """What a name stands for: the slot that it fills, and the function that makes it."""

    slot: str
    make: Callable[..., Any]


BUILT_IN: dict[str, tuple[str, str]] = {
    "apfl": ("method", "methods.apfl:apfl"),
    "ditto": ("method", "methods.ditto:ditto"),
    "fedadagrad": ("method", "methods.fedopt:fedadagrad"),
    "fedadam": ("method", "methods.fedopt:fedadam"),
    "fedavg": ("method", "methods.fedavg:fedavg"),
    "fedavgm": ("method", "methods.fedopt:fedavgm"),
    "fedcgan": ("method", "methods.fedcgan:fedcgan"),
    "fedcvae": ("method", "methods.fedcvae:fedcvae"),
    "fedevg": ("method", "methods.fedevg:fedevg"),
    "fedper": ("method", "methods.fedper:fedper"),
    "fedprox": ("method", "methods.fedprox:fedprox"),
    "fedrep": ("method", "methods.fedrep:fedrep"),
    "fedyogi": ("method", "methods.fedopt:fedyogi"),
    "lg-fedavg": ("method", "methods.lg_fedavg:lg_fedavg"),
    "local": ("method", "methods.local:local"),
    "mtl": ("method", "methods.mtl:mtl"),
    "pfedme": ("method", "methods.pfedme:pfedme"),
    "propfair-loss": ("method", "methods.propfair:propfair_loss"),
    "scaffold": ("method", "methods.scaffold:scaffold"),
    "superfed-lm": ("method", "methods.superfed:superfed_lm"),
    "superfed-mm": ("method", "methods.superfed:superfed_mm"),
    "aaggff-d": ("weighting", "methods.aaggff_d:aaggff_d"),
    "aaggff-s": ("weighting", "methods.aaggff_s:aaggff_s"),
    "afl": ("weighting", "methods.afl:afl"),
    "by-examples": ("weighting", "slots.weighting:by_examples"),
    "fedmgda": ("weighting", "methods.fedmgda:fedmgda"),
    "grad-norm": ("weighting", "slots.weighting:by_update_norm"),
    "propfair": ("weighting", "methods.propfair:propfair"),
    "q-fedavg": ("weighting", "methods.q_fedavg:q_fedavg"),
    "term": ("weighting", "methods.term:term"),
    "uniform": ("weighting", "slots.weighting:uniform"),
    "geometric-median": ("combine", "slots.aggregation:geometric_median"),
    "krum": ("combine", "slots.aggregation:krum"),
    "mean": ("combine", "slots.aggregation:mean"),
    "median": ("combine", "slots.aggregation:median"),
    "multi-krum": ("combine", "slots.aggregation:multi_krum"),
    "norm-bound": ("combine", "slots.aggregation:norm_bound"),
    "trimmed-mean": ("combine", "slots.aggregation:trimmed_mean"),
    "dp": ("privacy", "slots.privacy:dp"),
    "dp-sgd": ("example_privacy", "slots.example_privacy:dp_sgd"),
    "low-rank": ("compression", "slots.compressors:low_rank"),
    "quantised": ("compression", "slots.compressors:quantised"),
    "top-k": ("compression", "slots.compressors:top_k"),
    "adversary": ("auxiliary", "slots.adversary:adversary"),
    "aux-head": ("auxiliary", "slots.auxiliaries:aux_head"),
    "autoencoder": ("auxiliary", "slots.auxiliaries:autoencoder"),
    "jigsaw": ("auxiliary", "slots.self_supervised:jigsaw"),
    "masked-tokens": ("auxiliary", "slots.self_supervised:masked_tokens"),
    "rotation": ("auxiliary", "slots.self_supervised:rotation"),
    "pretrain": ("pretraining", "slots.pretraining:pretrain"),
    "sgd": ("server_opt", "nn.optim:sgd"),
    "momentum": ("server_opt", "nn.server_optim:momentum"),
    "adam": ("server_opt", "nn.server_optim:adam"),
    "yogi": ("server_opt", "nn.server_optim:yogi"),
    "adagrad": ("server_opt", "nn.server_optim:adagrad"),
}
"""The slot of each name (``method``: it fills all of them), and where the function is."""

SLOT_OF: dict[type, str] = {
    Method: "method",
    Plan: "method",
    Weighting: "weighting",
    Combine: "combine",
    Optimizer: "server_opt",
    Privacy: "privacy",
    ExamplePrivacy: "example_privacy",
    Compression: "compression",
    Auxiliary: "auxiliary",
    Pretraining: "pretraining",
}

COMPONENTS = tuple(dict.fromkeys(slot for slot in SLOT_OF.values() if slot != "method"))
"""The slots that a component fills."""

REGISTERED: dict[str, Entry] = {}
"""What users registered; processes that train beside this one are sent it."""


def known(*slots: str) -> list[str]:
    """The names of methods and components; with slots, of those that fill one of them."""
    found = {name: slot for name, (slot, _) in BUILT_IN.items()}
    found |= {name: entry.slot for name, entry in REGISTERED.items()}
    return sorted(name for name, slot in found.items() if not slots or slot in slots)


def entries(*slots: str) -> dict[str, Entry]:
    """What those names stand for."""
    return {name: entry for name in known(*slots) if (entry := lookup(name)) is not None}


def lookup(name: str) -> Entry | None:
    """What a name stands for; none, if nobody knows it."""
    if name in REGISTERED:
        return REGISTERED[name]
    if is_own(name):
        return _entry(load_own(name, "method"), None, name)
    return _built_in(name) if name in BUILT_IN else None


@cache
def _built_in(name: str) -> Entry:
    slot, path = BUILT_IN[name]
    module, _, function = path.partition(":")
    return Entry(slot, getattr(import_module(f"glocal.{module}"), function))


Make = TypeVar("Make", bound=Callable[..., Any])


def register(
    name: str, make: Make | None = None, *, slot: str | None = None
) -> Make | Callable[[Make], Make]:
    """Give an own method, or an own component of methods, a name for specs.

    As a function, or as a decorator of the function that makes it::

        @glocal.register("mine")
        def mine(*, strength: float = 0.1) -> Method: ...

        glocal.fit("mine(strength=0.2)+median", fed)

    Args:
        name: As specs spell it: letters, digits, ``-``, ``_`` and ``.``, first a letter.
        make: Makes it from its settings, which are annotated as those of ``ditto`` are.
        slot: ``method``, ``weighting``, ``combine``, ``server_opt``, ``privacy``,
            ``example_privacy``, ``compression``, ``auxiliary`` or ``pretraining``; found out by
            what ``make`` is said to return, or returns without settings.
    """
    if make is None:
        return lambda function: _register(name, function, slot)
    return _register(name, make, slot)


def _register(name: str, make: Make, slot: str | None) -> Make:
    plain = isinstance(name, str) and parse_call(name) == (name, (), {})
    if not plain or is_own(name):
        raise GlocalError(f"{shown(name)} cannot be a name: use letters, digits and '-'.")
    if name in BUILT_IN:
        raise GlocalError(f"{name} is the name of something else: choose another.")
    REGISTERED[name] = _entry(make, slot, name)
    return make


def _entry(make: Callable[..., Any], slot: str | None, name: str) -> Entry:
    slots = ("method", *COMPONENTS)
    if slot is None:
        kind = _returned(make, name)
        slot = next((s for each, s in SLOT_OF.items() if kind and issubclass(kind, each)), None)
    if slot is None:
        raise GlocalError(
            f"what {name} makes cannot be told: annotate what it returns (Method, Weighting, …), "
            "or register it with slot=, one of " + ", ".join(slots) + "."
        )
    if slot not in slots:
        raise unknown("slot", slot, slots)
    return Entry(slot, make)


def _returned(make: Callable[..., Any], name: str) -> type | None:
    """The type of what a function makes: as annotated, or as seen where it needs no settings."""
    if isinstance(make, type):
        return make
    try:
        kind = get_type_hints(make).get("return")
    except Exception:  # whatever a user's annotations raise
        kind = None
    if isinstance(kind, type):
        return kind
    takes = inspect.signature(make).parameters.values()
    if any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in takes):
        return None  # it needs settings
    try:
        return type(make())
    except Exception as error:  # whatever a user's function raises
        raise GlocalError(f"{name} cannot be made: {told(error)}.") from error
