"""Every use of the synthetic data that a finished run made, tried from its folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.core.files import plain
from glocal.core.progress import Report, silent
from glocal.core.validation import positive_integers
from glocal.experiment import setup as setups
from glocal.experiment.repeat import Trained
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.runner import Callbacks, Federated, baseline_of, run_seed
from glocal.experiment.synthetic import load
from glocal.methods import resolve
from glocal.runs.restore import Files, Restored, folders, read, restore
from glocal.slots.method import as_plan
from glocal.studies import synthetic_uses as uses

FILE = "synthetic.safetensors"

BASE = "fedavg"


def try_uses(
    folder: Path,
    wanted: str,
    *,
    rounds: int = 10,
    fill: str = "own",
    seed: int | None = None,
    device: str | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """Try some of :data:`glocal.studies.synthetic_uses.USES`, joined by ``+``; plain data.

    :data:`BASE` is trained with and without the synthetic data for so many ``rounds``.
    """
    positive_integers(rounds=rounds)
    if fill not in uses.FILL:
        raise unknown("--fill", fill, uses.FILL)
    asked = [part.strip() for part in wanted.split("+")]
    for name in asked:
        if name not in uses.USES:
            raise unknown("use", name, uses.USES)
    (run,) = restore(maker(folder).folder, device)
    config = replace(run.setup.config, rounds=rounds, attack=None)
    config = replace(config, patience=None, validate_every=0)
    config = config if seed is None else replace(config, seed=seed)
    run = replace(run, setup=setups.make(config, run.fed, 0))
    setup, files = run.setup, run.files
    with setup.threads():
        examples = load(files.folder / FILE, setup.fed)
        alone = run_seed(baseline_of(config), setup, Callbacks(report))
        tried = {
            name: plain(uses.figures(run.fed, use, alone.outcome))
            for name, use in _tried(run, asked, fill, examples, report).items()
        }
    return {
        "schema": SCHEMA,
        "data": plain(run.fed.describe),
        "settings": {
            "run": str(files.folder),
            "method": files.method,
            "base": BASE,
            "rounds": config.rounds,
            "seed": config.seed,
            "fill": fill,
            "model": setup.model_name,
        },
        "made": {
            "examples": len(examples[0]),
            "rounds": len(files.stages),
            "repeats": files.settings.repeats,
            "attack": files.settings.attack,
            "params_up": files.summary["params_up"],
        },
        "estimate": files.summary["estimate"],
        "uses": tried,
    }


def maker(path: Path) -> Files:
    """The finished run in a folder that made synthetic data; raises if there is not one."""
    files = [read(folder) for folder in folders(path)]
    makers = [
        f
        for f in files
        if isinstance(f.runner, Federated)
        and not f.runner.plan.stages[-1].method.server_half.sends_update
    ]
    if not makers:
        raise GlocalError(
            f"the run in {path} is of {files[0].method}, which makes no synthetic data: give the "
            "folder of a run of fedevg, fedcgan or fedcvae."
        )
    if len(makers) > 1:
        raise GlocalError(
            f"several runs in {path} made synthetic data: give the folder of one, such as "
            f"{makers[0].folder}."
        )
    if not (makers[0].folder / FILE).is_file():
        raise GlocalError(
            f"the run in {makers[0].folder} has no {FILE}: train it again with 'glocal run "
            f"{makers[0].folder / 'settings.toml'}'."
        )
    return makers[0]


def _tried(
    run: Restored,
    asked: list[str],
    fill: str,
    examples: tuple[Tensor, Tensor],
    report: Report,
) -> dict[str, uses.Use]:
    """Every use by the name that the table has for it."""
    setup, took = run.setup, len(run.files.stages)
    config = setup.config
    tried: dict[str, uses.Use] = {}
    if "warm-start" in asked or "public" in asked:
        training = Federated(BASE, as_plan(resolve(BASE))).check(setup)
        if "warm-start" in asked:
            begin = uses.start(training, *examples)
            tick = partial(report, f"{BASE}, from two starts")
            warm = uses.warm_start(training, begin, took, tick)
            for r, use in warm.after.items():
                tried[f"warm start: after round {r}"] = use
            if warm.longer is not None:
                tried[f"warm start: against {config.rounds + took} rounds"] = warm.longer
            cold = warm.cold
        else:
            tick = partial(report, BASE)
            begun = training.begin(setup.task.params)
            cold = Trained(training, training.run(begun, lambda p: tick(p.round, config.rounds)))
        if "public" in asked:
            given = cold.models()
            tried["public set: Fisher of ewc"] = uses.with_public_fisher(setup, given, *examples)
            tried["public set: distillation"] = uses.distilled(setup, given, *examples)
    if "fill-up" in asked:
        tick = partial(report, "filled up")
        tried[f"fill up: {fill} classes"] = uses.fill_up(
            setup, baseline_of(config).client, *examples, classes=fill, tick=tick
        )
    return tried
