"""Every client's model in a run folder, each weight once.

A client's model consists of what the server ends with (``final.safetensors``), of what the client
keeps (``clients.safetensors``), or of neither, as where two models are mixed. ``models.json`` says
for each parameter which of the two it is; models that are neither are in ``models.safetensors``,
with the ids of their clients. So a client's model can be read without the data it was trained on,
and without the code of its method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glocal.core import tree
from glocal.core.files import dump, write
from glocal.core.tensor_files import save_tensors
from glocal.core.types import Params
from glocal.evaluation.evaluate import at_once
from glocal.prediction.model_folder import PREPROCESSING

if TYPE_CHECKING:
    from glocal.experiment.run import Run

ABOUT, WEIGHTS = "models.json", "models.safetensors"

SERVER = ""
"""The source of a parameter that is the server's; others are the names of leaves of states."""

FROZEN = "frozen:"
"""Before the names of what a module has beside its trained parameters."""

MOST_BYTES = 1 << 30
"""Models that are neither the server's nor a client's state are kept up to this size together."""


def save_models(run: Run, folder: Path) -> None:
    """Write what is needed to build every client's model, if the run still has them."""
    if run.description is None or run.template is None or (run.trained is None and run.model):
        return
    names = [str(row["client"]) for row in run.clients]
    if run.model:
        sources, mixed = _sources(run)
    else:  # alone: what clients keep are their models
        kept = run.unequal.task.names if run.unequal else _trained(run.template)
        sources, mixed = {name: name for name in sorted(kept)}, _nobody()
    tensors: dict[str, Tensor] = {}
    if mixed is not None and len(mixed["ids"]):
        tensors |= mixed
    if run.unequal is None:
        tensors |= _frozen(run.template, FROZEN)
    else:
        for part in run.unequal.task.parts:
            tensors |= _frozen(part.module, f"{FROZEN}{part.number}:")
    if tensors:
        save_tensors(folder / WEIGHTS, tensors)
    about: dict[str, Any] = replace(run.description, client="").to_json()
    about |= {
        "clients": names,
        "sources": sources,
        "without_data": mixed is not None,
        "preprocessing": run.preprocessing is not None,
    }
    if run.unequal is not None:
        about["unequal"] = run.unequal.to_json()
    if run.preprocessing is not None:
        write(folder / PREPROCESSING, dump(run.preprocessing.to_json()))
    write(folder / ABOUT, dump(about))


def _trained(module: nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters() if p.requires_grad}


def _frozen(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """What a module has beside its trained parameters; what two layers share has one name."""
    named = {n for part in (module.named_parameters(), module.named_buffers()) for n, _ in part}
    rest = named - _trained(module)
    return {prefix + name: t for name, t in module.state_dict().items() if name in rest}


def _nobody() -> dict[str, Tensor]:
    return {"ids": torch.zeros(0, dtype=torch.int64)}


def _sources(run: Run) -> tuple[dict[str, str], dict[str, Tensor] | None]:
    """Where each parameter comes from, and the models of clients for whom that is not so.

    These are None if they are too large together.
    """
    server = {name: leaf.detach().cpu() for name, leaf in run.model.items()}
    sources: dict[str, str] = {}
    if _same_for_all(run, server):
        return dict.fromkeys(server, SERVER), _nobody()
    ids: list[Tensor] = []
    mixed: list[Params] = []
    size = 0
    for clients, models, states, has in _in_parts(run):
        equal = {
            name: {SERVER: _equal(leaf, server[name])}
            | {
                path: has & _equal(leaf, state)
                for path, state in states.items()
                if state.shape == leaf.shape and state.dtype == leaf.dtype
            }
            for name, leaf in models.items()
        }
        if not sources and has.any():  # what holds for most; of several, the server's
            sources = {
                name: max(found, key=lambda path: int((found[path] & has).sum()))
                for name, found in equal.items()
            }
        told = torch.ones(len(clients), dtype=torch.bool)
        for name, found in equal.items():
            by_source = found.get(sources.get(name, SERVER), torch.zeros_like(told))
            told &= torch.where(has, by_source, found[SERVER])
        if not told.all():
            rest = tree.row(models, ~told)
            ids.append(clients[~told])
            mixed.append(rest)
            size += sum(leaf.nbytes for leaf in tree.leaves(rest))
            if size > MOST_BYTES:
                return {}, None
    sources = sources or dict.fromkeys(server, SERVER)
    return sources, {"ids": torch.cat(ids), **tree.cat(mixed)} if ids else _nobody()


def _same_for_all(run: Run, server: Params) -> bool:
    """Whether all clients predict with the server's model, of which only one is looked at."""
    assert run.trained is not None
    first = torch.tensor([0], device=run.trained.training.fed.x.device)
    if not run.trained.one_for_all or len(run.trained.candidates()(first)) > 1:
        return False
    models = run.trained.models(first)
    return all(bool(_equal(models[name].cpu(), leaf).all()) for name, leaf in server.items())


def _in_parts(run: Run) -> Iterator[tuple[Tensor, Params, dict[str, Tensor], Tensor]]:
    """Some clients at a time: their ids, models, states, and which of them have a state."""
    assert run.trained is not None
    training = run.trained.training
    everyone = torch.arange(len(training.fed))
    with_state = torch.zeros(len(training.fed), dtype=torch.bool)
    with_state[run.states["ids"].cpu()] = True
    place = with_state.cumsum(0) - 1
    on_disk = run.repeats[0].on_disk if run.repeats else None
    flat = {k: v for k, v in tree.flatten(run.states) if k != "ids"}
    for ids in torch.split(everyone, at_once(training.task, training.fed)):
        models = {k: v.detach().cpu() for k, v in run.trained.models(ids).items()}
        has = with_state[ids]
        if on_disk is not None:
            kept = (
                dict(tree.flatten(on_disk.rows_of(ids[has].to(on_disk.device))))
                if has.any()
                else {}
            )
        else:
            rows = place[ids[has]]
            kept = {k: v[rows.to(v.device)] for k, v in flat.items()}
        states = {}
        for path, leaf in kept.items():
            spread = leaf.new_zeros(len(ids), *leaf.shape[1:], device="cpu")
            spread[has] = leaf.cpu()
            states[path] = spread
        yield ids, models, states, has


def _equal(stacked: Tensor, other: Tensor) -> Tensor:
    """Whether each model's parameter is the same as the other, in every bit that counts."""
    if other.shape not in (stacked.shape, stacked.shape[1:]):  # the server has none
        return torch.zeros(len(stacked), dtype=torch.bool)
    return (stacked == other).flatten(1).all(1)
