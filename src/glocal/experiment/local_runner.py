"""The runner of clients that train alone: the local baseline, and ``local`` as a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from glocal.core.errors import GlocalError
from glocal.experiment import ensemble
from glocal.experiment import setup as setups
from glocal.experiment.baseline import gradients_of
from glocal.experiment.callbacks import Callbacks
from glocal.experiment.fingerprint import digest
from glocal.experiment.repeat import Repeat, contents
from glocal.experiment.setup import Setup
from glocal.methods.local import LocalTraining
from glocal.nn.architectures import parts
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.client_state.placement import Storage
from glocal.training.loop import Training

WHAT = "the local baseline's models"


@dataclass(frozen=True)
class LocalOnly:
    """Every client trains alone."""

    name: str
    client: LocalTraining

    def check(self, setup: Setup) -> Training | None:
        """Refuse what does not fit: nothing is trained together, so nothing can."""
        if setup.config.attack is not None:
            raise GlocalError(
                "local sends nothing, so no attack can reach it: leave the attack out."
            )
        return None

    def run(
        self, setup: Setup, callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> Repeat:
        """One repeat."""
        return self.run_side_by_side([setup], callbacks, checkpoints)[0]

    def run_side_by_side(
        self, several: Sequence[Setup], callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> list[Repeat]:
        """Repeats that train together, with checkpoints of all of them; then each is evaluated.

        Where their models do not fit the device, there are too many for more than one at a time.
        """
        first = several[0]
        config, task, keeper = first.config, first.task, None
        size = len(several) * len(first.fed) * 4 * task.size
        place = Storage(config.states).chosen(size, first.fed.x.device)
        if len(several) > 1 and place != "device":
            return [self.run(setup, callbacks, checkpoints) for setup in several]
        storage = Storage(config.states, what=WHAT)
        if checkpoints is not None:
            code = digest(*(p.module for p in parts(task)), task.losses, task.augment)
            of = "; ".join(
                f"alone {code} {setup.digest} {setup.baseline_text(self.client)}"
                for setup in several
            )
            keeper = checkpoints.epochs(first.repeat, of)
            storage = Storage(config.states, keeper.series.folder, checkpoints.note, WHAT)
        title = "alone" if len(several) > 1 else first.title("alone")
        report = partial(callbacks.report, title)
        found = setups.measured_all(several, self.client, report, keeper, storage)
        repeats = []
        for setup, (baseline, outcome) in zip(several, found, strict=True):
            together = None
            if config.new_test:
                models = baseline.models.rows_of
                together = ensemble.own_models(setup.task, setup.fed, setup.engine, models)
            states, on_disk = contents(baseline.models, final=True)
            repeat = Repeat(
                outcome,
                baseline.val_score,
                first.engine.executed,
                states=states,
                gradients=gradients_of(self.client, baseline, setup.fed, refit=config.tune),
                seconds=baseline.seconds,
                together=together,
                on_disk=on_disk,
                val_loss=baseline.val_loss,
                cv_score=baseline.cv_score,
                cv_loss=baseline.cv_loss,
            )
            repeats.append(repeat)
        return repeats
