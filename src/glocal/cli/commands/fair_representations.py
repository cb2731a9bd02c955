"""``glocal study fair-representations``: what hiding protected attributes costs and brings."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import evaluation, method_names, option, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

of_adversary = partial(option, panel="Adversary")

DEFAULT = ["lg-fedavg(warmup=0)", "fedavg"]


@with_settings(
    *("Data", "Training", "seed", "engine", "device", "precision", "repeats"),
    data="adult",
    rounds=20,
    repeats=3,
)
def fair_representations(
    config: Config,
    methods: list[str] | None = method_names(" ".join(DEFAULT)),
    lam: list[float] | None = of_adversary(
        None,
        "How much hiding counts against the task, several times; 0, 0.3, 1, 3 and 10 unless given.",
        show_default=False,
    ),
    how: str = of_adversary("reversal", "reversal, or alternating (the adversary steps first)."),
    steps: int = of_adversary(
        1,
        "Of the adversary before each of the model's, if alternating, each on its share of the "
        "mini-batch.",
    ),
    rate: float = of_adversary(1.0, "Its learning rate, as a multiple of the client's."),
    at: str | None = of_adversary(
        None, "The layer whose input is to hide attributes; by default where private layers end."
    ),
    pretrain: int = of_adversary(
        0, "Epochs in which private layers and adversaries train before the first round."
    ),
    lam_local: float = of_adversary(0.0, "λ meanwhile."),
    optimiser: str | None = of_adversary(None, "sgd or adam; by default the client's."),
    hidden: int = of_adversary(32, "The width of its hidden layers."),
    least: float = evaluation(
        0.0, "Validation accuracy that the chosen λ must keep, as a share (80 % is 0.8)."
    ),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """What does it cost to hide sex and race, and are they hidden? Adversaries old and fresh.

    Every METHOD is trained against an adversary at each λ. Two fresh adversaries then try to find
    the protected attributes in the frozen representations: that one was beaten proves nothing.

    Examples:
      glocal study fair-representations --clients 10 --partition iid --picture trade-off.png

      glocal study fair-representations --data staff.csv --client site --protected sex
    """
    against = studies.fair_representations.Against(
        how, rate, steps, at, pretrain, lam_local, optimiser, hidden
    )
    with reporter(None) as progress:
        result = studies.fair_representations.fair_representations(
            methods or DEFAULT,
            config,
            lams=lam or studies.fair_representations.LAMS,
            against=against,
            least=least,
            report=progress,
        )
    show, draw = report.fair_representations.show, report.fair_representations.draw
    deliver(result, json, partial(show, result), picture, partial(draw, result))
