"""Configurations from names and values: of a settings file, or of a call's keyword arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glocal.core import validation
from glocal.core.errors import GlocalError, unknown
from glocal.core.progress import print_note
from glocal.experiment.config import GROUPS, Config, of_group, plain_kinds


def from_mapping(values: Mapping[str, Any]) -> Config:
    """A configuration from names and values as text gives them; an unknown name is an error."""
    check_known(values, [*plain_kinds(), "method"])
    given = _tuples(values)
    for name, value in given.items():
        validation.check(name, value, plain_kinds()[name])
    return Config(**given)


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def from_arguments(settings: Mapping[str, Any]) -> Config:
    """A configuration for a federation that is there already, from a call's keyword arguments."""
    of_data = [each.name for each in of_group("Data")]
    for name in settings:
        if name in of_data:
            raise GlocalError(
                f"{name} says how data is loaded, and here it is: give it to glocal.load, or leave "
                "the federation out."
            )
    check_known(settings, [each.name for each in of_group(*GROUPS[1:])])
    return Config(**_tuples(settings))


def with_presets(
    specs: Iterable[object], settings: Mapping[str, Any], groups: Sequence[str] = GROUPS
) -> dict[str, Any]:
    """The settings, and of these groups those that the methods' presets fix and nobody gave."""
    from glocal.methods import presets  # and torch with it, which options need not wait for

    methods = list(specs)
    taken = {each.name for each in of_group(*groups)}
    fixed = presets.settings_of(methods, settings)
    fixed = {name: value for name, value in fixed.items() if name in taken}
    if told := presets.sentence(methods, fixed):
        print_note(told)
    return {**settings, **fixed}


def check_known(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse the name of a setting that there is not."""
    for name in given:
        if name not in known:
            raise unknown("setting", name, known)
