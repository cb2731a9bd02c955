"""Every setting of a method and its components: the value in force, its type and its meaning.

The values are those that the method was made with: what its spec says, what its function's
signature says, and, of training, what the client's half holds. The meanings are in the ``Args:`` of
docstrings, of a user's own functions, too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from glocal.core import validation
from glocal.core.errors import unknown
from glocal.core.spec import Call, written
from glocal.methods import registry
from glocal.methods.specs import EVERY_BASE, calls, resolve
from glocal.methods.training_args import TrainingArgs
from glocal.slots.method import as_plan
from glocal.slots.sharing import Selector

OF_EVERY_BASE = {
    "shared": "which layers are shared: names, patterns, first(n), last(n), all-but-last(n).",
    "rounds": "rounds that it trains for, where that is not what the run says.",
}


class Setting(NamedTuple):
    """One setting."""

    name: str
    value: Any
    """As given or by default; None: nothing, or a rule that its meaning says."""
    kind: str
    """Its type in words."""
    meaning: str
    own: bool
    """Whether it is the method's own, not one of those that every base takes."""
    needed: bool = False
    """Whether it has no default, and was not given."""


class Part(NamedTuple):
    """The base of a spec, or a component."""

    name: str
    slot: str
    make: Callable[..., Any]
    settings: list[Setting]


def parts(spec: str) -> list[Part]:
    """All parts of a spec with their settings; what has no default need not be given."""
    base, *components = calls(spec)
    found = [_part(call, {}) for call in (base, *components)]
    if any(each.needed for part in found for each in part.settings):
        return found
    return [_part(base, _trained(spec)), *found[1:]]


def in_force(spec: str) -> dict[str, dict[str, Any]]:
    """The value of every setting, by part; those that are none are left out."""
    return {
        part.name: {
            each.name: plain(each.value) for each in part.settings if each.value is not None
        }
        for part in parts(spec)
    }


def plain(value: Any) -> Any:
    """A value as a file can hold it."""
    if isinstance(value, Selector):
        return value.name
    if isinstance(value, Call):
        inside = [*map(_text, value.args), *(f"{k}={_text(v)}" for k, v in value.kwargs.items())]
        return f"{value.name}({', '.join(inside)})"
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return str(plain(value)) if isinstance(value, Call) else written(value)


def meanings(make: Callable[..., Any]) -> dict[str, str]:
    """What the ``Args:`` of a docstring say of each argument, in a line.

    What it does not say is as "settings as of" says: of a function in its module, or in another.
    """
    _, _, text = (inspect.getdoc(make) or "").partition("Args:\n")
    found: dict[str, str] = {}
    for line in text.splitlines():
        begun = re.fullmatch(r"    (\w+): (.*)", line)
        if begun:
            found[begun[1]] = begun[2]
        elif line.startswith("     ") and found:
            found[list(found)[-1]] += f" {line.strip()}"
        elif line.strip():
            break
    if elsewhere := re.search(r"ettings as of :func:`~?([\w.]+)`\.", inspect.getdoc(make) or ""):
        module, _, name = elsewhere[1].rpartition(".")
        of_other = meanings(vars(import_module(module or make.__module__))[name])
        own = inspect.signature(make).parameters
        found = {**{name: text for name, text in of_other.items() if name in own}, **found}
    return found


def _trained(spec: str) -> dict[str, Any]:
    """What the method was made with, of training and of what is shared."""
    last = as_plan(resolve(spec)).stages[-1].method
    return {**dict(last.local.training), "shared": last.shared.name}


def _part(call: Call, trained: dict[str, Any]) -> Part:
    entry = registry.lookup(call.name)
    if entry is None:
        raise unknown("method or component", call.name, registry.known())
    parameters, kinds, _ = validation.declared(entry.make)
    said = {**meanings(TrainingArgs), **OF_EVERY_BASE, **meanings(entry.make)}
    in_order = [name for name, how in parameters.items() if how.kind is not how.KEYWORD_ONLY]
    given: dict[str, Any] = {**dict(zip(in_order, call.args, strict=False)), **call.kwargs}
    settings = []
    for name in _names(entry, parameters, kinds):
        default = parameters[name].default if name in parameters else None
        needed = default is inspect.Parameter.empty and name not in given
        value = given.get(name, None if default is inspect.Parameter.empty else default)
        if value is None or name == "shared":  # which a list of names or a call may have given
            value = trained.get(name, value)
        kind = str if name == "shared" else int if name == "rounds" else kinds[name]
        words = validation.words(kind)
        settings.append(Setting(name, value, words, said.get(name, ""), name in parameters, needed))
    return Part(call.name, entry.slot, entry.make, settings)


def _names(entry: registry.Entry, own: Sequence[str] | Any, kinds: dict[str, Any]) -> list[str]:
    """Its own settings first, then those of training, then what every base takes."""
    of_training = [name for name in TrainingArgs.__annotations__ if name in kinds]
    more = EVERY_BASE if entry.slot == "method" and entry.make.__name__ != "local" else ()
    return list(dict.fromkeys([*own, *of_training, *more]))
