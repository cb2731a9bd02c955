"""What this machine has for glocal, what is missing, and how to get it.

Every check is by itself and says what it found, so that one broken package does not hide the rest:
nothing here needs torch, or anything else that may be broken. No network is tried.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CORE = {
    "torch": "torch",
    "numpy": "numpy",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "safetensors": "safetensors",
    "typer": "typer",
    "rich": "rich",
}
"""The packages that are always installed, and the module of each."""

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "data": (("PIL",), "pictures of image data that comes as files (cifar10)"),
    "excel": (("openpyxl",), "tables in .xlsx files"),
    "flower": (("flwr",), "deployments: 'glocal deploy'"),
    "mlflow": (("mlflow",), "'--track mlflow'"),
    "onnx": (("onnx", "onnxscript"), "'glocal export --format onnx'"),
    "parquet": (("pyarrow",), "tables in .parquet and .feather files"),
    "plot": (("matplotlib",), "pictures: '--picture', 'glocal plot'"),
    "privacy": (("dp_accounting",), "ε of 'dp' and 'dp-sgd': 'glocal privacy'"),
    "ray": (("ray",), "a Ray cluster: '--jobs ray', '--engine ray'"),
    "tensorboard": (("tensorboardX",), "'--track tensorboard'"),
}
"""What is installed on request: the modules of each extra, and what it is for."""

COMPILE = (
    "import torch\n"
    "import glocal\n"
    "from glocal.data.federation import federation\n"
    "fed = federation(torch.randn(60, 3), torch.arange(60) % 2, torch.arange(60) % 3)\n"
    "run = glocal.fit('fedavg', fed, model='logistic', rounds=1, engine='compiled', "
    "baseline='none')\n"
    "print(run.settings['engine'])\n"
)
"""A run whose steps are compiled, which says whether they were."""

LONGEST_COMPILE = 300
"""Seconds after which a compiler is said not to work."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    group: str
    name: str
    state: str
    """``ok``; ``missing``: nothing else needs it; ``broken``: glocal does not work without it."""
    found: str
    remedy: str = ""
    """What to do about it."""


def checks(*, compiles: bool = False) -> dict[str, Any]:
    """All that there is to say, and whether the core works; ``compiles`` tries the compiler."""
    every = [*_core(), *_machine(compiles), *_extras()]
    works = all(each.state != "broken" for each in every)
    return {"works": works, "checks": [asdict(each) for each in every]}


def _core() -> Iterator[Check]:
    """Python, glocal, and the packages without which nothing works."""
    from glocal.core.version import VERSION

    running, wanted = platform.python_version(), _required().get("python", "")
    fits = satisfies(running, wanted)
    remedy = "" if fits else f"a newer Python ({wanted})"
    yield Check("core", "Python", _state(fits), f"{running} in {sys.executable}", remedy)
    place = Path(__file__).parents[1]
    yield Check("core", "glocal", "ok", f"{VERSION} in {place}")
    for name, module in CORE.items():
        yield _package(name, module)


def _package(name: str, module: str) -> Check:
    """A package that must be there, imported for real."""
    wanted = _required().get(name, "")
    remedy = f"pip install '{name}{wanted}'"
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        absent = importlib.util.find_spec(module) is None
        found = "not installed" if absent else f"cannot be imported ({_line(error)})"
        return Check("core", name, "broken", found, remedy)
    except Exception as error:  # whatever a broken package raises
        return Check("core", name, "broken", f"cannot be imported ({_line(error)})", remedy)
    version = str(getattr(imported, "__version__", None) or _version(name) or "")
    if version and not satisfies(version, wanted):
        return Check("core", name, "broken", f"{version}, and {wanted} is needed", remedy)
    found = (version or "of an unknown version") + (f" (needed: {wanted})" if wanted else "")
    return Check("core", name, "ok", found)


def _machine(compiles: bool) -> Iterator[Check]:
    """Processors, memory, compiler, and folders that are written to."""
    yield _guarded("CPU", _processor)
    yield _guarded("memory", _memory)
    yield _guarded("GPU", _gpus)
    yield _guarded("compiler", lambda: _compiler(compiles))
    yield _guarded("cache", lambda: _folder("cache", _cache(), "GLOCAL_CACHE=DIR"))
    yield _guarded("this folder", lambda: _folder("this folder", Path.cwd(), "--out DIR"))


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    """What a check finds, or that it could not look: nothing that it needs may be there."""
    try:
        return look()
    except Exception as error:  # whatever is broken says so at its own line
        return Check("machine", name, "missing", f"cannot be told ({_line(error)})")


def _processor() -> Check:
    count = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    cores = f"{usable} core{'s' * (usable != 1)}" + (f" of {count}" if usable != count else "")
    found = f"{platform.machine()}, {cores}"
    try:
        import torch
    except Exception:  # of which the core says more
        return Check("machine", "CPU", "ok", found)
    sets, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return Check("machine", "CPU", "ok", f"{found}; torch computes with {sets}, threads: {threads}")


