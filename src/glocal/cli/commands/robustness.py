"""``glocal robustness``: what malicious clients do to the honest ones, method by method."""

from __future__ import annotations

from pathlib import Path

from glocal import report, studies
from glocal.cli.options import method_names, option, with_settings
from glocal.cli.output import JSON, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

DEFAULT_ATTACKS = ["sign-flip", "replace", "little"]


def defaults(malicious: float) -> list[str]:
    """Fedavg and every robust aggregator, made for that share of malicious clients."""
    return [
        "fedavg",
        "fedavg+median",
        f"fedavg+trimmed-mean(share={malicious:g})",
        f"fedavg+krum(malicious={malicious:g})",
        f"fedavg+multi-krum(malicious={malicious:g})",
        "fedavg+geometric-median",
        "fedavg+norm-bound",
    ]


@with_settings("Data", "Training", "repeats", "baseline", "Machine", rounds=30, repeats=3, jobs=0)
def robustness(
    config: Config,
    methods: list[str] | None = method_names(
        f"{', '.join(defaults(0.2))}, with the share that --malicious says"
    ),
    attack: list[str] | None = option(
        None,
        "What malicious clients do, as in 'sign-flip(scale=5)', replace, little, scale, gaussian, "
        "nan, label-flip or backdoor; may be given several times. Default: "
        f"{', '.join(DEFAULT_ATTACKS)}.",
        "--attack",
        panel="Attack",
    ),
    malicious: float = option(
        0.2,
        "The share of clients that are malicious, where an attack has no share= of its own.",
        panel="Attack",
    ),
    json: Path | None = JSON,
) -> None:
    """What is left of each method when some clients are malicious?

    Every method is trained without an attack and with each; all figures are of the honest clients.

    Examples:
      glocal robustness

      glocal robustness fedavg fedavg+median --attack backdoor --attack 'scale(20)' --malicious 0.1
    """
    with reporter(None) as progress:
        runs, result = studies.robustness.robustness(
            methods or defaults(malicious),
            attack or DEFAULT_ATTACKS,
            config,
            malicious=malicious,
            report=progress,
        )

    def show() -> None:
        report.robustness.show(result)
        report.comparison.show_privacy(runs)

    deliver(result, json, show)
