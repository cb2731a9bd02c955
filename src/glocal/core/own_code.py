"""Code of the user's own, named on the command line or in a file as ``file.py:name``."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from glocal.core.errors import GlocalError, shown

_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(part) for part in ("stdlib", "purelib", "platlib")},
)
"""Where code is that no user wrote: this package, Python and what is installed beside it."""


def is_own(text: object) -> bool:
    """Whether this names something in a Python file."""
    path, colon, name = str(text).rpartition(":")
    one = isinstance(text, str) and "|" not in text  # else there are several
    return one and bool(colon) and path.endswith(".py") and bool(name)


def load_own(text: str, what: str) -> Any:
    """The class or function that ``file.py:name`` names; ``what`` is what it is meant to be."""
    path, _, name = text.rpartition(":")
    file = Path(path)
    if not os.path.isfile(file):  # Path.is_file raises where a name is too long
        raise GlocalError(f"there is no file {shown(path)} for the {what} {name}: check its name.")
    made = getattr(_module(file), name, None)
    if not callable(made):
        raise GlocalError(
            f"{path} has no class or function {name}: check the name after the colon."
        )
    return made


def _module(file: Path) -> ModuleType:
    """The file as a module: executed once for each content that it has had."""
    content = file.read_bytes()
    place = hashlib.sha256(str(file.resolve()).encode() + b"\0" + content).hexdigest()[:16]
    title = f"glocal_own_{file.stem}_{place}"
    if title in sys.modules:
        return sys.modules[title]
    spec = importlib.util.spec_from_file_location(title, file)
    if spec is None or spec.loader is None:
        raise GlocalError(f"{file} cannot be loaded as Python: check its name.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        del sys.modules[title]
        raise GlocalError(f"{file} cannot be loaded: {told(error)}.") from error
    return module


def told(error: BaseException) -> str:
    """What a user's own code raised, and in which of its lines: the last that ran."""
    said = f"{type(error).__name__}: {error}".removesuffix(".")
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_NOT_THE_USERS, "<"))
    ]
    if not own or isinstance(error, SyntaxError):  # which says by itself where it is
        return said
    return f"{said} (in line {own[-1].lineno} of {Path(own[-1].filename).name})"