def _memory() -> Check:
    from glocal.core import hardware

    left = hardware.available()
    found = "cannot be told here" if left is None else f"{left / 2**30:.1f} GiB can still be taken"
    return Check("machine", "memory", "ok", found)


def _gpus() -> Check:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "this torch is built without CUDA" if built is None else "torch finds none"
        return Check("machine", "GPU", "missing", f"{why}: everything runs on the CPU")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Check("machine", "GPU", "ok", f"{', '.join(names)} (CUDA {torch.version.cuda})")


def _compiler(compiles: bool) -> Check:
    """The C++ compiler that torch would take; tried for real where that was asked for."""
    wanted = os.environ.get("CXX")
    program = shutil.which(wanted or "g++") or shutil.which("clang++")
    if program is None:
        missing = f"no {wanted or 'g++'}: long runs of small models train uncompiled, slower"
        return Check("machine", "compiler", "missing", missing, "installing g++")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = (said.stdout.splitlines() or [program])[0]
    if not compiles:
        return Check("machine", "compiler", "ok", f"{found} (not tried: --compile does)")
    with tempfile.TemporaryDirectory() as folder:
        cache = {"TORCHINDUCTOR_CACHE_DIR": folder}
        command, environment = [sys.executable, "-c", COMPILE], {**os.environ, **cache}
        limit = {"timeout": LONGEST_COMPILE, "cwd": folder}
        try:
            tried = subprocess.run(
                command, capture_output=True, text=True, env=environment, **limit
            )  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            return Check("machine", "compiler", "missing", f"{found}: it did not come to an end")
    if tried.returncode == 0 and "compiled" in tried.stdout:
        return Check("machine", "compiler", "ok", f"{found}; a step was compiled and trained")
    why = " ".join((tried.stderr or tried.stdout).split())[-300:]
    told = f"{found}, and a step could not be compiled, so that runs train uncompiled ({why})"
    return Check("machine", "compiler", "missing", told)


def _cache() -> Path:
    from glocal.data.datasets.cache import folder

    return folder()


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Whether a folder, or the first above it that exists, can be written to, and its room."""
    exists = next(each for each in (folder, *folder.parents) if each.exists())
    if not (exists.is_dir() and os.access(exists, os.W_OK | os.X_OK)):
        return Check("machine", name, "missing", f"{folder} cannot be written to", remedy)
    room = shutil.disk_usage(exists).free / 2**30
    return Check("machine", name, "ok", f"{folder}, {room:.1f} GiB free")


def _extras() -> Iterator[Check]:
    """What is installed on request; looked for, not imported, since some take seconds."""
    for extra, (modules, purpose) in EXTRAS.items():
        remedy = f"pip install 'glocal[{extra}]'"
        if any(importlib.util.find_spec(each) is None for each in modules):
            yield Check("extras", extra, "missing", purpose, remedy)
            continue
        wrong = [
            f"{name} {version} is installed, and {wanted} is needed"
            for name, wanted in _required(extra).items()
            if (version := _version(name)) and not satisfies(version, wanted)
        ]
        state = "missing" if wrong else "ok"
        yield Check("extras", extra, state, "; ".join([purpose, *wrong]), remedy if wrong else "")


def _required(extra: str = "") -> dict[str, str]:
    """The versions that glocal, or an extra of it, needs, as its metadata says; of source, none."""
    try:
        about = importlib.metadata.metadata("glocal")
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {} if extra else {"python": str(about["Requires-Python"] or "")}
    for text in about.get_all("Requires-Dist") or ():
        requirement, _, marker = text.partition(";")
        match = re.match(r"\s*([\w.-]+)\s*([^\[]*)", requirement)
        of_extra = re.search(r"extra == [\"']([\w-]+)", marker)
        if match and (of_extra[1] if of_extra else "") == extra:
            found[match[1].lower()] = match[2].strip()
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within bounds such as ``>=2.6,<3``; other bounds are taken to hold."""
    for bound in filter(None, wanted.split(",")):
        match = re.fullmatch(r"\s*(>=|<)\s*([\d.]+)\s*", bound)
        if match is None:
            continue
        least, have = _numbers(match[2]), _numbers(version)
        if (have < least) if match[1] == ">=" else (have >= least):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: those of ``2.13.0+cpu`` are 2, 13 and 0."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release[0].split(".")] if release else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _state(fits: bool) -> str:
    return "ok" if fits else "broken"


def _line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def shown(result: dict[str, Any]) -> list[str]:
    """The checks as lines: the state of each, what was found, and what to do."""
    wide = max(len(each["name"]) for each in result["checks"])
    lines: list[str] = []
    group = None
    for each in result["checks"]:
        if each["group"] != group:
            group = each["group"]
            lines += ["", group] if lines else [group]
        remedy = f"; get it by: {each['remedy']}" if each["remedy"] else ""
        lines.append(f"  {each['name']:<{wide}}  {each['state']:<7}  {each['found']}{remedy}")
    broken = [each["name"] for each in result["checks"] if each["state"] == "broken"]
    works = "glocal works here." if not broken else f"glocal does not work: {', '.join(broken)}."
    return [*lines, "", works]
