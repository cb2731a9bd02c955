"""Synthetic data over rounds: accuracy of a classifier trained on them alone, Fréchet distance.

On MNIST, from arrays (``x_train`` uint8 [60000, 28, 28], ``y_train``, ``x_test``, ``y_test``):

    python benchmarks/synthetic.py fedevg --npz mnist.npz --alpha 1 --device cuda --budget 480

On scikit-learn's digits, on two cores in two minutes:

    python benchmarks/synthetic.py fedevg fedcgan fedcvae

It goes on where it stopped when started again with the same ``--out``. Needs torch, numpy and
safetensors (digits: scikit-learn). Each method's folder has ``result.json`` (settings, the curve
over rounds, traffic, timings, what the examples give away), ``synthetic.safetensors``,
``synthetic.png`` and ``snapshots.npz`` (what the picture is made of).

Distances are on the penultimate layer of ``--classifier``, trained on all clients' data. That,
and the classifiers that are trained on the synthetic data, are for evaluation; a server has
neither the data nor the test set.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal import federation, load
from glocal.core import rng, tree
from glocal.data.federation import Federation
from glocal.engines import Sequential, Vectorised
from glocal.evaluation import synthetic_data
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import outcomes
from glocal.experiment import contact_sheet as sheet
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed

RESNET = "resnet10(width={},activation=silu,spectral=true)"
MNIST = {
    "fedevg": ("fedevg(steps=20)", "mlp(400)"),
    # A residual network's gradients in a pixel are far smaller, so its steps are larger.
    "fedevg-resnet10": (
        "fedevg(steps=20,beta=200,beta_last=1,gamma=20)",
        RESNET.format(16),
    ),
    "fedevg-paper": ("fedevg(steps=40,fresh=true,reg=0,by_class=false)", RESNET.format(32)),
    "fedcgan": ("fedcgan(steps=20,lr=0.0005)", "mlp(64)"),
    "fedcvae": ("fedcvae(steps=20)", "mlp(64)"),
}
DIGITS = {
    "fedevg": ("fedevg", "mlp(64)"),
    "fedevg-printed": ("fedevg(by_class=false)", "mlp(64)"),
    "fedcgan": ("fedcgan(dense=true,width=16,steps=10,lr=0.003)", "mlp(64)"),
    "fedcvae": ("fedcvae(dense=true,width=16,steps=10,lr=0.003)", "mlp(64)"),
}
"""A short name's spec and the clients' model; anything else is a spec as ``glocal run`` takes."""


@dataclass
class Data:
    """The clients' data, and a test set that is nobody's."""

    fed: Federation
    test: tuple[Tensor, Tensor]


def data(asked: argparse.Namespace) -> Data:
    """MNIST from its arrays, or digits; of digits the test set is all clients' test splits."""
    partition = f"dirichlet({asked.alpha:g})"
    if asked.npz is None:
        fed = load("digits", clients=asked.clients, partition=partition, seed=asked.seed)
        fed = fed.to(asked.device)
        return Data(fed, (fed.x[fed.test.rows], fed.y[fed.test.rows]))
    arrays = np.load(asked.npz)

    def part(name: str) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(arrays[f"x_{name}"]).float().div(255).unsqueeze(1)
        return x[: asked.most], torch.from_numpy(arrays[f"y_{name}"]).long()[: asked.most]

    x, y = part("train")
    fed = federation(
        x,
        y,
        clients=asked.clients,
        partition=partition,
        split=(0.8, 0.05, 0.15),
        seed=asked.seed,
        name="mnist",
        classes=10,
    )
    tx, ty = part("test")
    return Data(fed.to(asked.device), (tx.to(asked.device), ty.to(asked.device)))


