"""What a setting names, as objects: each may also be given as the object itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import split_plus
from glocal.core.validation import build
from glocal.experiment.adaptation import techniques
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.nn.augment import AUGMENTATIONS, chain
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
    if not isinstance(given, str):
        return given
    return chain(*(build("augmentation", AUGMENTATIONS, part) for part in split_plus(given)))


def check(config: Config) -> None:
    """Refuse what is named and does not exist; nothing of this depends on the data."""
    attack(config.attack)
    techniques(config.adapt)
    baseline(config.baseline)
    check_place(config.states)
    check_policy(config.diverged)
    if config.precision not in PRECISIONS:
        raise unknown("precision", config.precision, PRECISIONS)
