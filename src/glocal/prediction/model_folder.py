"""A saved model: a folder with its weights, its description and its preprocessing.

::

    model.safetensors    the weights
    preprocessing.json   of a table: how raw rows become features
    model.json           what it is, the SHA-256 of the other files, and that of itself (without
                         the line that has it, and however it is laid out)

There is no code in it, and nothing in it is executed. The folder is written under another name
first and renamed when it is complete, so a folder of this name is whole.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from glocal.core import checksums
from glocal.core.errors import GlocalError
from glocal.core.files import dump, flush_folder, make_folder, no_room, write
from glocal.core.tensor_files import load_tensors, save_tensors
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.prediction.description import Description, damaged

ABOUT, WEIGHTS, PREPROCESSING = "model.json", "model.safetensors", "preprocessing.json"

ITSELF = "sha256"
"""The name under which the description has its own checksum."""

STALE = 600
"""Seconds after which a half-written folder that nobody touches is nobody's."""


def is_model(folder: Path) -> bool:
    """Whether this is the folder of a saved model."""
    return (folder / ABOUT).is_file()


def save(
    module: nn.Module,
    about: Description,
    preprocessing: Preprocessing | None,
    folder: Path,
    extra: Mapping[str, bytes],
) -> None:
    """Write the model to a new folder, whole or not at all."""
    if folder.is_dir() and any(folder.iterdir()):
        raise GlocalError(f"the folder {folder} is not empty: choose another.")
    make_folder(folder.absolute().parent)
    if folder.exists() and not folder.is_dir():
        raise GlocalError(f"{folder} is a file: choose another name for the model's folder.")
    part = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        _remove_remains(part.parent, folder.name)
        shutil.rmtree(part, ignore_errors=True)  # of another process that had this number
        part.mkdir()
        save_tensors(part / WEIGHTS, module.state_dict())
        names = [WEIGHTS]
        if preprocessing is not None:
            write(part / PREPROCESSING, dump(preprocessing.to_json()))
            names.append(PREPROCESSING)
        for name, content in extra.items():
            write(part / name, content)
        digests = {name: checksums.of_file(part / name) for name in names}
        facts = {**about.to_json(), "files": digests}
        write(part / ABOUT, dump({**facts, ITSELF: checksums.of_json(facts)}))
        os.replace(part, folder)
        flush_folder(folder.absolute().parent)
    except OSError as error:
        raise no_room(folder, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_remains(parent: Path, name: str) -> None:
    """Remove what saves of this name left that were killed.

    Nobody writes to it: its process is not here, and, as it may be on another machine, nothing in
    it has changed for :data:`STALE` seconds.
    """
    for part in parent.glob(f".{glob.escape(name)}.*.part"):
        number = part.name.removesuffix(".part").rpartition(".")[2]
        if part.name == f".{name}.{number}.part" and number.isdecimal() and not _runs(int(number)):
            with suppress(OSError):  # somebody else removes it, too
                times = [path.stat().st_mtime for path in (part, *part.iterdir())]
                if time.time() - max(times) > STALE:
                    shutil.rmtree(part, ignore_errors=True)


def _runs(number: int) -> bool:
    """Whether there is a process of this number; elsewhere than on POSIX, nobody can ask."""
    if os.name != "posix":
        return False
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # somebody else's
    return True


def load(folder: Path, given: Any = None) -> tuple[nn.Module, Description, Preprocessing | None]:
    """The model with its weights, its description and its preprocessing."""
    if not folder.is_dir():
        raise GlocalError(f"there is no folder {folder}: check its name.")
    if not is_model(folder):
        raise GlocalError(
            f"{folder} is no saved model, as it has no {ABOUT}: give a folder that client_model(…)"
            ".save or 'glocal export' has written."
        )
    file = folder / ABOUT
    facts = read_json(file)
    about = Description.from_json(facts, str(file))
    written = {name: value for name, value in facts.items() if name != ITSELF}
    if checksums.of_json(written) != facts.get(ITSELF):
        raise _another(file)
    digests = facts.get("files")
    if not isinstance(digests, Mapping) or not set(digests) <= {WEIGHTS, PREPROCESSING}:
        raise damaged(str(file), digests)
    for name in dict.fromkeys((WEIGHTS, *digests)):
        if not (folder / name).is_file():
            raise GlocalError(f"{folder} is not whole, as it has no {name}: save the model again.")
        if checksums.of_file(folder / name) != digests.get(name):
            raise _another(folder / name)
    preprocessing = None
    if PREPROCESSING in digests:
        preprocessing = Preprocessing.from_json((folder / PREPROCESSING).read_bytes())
    weights = folder / WEIGHTS
    tensors = load_tensors(weights, f"{weights} is damaged", "save the model again")
    return about.build(tensors, weights, given), about, preprocessing


def read_json(file: Path) -> dict[str, Any]:
    """What a JSON file holds, which must be an object."""
    try:
        read = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise GlocalError(
            f"{file} is damaged ({str(error)[:100]}): save the model again."
        ) from error
    if not isinstance(read, dict):
        raise damaged(str(file), read)
    return read


def _another(file: Path) -> GlocalError:
    return GlocalError(
        f"{file} is not the file that was saved: it is damaged or of another model; save the model "
        "again."
    )
