"""How many bytes of memory a run may still take on this machine.

On a CPU that is the least of what the system reports as available, what the control groups of the
process (of a container or a scheduler) leave, and what the limit on address space leaves. The
result is None where nothing is known.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

UNLIMITED = 1 << 60
"""Control groups of version 1 report at least this many bytes if there is no limit."""


def available(device: torch.device | str = "cpu", root: Path = Path("/")) -> int | None:
    """The bytes that can still be allocated on a device; ``root`` is for tests."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    proc, groups = root / "proc", root / "sys/fs/cgroup"
    known = [_system(proc), *_control_groups(proc, groups), _address_space(proc)]
    return min((max(0, bytes_) for bytes_ in known if bytes_ is not None), default=None)


def _system(proc: Path) -> int | None:
    """``MemAvailable``: memory that is free or used for caches."""
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _control_groups(proc: Path, groups: Path) -> list[int | None]:
    """The bytes left in each control group of the process, of both versions, up to the root."""
    left: list[int | None] = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used, stat = groups, "memory.max", "memory.current", ("file", "shmem")
        elif "memory" in controllers.split(","):
            top, limit, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            stat = ("total_cache", "total_shmem")
        else:
            continue
        # Inside a container the path may be the host's: groups that do not exist are skipped.
        deepest = top / path.strip("/")
        for group in (deepest, *deepest.parents):
            left.append(_left(group, limit, used, stat))
            if group == top:
                break
    return left


def _left(group: Path, limit: str, used: str, files: tuple[str, str]) -> int | None:
    """The limit less what is used; cached files can be dropped, but not shared memory."""
    most, taken = _number(group / limit), _number(group / used)
    if most is None or taken is None or most >= UNLIMITED:
        return None
    stat = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines())
    cached, shared = (int(stat.get(name, 0)) for name in files)
    return most - max(0, taken - (cached - shared))


def _address_space(proc: Path) -> int | None:
    """The bytes that a limit on address space (``ulimit -v``) leaves."""
    try:
        import resource
    except ImportError:  # pragma: no cover - there is none on this system
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(proc / "self" / "statm").split()
    if most == resource.RLIM_INFINITY or not pages:
        return None
    return most - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """The content of a file, or "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
