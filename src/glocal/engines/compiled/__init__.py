"""Rounds as programs of fixed shapes: compiled, and on a GPU captured as CUDA graphs.

:class:`Programs` is the way in. What it rests on is torch's own and may change with its version
(torch 2.6, 2.11 and 2.13 are tested): a step that cannot be compiled, or comes out differently
when it is, is trained uncompiled, and a line says why.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from glocal.core.types import Tree, Uplink
from glocal.engines.base import CohortRound, Workload
from glocal.engines.compiled.cuda_graphs import Captured
from glocal.engines.compiled.inductor import pays
from glocal.engines.compiled.program import Program

__all__ = ["Captured", "Programs", "pays"]

MAX_PROGRAMS = 4
"""Programs that are kept: each has buffers for a cohort."""


class Programs:
    """The programs of the last few trainings, kept from round to round."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Any, Program] = OrderedDict()
        self.compiled = False
        """Whether all steps of the last round were compiled."""

    def round(
        self,
        cohort: CohortRound,
        workload: Workload,
        *,
        compiles: bool,
        any_size: bool,
        widest: int,
    ) -> tuple[Uplink, Tree] | None:
        """Train a cohort with the program of its training, which its first round makes.

        ``any_size``: steps are compiled however many operations they have. ``widest``: clients that
        fit into memory together. The result is None if steps were to be compiled on a CPU and
        cannot be: then a program gains nothing.
        """
        # Objects by identity: the program holds them, so no other can have their place.
        laned = cohort.lanes is not None
        key = (id(cohort.local), id(cohort.task), id(cohort.fed), workload, compiles, laned)
        if key not in self.kept:
            while len(self.kept) >= MAX_PROGRAMS:
                self.kept.popitem(last=False)
            self.kept[key] = Program(cohort, workload, compiles, widest, any_size)
        self.kept.move_to_end(key)
        program = self.kept[key]
        result = program.round(cohort)
        self.compiled = result is not None and len(program.compiled) == len(program.phases)
        return result