class Evaluation:
    """What synthetic data is evaluated with: trained once for a data set and a seed."""

    def __init__(self, asked: argparse.Namespace, given: Data) -> None:
        shape, classes = tuple(given.fed.x.shape[1:]), given.fed.classes
        module = models.build(asked.classifier, input_shape=shape, classes=classes, seed=asked.seed)
        self.task = Task(module).to(asked.device)
        self.test = given.test
        self.key = rng.fold(rng.key(asked.seed, asked.device), 99)
        fed = given.fed
        n = len(fed.train.rows)
        size, passes = (256, 4) if n > 10_000 else (64, 40)
        self.real = synthetic_data.train_classifier(
            self.task,
            fed.x[fed.train.rows],
            fed.y[fed.train.rows],
            self.key,
            batch_size=size,
            steps=passes * -(-n // size),
        ).w
        self.features = synthetic_data.features(self.task, self.real, self.test[0])
        reached = synthetic_data.accuracy(self.task, self.real, *self.test)
        self.facts = {
            "classifier_model": asked.classifier,
            "accuracy_on_real": reached,
            "features": f"penultimate layer ({self.features.shape[1]}) of {asked.classifier}, "
            f"trained on all clients' training data ({len(fed.train.rows)})",
        }

    def figures(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Of a set of examples."""
        learned = synthetic_data.train_classifier(self.task, x, y, rng.fold(self.key, 1))
        made = synthetic_data.features(self.task, self.real, x)
        return {
            "synthetic_accuracy": synthetic_data.accuracy(self.task, learned.w, *self.test),
            "steps": learned.steps,
            "converged": learned.converged,
            "frechet": synthetic_data.frechet(made, self.features),
            "real_model_agrees": synthetic_data.accuracy(self.task, self.real, x, y),
        }


@dataclass
class Bench:
    """One method on one data set: where it stands, and what is known so far."""

    asked: argparse.Namespace
    given: Data
    spec: str
    model: str
    folder: Path
    curve: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[np.ndarray[Any, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})

    def training(self) -> Training:
        """The rounds."""
        asked, fed = self.asked, self.given.fed
        shape = tuple(fed.x.shape[1:])
        module = models.build(self.model, input_shape=shape, classes=fed.classes, seed=asked.seed)
        task = Task(module).to(asked.device)
        engine = Sequential() if asked.engine == "sequential" else Vectorised()
        sampler = Fixed(min(len(fed), asked.sampled or len(fed)))
        return Training(
            as_plan(resolve(self.spec)), task, fed, engine, sampler, asked.rounds, asked.seed
        )

    def save(self, progress: Progress) -> None:
        """Everything that going on needs, in one file that is there whole or not at all."""
        from safetensors.torch import save_file

        ids, states = progress.clients.saved()
        flat = dict(tree.flatten({"server": progress.server, "clients": states, "ids": ids}))
        flat = {k: v.detach().cpu().contiguous().clone() for k, v in flat.items()}
        state = {
            "round": progress.round,
            "ledger": progress.traffic.to_dict(),
            "history": progress.history,
            "curve": self.curve,
            "spent": self.spent,
            "settings": self.settings(),
        }
        save_file(flat, self.folder / "state.new", {"state": json.dumps(state)})
        (self.folder / "state.new").replace(self.folder / "state.safetensors")
        np.savez_compressed(self.folder / "snapshots.npz", **self.pictures())  # type: ignore[arg-type]

    def load(self, training: Training) -> Progress:
        """Where it stopped, or the start."""
        from safetensors import safe_open

        progress = training.begin(training.task.params)
        file = self.folder / "state.safetensors"
        if not file.exists():
            return progress
        with safe_open(str(file), "pt", device=self.asked.device) as held:
            state = json.loads(held.metadata()["state"])
            flat = {k: held.get_tensor(k) for k in held.keys()}  # noqa: SIM118 not a dict
        if state["settings"] != self.settings():
            raise SystemExit(f"{file} is of other settings: give another --out.")
        ids = flat.pop("ids")
        local = training.method(progress).client_half(training.task)
        like = {"server": progress.server, "clients": training.make(progress, local)(0)}
        found = tree.unflatten(flat, like)
        fed = training.fed
        progress.server = found["server"]
        progress.clients = ClientStore(len(fed), fed.x.device).filled(ids, found["clients"])
        progress.traffic = Traffic.from_dict(state["ledger"])
        progress.round, progress.history = state["round"], state["history"]
        self.curve, self.spent = state["curve"], state["spent"]
        with np.load(self.folder / "snapshots.npz") as kept:
            self.snapshots = list(kept["x"]) if "x" in kept else []
        print(f"goes on after round {progress.round}", flush=True)
        return progress

    def pictures(self) -> dict[str, np.ndarray[Any, Any]]:
        """The snapshots, and their rounds."""
        if not self.snapshots:
            return {}
        rounds = np.array([line["round"] for line in self.curve])
        return {"x": np.stack(self.snapshots), "round": rounds}

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        names = ("alpha", "clients", "seed", "rounds", "classifier", "sampled", "most", "bf16")
        return {
            "method": self.spec,
            "model": self.model,
            **{n: getattr(self.asked, n) for n in names},
        }

    def look(
        self, training: Training, progress: Progress, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        """Draw the examples as they stand, evaluate them, print the line."""
        began = time.perf_counter()
        half = training.method(progress).server_half
        assert half.draw is not None
        x, y = half.draw(progress.server, training.setting, training.key(77, 0))
        line = {"round": progress.round, **evaluation.figures(x, y)}
        self.curve.append(line)
        first = torch.cat([x[y == c][:4] for c in range(self.given.fed.classes)])
        self.snapshots.append((first.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy())
        self.spent["evaluate"] += time.perf_counter() - began
        print(
            f"round {line['round']:4d}  accuracy {line['synthetic_accuracy']:.4f}  "
            f"Fréchet {line['frechet']:9.3f}  a model of real data agrees on "
            f"{line['real_model_agrees']:.2f}  train {self.spent['train']:.0f} s, "
            f"evaluate {self.spent['evaluate']:.0f} s",
            flush=True,
        )
        return x, y

    def run(self, evaluation: Evaluation, until: float) -> dict[str, Any]:
        """Rounds until they are done or time is up; then what there is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        training = self.training()
        progress = self.load(training)
        looked = self.curve[-1]["round"] if self.curve else -1
        while progress.round < training.rounds and time.perf_counter() < until:
            began = time.perf_counter()
            with precision(self.asked):
                training.one_round(progress)
            if self.asked.device == "cuda":
                torch.cuda.synchronize()
            self.spent["train"] += time.perf_counter() - began
            if progress.round in (1, 5) or progress.round % self.asked.every == 0:
                self.look(training, progress, evaluation)
                looked = progress.round
                self.save(progress)
        if looked != progress.round:
            self.look(training, progress, evaluation)
        self.save(progress)
        return self.result(training, progress, evaluation)

    def result(
        self, training: Training, progress: Progress, evaluation: Evaluation
    ) -> dict[str, Any]:
        """Write everything; returns what is in ``result.json``."""
        from safetensors.torch import save_file

        fed, asked = self.given.fed, self.asked
        half = training.method(progress).server_half
        assert half.draw is not None
        x, y = half.draw(progress.server, training.setting, training.key(77, 0))
        save_file(
            {"x": x.cpu().contiguous(), "y": y.cpu().contiguous()},
            self.folder / "synthetic.safetensors",
        )
        labels = torch.arange(fed.classes).repeat_interleave(len(self.snapshots[0]) // fed.classes)
        chosen = sorted({int(i) for i in np.linspace(0, len(self.snapshots) - 1, 6)})
        blocks = [
            sheet.block(
                sheet.enlarged(torch.from_numpy(self.snapshots[i]) / 255), labels, fed.classes, 4
            )
            for i in chosen
        ]
        blocks.append(sheet.block(sheet.enlarged(x), y, fed.classes, 10))
        sheet.write_png(self.folder / "synthetic.png", sheet.side_by_side(blocks))
        own = outcomes(training.task, fed, training.engine, training.models(progress), pool=False)
        held = torch.cat([fed.x[fed.test.rows], fed.x[fed.val.rows]])
        trained = fed.x[fed.train.rows]
        last = self.curve[-1]
        result = {
            "settings": self.settings(),
            **evaluation.facts,
            "done": progress.round == training.rounds,
            "round": progress.round,
            "synthetic_accuracy": last["synthetic_accuracy"],
            "frechet": last["frechet"],
            "examples": len(x),
            "own_models_accuracy": sum(own.metrics["accuracy"]) / len(fed),
            "params_up_a_round": sum(progress.traffic.up[-1].values()) // len(fed),
            "params_down_a_round": sum(progress.traffic.down[-1].values()) // len(fed),
            # FedAvg sends its whole network, here the clients' one, both ways.
            "fedavg_params_up_a_round": tree.count(training.task.params),
            "nearness": synthetic_data.nearness(x, trained, held, evaluation.key),
            "membership": synthetic_data.membership(x, trained, held),
            "seconds": {k: round(v, 1) for k, v in self.spent.items()},
            "seconds_a_round": self.spent["train"] / max(1, progress.round),
            "machine": torch.cuda.get_device_name() if asked.device == "cuda" else "cpu",
            "torch": torch.__version__,
            "curve": self.curve,
        }
        (self.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        return result


def precision(asked: argparse.Namespace) -> AbstractContextManager[Any]:
    """Half precision for the rounds, if asked for."""
    return torch.autocast(asked.device, torch.bfloat16) if asked.bf16 else nullcontext()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="+", help=f"{', '.join(MNIST)}, or a spec")
    parser.add_argument("--npz", type=Path, help="MNIST's arrays; without it, digits")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--sampled", type=int, help="clients a round (all)")
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="300; digits: 60")
    parser.add_argument("--every", type=int, help="rounds between two looks (25; digits: 20)")
    parser.add_argument("--model", help="the clients' model, instead of the method's")
    parser.add_argument("--classifier", help="cnn; digits: mlp(128)")
    parser.add_argument("--most", type=int, help="training examples, to try things out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", default="vectorised", choices=("vectorised", "sequential"))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for each method")
    parser.add_argument("--out", type=Path, default=Path("synthetic"))
    asked = parser.parse_args()
    digits = asked.npz is None
    asked.rounds = asked.rounds or (60 if digits else 300)
    asked.every = asked.every or (20 if digits else 25)
    asked.classifier = asked.classifier or ("mlp(128)" if digits else "cnn")
    if asked.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    else:
        torch.set_num_threads(1)
    began = time.perf_counter()
    given = data(asked)
    evaluation = Evaluation(asked, given)
    facts = evaluation.facts
    print(f"{facts['features']}: {facts['accuracy_on_real']:.4f} on the test set")
    print(f"data and classifier: {time.perf_counter() - began:.0f} s", flush=True)
    for name in asked.methods:
        until = time.perf_counter() + asked.budget
        spec, model = (DIGITS if digits else MNIST).get(name, (name, "mlp(64)"))
        model = asked.model or model
        print(f"\n{spec}, {model}, alpha {asked.alpha:g}, seed {asked.seed}", flush=True)
        label = name if name in MNIST else "".join(c if c.isalnum() else "-" for c in spec)
        bench = Bench(asked, given, spec, model, asked.out / label)
        result = bench.run(evaluation, until)
        if not result["done"]:
            print(f"stopped in round {result['round']} of {asked.rounds}: start it again to go on")
        keep = ("synthetic_accuracy", "frechet", "own_models_accuracy", "params_up_a_round")
        keep = (*keep, "fedavg_params_up_a_round")
        print({k: result[k] for k in keep}, result["nearness"], result["membership"], sep="\n")


if __name__ == "__main__":
    main()
