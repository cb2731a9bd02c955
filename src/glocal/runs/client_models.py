"""A client's model from a run folder, without the data it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core import checksums
from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Params
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.experiment.model_files import ABOUT, FROZEN, SERVER, WEIGHTS
from glocal.nn.architectures import Layout
from glocal.prediction import model_folder
from glocal.prediction.client_model import ClientModel, load_model
from glocal.prediction.description import Description, damaged
from glocal.runs.folder import PREPROCESSING, unfinished
from glocal.runs.restore import restore

Architecture = nn.Module | Callable[[], nn.Module] | None


def client_model(
    folder: Path, client: str | None, method: str | None = None, module: Architecture = None
) -> ClientModel:
    """The model in a model's folder, or that of a client in the folder of a run or a comparison.

    Args:
        folder: of a run, of a comparison, or of a saved model, which has one client.
        client: its name.
        method: of a comparison, as it was typed.
        module: the architecture of an own model.
    """
    if not folder.is_dir():
        raise GlocalError(f"there is no folder {folder}: check its name.")
    if model_folder.is_model(folder):
        return _saved(folder, client, module)
    folder = _folder_of(folder, method)
    checksums.check(folder, "put it back, or train again")
    facts = model_folder.read_json(folder / ABOUT)
    about = Description.from_json(facts, str(folder / ABOUT))
    number = _number(facts.get("clients"), client, folder)
    name = facts["clients"][number]
    about, layout, frozen = replace(about, client=name), None, FROZEN
    if "unequal" in facts:
        about, layout, frozen = _of_several(facts["unequal"], about, number, folder)
    fitted = None
    if facts.get("preprocessing"):
        if not (folder / PREPROCESSING).is_file():
            raise GlocalError(f"{folder} has no {PREPROCESSING} any more: put it back.")
        fitted = Preprocessing.from_json((folder / PREPROCESSING).read_bytes()).of_client(name)
    if facts.get("without_data"):
        weights = _weights(folder, facts.get("sources"), number)
    else:
        restored = restore(folder)[0]
        stacked = restored.trained.models(torch.tensor([number]))
        weights = {key: leaf[0].cpu() for key, leaf in stacked.items()}
    weights = (weights if layout is None else layout.unpack(weights)) | _frozen(folder, frozen)
    built = about.build(weights, folder / "final.safetensors", module)
    return ClientModel(name, built, about, fitted)


def _saved(folder: Path, client: str | None, module: Architecture) -> ClientModel:
    model = load_model(folder, module)
    if client is not None and client != model.name:
        raise GlocalError(
            f"the model in {folder} is that of client {model.name}, not of {client}: leave "
            "--client out, or give the folder of the run."
        )
    return model


def _folder_of(path: Path, method: str | None) -> Path:
    """The folder of the run: the path itself, or that of a method inside."""
    inside = (
        [path] if (path / ABOUT).is_file() else sorted(p.parent for p in path.glob(f"*/{ABOUT}"))
    )
    began = (path, *(p.parent for p in path.glob("*/settings.toml")))
    if not inside:
        if any(unfinished(p) for p in began):
            raise GlocalError(
                f"the run in {path} did not finish: go on with 'glocal resume {path}'."
            )
        if below := sorted(path.glob(f"*/*/{ABOUT}")):
            raise GlocalError(
                f"{path} holds several comparisons: give the folder of one, such as "
                f"{below[0].parent.parent}."
            )
        raise GlocalError(
            f"there are no clients' models in {path}: give a folder that 'glocal run', 'glocal "
            "compare' or 'glocal export' has made (those of older versions have none: train again)."
        )
    methods: dict[str, Path] = {}
    for run in inside:
        name = str(model_folder.read_json(run / ABOUT).get("method"))
        if name in methods and method in (None, name):
            raise GlocalError(
                f"there are several runs of {name} in {path}, such as {methods[name]} and {run}: "
                "give the folder of one."
            )
        methods[name] = run
    if method is not None and method not in methods:
        raise unknown("method", method, methods)
    if method is None and len(methods) > 1:
        raise GlocalError(
            f"there are several methods in {path}: say which by --method, one of "
            f"{', '.join(methods)}."
        )
    chosen = methods[method] if method is not None else next(iter(methods.values()))
    if not (chosen / "result.json").is_file():
        raise GlocalError(f"the run in {chosen} did not finish: go on with 'glocal resume {path}'.")
    return chosen


def _number(names: Any, client: str | None, folder: Path) -> int:
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise damaged(str(folder / ABOUT), names)
    if client is None:
        more = ", …" if len(names) > 10 else ""
        raise GlocalError(
            f"whose model is it to be? Say so by --client, one of {', '.join(names[:10])}{more}."
        )
    if client not in names:
        raise unknown("client", client, names)
    return names.index(client)


def _weights(folder: Path, sources: Any, number: int) -> Params:
    """One client's weights, of which each is read from the file that has it."""
    if not isinstance(sources, dict) or not all(isinstance(v, str) for v in sources.values()):
        raise damaged(str(folder / ABOUT), sources)
    file = folder / WEIGHTS
    row = _row(file, number) if file.is_file() else None
    if row is not None:
        names = [name for name in _names(file) if name != "ids" and not name.startswith(FROZEN)]
        return _read(file, names, row)
    states, server = folder / "clients.safetensors", folder / "final.safetensors"
    row = _row(states, number)
    kept = {} if row is None else {name: s for name, s in sources.items() if s != SERVER}
    weights = _read(server, [name for name in sources if name not in kept])
    if row is not None:
        read = _read(states, list(kept.values()), row)
        weights |= {name: read[source] for name, source in kept.items()}
    return weights


def _of_several(
    facts: Any, about: Description, number: int, folder: Path
) -> tuple[Description, Layout, str]:
    """Of clients with different models, one's: what it is, how it is packed, what is frozen."""
    try:
        which = facts["of_client"][number]
        model = facts["models"][which]
        about = replace(about, architecture=str(model["architecture"]), own=bool(model["own"]))
        return about, Layout.from_json(model), f"{FROZEN}{which}:"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise damaged(str(folder / ABOUT), "unequal") from error


def _frozen(folder: Path, prefix: str) -> Params:
    """What the module has beside trained parameters, where it has anything."""
    file = folder / WEIGHTS
    if not file.is_file():
        return {}
    names = [name for name in _names(file) if name.startswith(prefix)]
    return {name.removeprefix(prefix): leaf for name, leaf in _read(file, names).items()}


def _row(file: Path, number: int) -> int | None:
    """The row of a client in a file with ``ids``; none if it is not among them."""
    ids = _read(file, ["ids"])["ids"].tolist() if "ids" in _names(file) else []
    return ids.index(number) if number in ids else None


def _names(file: Path) -> list[str]:
    with _opened(file) as content:
        return list(content.keys())


def _read(file: Path, names: Sequence[str], row: int | None = None) -> dict[str, Tensor]:
    """Tensors by name or, of each, one row; the rest of the file is not read."""
    with _opened(file) as content:
        if missing := set(names) - set(content.keys()):
            raise damaged(str(file), sorted(missing)[0])
        if row is None:
            return {name: content.get_tensor(name) for name in names}
        return {name: content.get_slice(name)[row : row + 1][0] for name in names}


def _opened(file: Path) -> Any:
    from safetensors import safe_open

    try:
        return safe_open(file, "pt")
    except Exception as error:  # safetensors raises its own kinds
        raise GlocalError(f"{file} cannot be read ({str(error)[:200]}): train again.") from error
