"""What a setting names, as objects: each may also be given as the object itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import parse_call, split_plus
from glocal.core.validation import check_call
from glocal.experiment import adaptation
from glocal.experiment.adaptation import Technique
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.nn import augment as augmentations
from glocal.nn.task import PRECISIONS, Augment
from glocal.slots.method import Method
from glocal.training import attacks
from glocal.training.attacks import Attack
from glocal.training.client_state.placement import check_place
from glocal.training.divergence import check_policy

if TYPE_CHECKING:
    from glocal.experiment.config import Config


def attack(given: str | Attack | None) -> Attack | None:
    """What malicious clients do."""
    if given is None or isinstance(given, Attack):
        return given
    if not isinstance(given, str):
        raise GlocalError(f"{shown(given)} is not text: write attack like 'sign-flip(share=0.2)'.")
    return attacks.parse(given)


def techniques(given: str | Technique | Sequence[Technique] | None) -> list[Technique]:
    """How clients adapt what they got."""
    if given is None:
        return []
    if isinstance(given, str):
        return adaptation.techniques(given)
    several: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    if not several or not all(isinstance(each, Technique) for each in several):
        raise GlocalError(f"{shown(given)} is not text: write adapt like 'fine-tune+ewc'.")
    return several


def baseline(given: str | Method | None) -> LocalTraining:
    """How clients train alone; refuses what is not ``local``."""
    method: Any = resolve(given or "local") if given is None or isinstance(given, str) else given
    if not isinstance(method, Method) or not isinstance(method.local, LocalTraining):
        raise GlocalError(
            "the local baseline must be local, with settings if you like: local(lr=0.1)."
        )
    return method.local


def augmentation(given: str | Augment | None) -> Augment | None:
    """``crop(4)+flip`` as a keyed augmentation."""
    if given is None or not isinstance(given, str):
        return given
    steps = []
    for part in split_plus(given):
        name, args, kwargs = parse_call(part)
        if name not in augmentations.AUGMENTATIONS:
            raise unknown("augmentation", name, augmentations.AUGMENTATIONS)
        check_call(name, augmentations.AUGMENTATIONS[name], args, kwargs)
        steps.append(augmentations.AUGMENTATIONS[name](*args, **kwargs))
    return augmentations.chain(*steps)


def check(config: Config) -> None:
    """Refuse what is named and does not exist; nothing of this depends on the data."""
    attack(config.attack)
    techniques(config.adapt)
    baseline(config.baseline)
    check_place(config.states)
    check_policy(config.diverged)
    if config.precision not in PRECISIONS:
        raise unknown("precision", config.precision, PRECISIONS)
