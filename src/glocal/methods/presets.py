"""Presets in specs: ``lg-fedavg@mnist`` is lg-fedavg with the settings of its paper on MNIST.

Settings in brackets win over the preset's, and components are joined to it:
``superfed-mm@mnist(lr=0.02)+uniform``. What else the paper fixes (rounds, clients, partition,
model) are defaults of a run (:func:`settings_of`), which whatever is given explicitly overrides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from glocal.core import validation
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call, parse_call, split_plus
from glocal.methods import registry
from glocal.methods.preset_table import PRESETS, Preset

SIGN = "@"


def named(spec: object) -> tuple[str, Preset] | None:
    """The preset that a spec's base names, with its name; none, if it names none."""
    if not isinstance(spec, str):
        return None
    name = parse_call(split_plus(spec)[0])[0]
    if SIGN not in name:
        return None
    if name not in PRESETS:
        base = name.partition(SIGN)[0]
        of_method = [each for each in PRESETS if each.partition(SIGN)[0] == base]
        raise unknown("preset", name, of_method or PRESETS)
    return name, PRESETS[name]


def of_method(name: str) -> dict[str, Preset]:
    """The presets of a method, or of a component, by their names."""
    return {each: made for each, made in PRESETS.items() if each.partition(SIGN)[0] == name}


def parsed(spec: str) -> list[Call]:
    """The base of a spec and its components, with the preset's settings where it names one."""
    first, *components = (Call(*parse_call(part)) for part in split_plus(spec))
    for each in components:
        if SIGN in each.name:
            raise GlocalError(
                f"{each.name} is a preset, and stands at the beginning of a spec: write "
                f"{each.name}+…, without the {first.name} before it."
            )
    found = named(spec)
    if found is None:
        return [first, *components]
    name, preset = found
    base, *own = (Call(*parse_call(part)) for part in split_plus(preset.spec))
    if first.args:
        raise GlocalError(f"{name} takes settings by name, as in {name}(lr=0.1).")
    asked = base_name(spec)
    entry = None if asked == base.name else registry.lookup(asked)
    known = () if entry is None else validation.declared(entry.make)[1]  # a component's own
    theirs = {k: v for k, v in first.kwargs.items() if k in known}
    others = {k: v for k, v in first.kwargs.items() if k not in known}
    own = [_with(each, theirs) if each.name == asked else each for each in own]
    return [_with(base, others), *own, *components]


def base_name(spec: str) -> str:
    """The method or component that a spec begins with, without its preset."""
    return parse_call(split_plus(spec)[0])[0].partition(SIGN)[0]


def _with(call: Call, given: Mapping[str, Any]) -> Call:
    return replace(call, kwargs={**call.kwargs, **given})


def settings_of(specs: Iterable[object], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the presets of some methods fix beside the methods, where it is not ``given``.

    Where two presets fix a setting differently, nobody knows which is meant.
    """
    found: dict[str, Any] = {}
    by: dict[str, str] = {}
    for spec in specs:
        made = named(spec)
        if made is None:
            continue
        name, preset = made
        for setting, value in preset.settings.items():
            if setting in given or (setting == "sampled" and "fraction" in given):
                continue
            if setting == "fraction" and "sampled" in given:
                continue
            if setting in found and found[setting] != value:
                raise GlocalError(
                    f"{by[setting]} has {setting} {shown(found[setting])} and {name} has "
                    f"{shown(value)}: say which with {setting}=."
                )
            found[setting] = value
            by[setting] = name
    return found


def sentence(specs: Iterable[object], used: Mapping[str, Any]) -> str:
    """Which settings come from presets, and from where; nothing, if none do."""
    sources = {made[0]: made[1].source for spec in specs if (made := named(spec)) is not None}
    if not sources:
        return ""
    whence = "; ".join(f"{name}: {source}" for name, source in sources.items())
    values = ", ".join(f"{name} {_shown(value)}" for name, value in used.items())
    return f"{whence}." + (f" From there: {values}." if values else "")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
