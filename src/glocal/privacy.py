"""What protects the clients' updates: a slot of two hooks.

``client`` acts on one client's update before it leaves (clip); ``server`` on the combined update
(noise). A filler also says what it costs, through the accountant it brings with it.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from glocal.types import Params
from glocal.weighting import Setting


class Privacy(Protocol):
    """The contract of the privacy slot."""

    @property
    def name(self) -> str:
        """As in a method's spec."""
        ...

    def client(self, update: Params, key: Tensor) -> Params:
        """One client's update, made fit to send."""
        ...

    def server(self, update: Params, cohort: int, setting: Setting, key: Tensor) -> Params:
        """The mean of ``cohort`` updates, made fit to publish."""
        ...

    def epsilon(self, setting: Setting, rounds: int) -> float:
        """What ``rounds`` rounds spent, skipped ones included."""
        ...
