"""All repeats of a method, set against the local baseline's, as one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from glocal.data.federation import Federation
from glocal.evaluation.summary import Trial, client_table, summarise
from glocal.experiment import ensemble, parts
from glocal.experiment.adaptation_report import add_adapted
from glocal.experiment.attack_report import add_attack
from glocal.experiment.config import Config
from glocal.experiment.repeat import Repeat
from glocal.experiment.run import Run


def assembled(
    config: Config,
    name: str,
    fed: Federation,
    repeats: Sequence[Repeat],
    baseline: Sequence[Repeat],
    template: nn.Module | None = None,
) -> Run:
    """The run; of the baseline itself, where the two are the same."""
    is_baseline = repeats is baseline
    trials = [
        Trial(fed.fold(r) if r else fed, repeat.outcome, alone.outcome, repeat.traffic)
        for r, (repeat, alone) in enumerate(zip(repeats, baseline, strict=True))
    ]
    first = repeats[0]
    rows = client_table(trials)
    summary = summarise(rows, trials)
    summary["rounds"] = 0 if is_baseline else config.rounds
    if first.privacy is not None:
        summary |= {k: first.privacy[k] for k in ("epsilon", "rounds")}
        summary["privacy"] = first.privacy
    sets = [repeat.made for repeat in repeats if repeat.made is not None]
    if sets:
        summary["synthetic_accuracy"] = sum(m.figures["accuracy"] for m in sets) / len(sets)
        summary["synthetic"] = sets[0].figures
    if diverged := _diverged(repeats):
        summary["diverged"] = diverged
    summary["params_published"] = first.published
    summary["parameters"] = first.parameters
    adapted = [repeat.adapted for repeat in repeats if repeat.adapted is not None]
    if adapted:
        add_adapted(rows, summary, trials, adapted)
    struck = [repeat.struck for repeat in repeats if repeat.struck is not None]
    attack = parts.attack(config.attack)
    if attack is not None and struck:
        add_attack(rows, summary, attack.spec, struck)
    together = [repeat.together for repeat in repeats if repeat.together is not None]
    if together:
        summary["new_test"] = ensemble.mean(together)
    chosen = {"model": first.model_name, "engine": first.engine}
    several = tuple(repeats)
    return Run(
        method=name,
        model=first.model,
        clients=rows,
        summary=summary,
        history=first.history,
        states=first.states,
        data=fed.describe,
        settings={"method": name, **config.recorded(), **chosen},
        trained=first.trained,
        repeats=several,
        baseline=several if is_baseline else tuple(baseline),
        template=template,
    )


def _diverged(repeats: Sequence[Repeat]) -> dict[str, list[int]]:
    """Whose training was not finite, and in which rounds (of all repeats)."""
    rounds: dict[str, set[int]] = {}
    for repeat in repeats:
        for line in repeat.history:
            affected: list[Any] = [*line.get("left_out", ()), *line.get("clipped", ())]
            for client in affected:
                rounds.setdefault(client, set()).add(line["round"])
    return {client: sorted(of_client) for client, of_client in rounds.items()}
