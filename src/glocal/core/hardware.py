"""What the machine has: how many bytes of memory a run may still take.

On a CPU that is the least of what the system says is available, what the control groups of the
process (a container's, a scheduler's) leave, and what its limit on address space leaves. Where
nothing can be known the answer is none, and nothing is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")

UNLIMITED = 1 << 60
"""Version 1 of control groups says so much where there is no limit."""


def available(device: torch.device | str = "cpu", root: Path = Path("/")) -> int | None:
    """Bytes that can still be taken on a device; ``root`` is where the system's files are."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    proc, groups = (root / p.relative_to("/") for p in (PROC, GROUPS))
    known = [_system(proc), *_control_groups(proc, groups), _address_space(proc)]
    return min((max(0, bytes_) for bytes_ in known if bytes_ is not None), default=None)


def _system(proc: Path) -> int | None:
    """``MemAvailable``: free, or in use for what can be dropped."""
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _control_groups(proc: Path, groups: Path) -> list[int | None]:
    """What is left in each group the process is in, of both versions, up to the root."""
    found: list[int | None] = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used, stat = groups, "memory.max", "memory.current", ("file", "shmem")
        elif "memory" in controllers.split(","):
            top, limit, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            stat = ("total_cache", "total_shmem")
        else:
            continue
        # Inside a container the path may be the host's: what is not there is passed over.
        here = top / path.strip("/")
        for group in (here, *here.parents):
            found.append(_left(group, limit, used, stat))
            if group == top:
                break
    return found


def _left(group: Path, limit: str, used: str, files: tuple[str, str]) -> int | None:
    """The limit less what is used; files kept in memory can be dropped, but for shared memory."""
    most, now = _number(group / limit), _number(group / used)
    if most is None or now is None or most >= UNLIMITED:
        return None
    stat = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines())
    cached, shared = (int(stat.get(name, 0)) for name in files)
    return most - max(0, now - (cached - shared))


def _address_space(proc: Path) -> int | None:
    """What a limit on address space (``ulimit -v``) leaves."""
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
    """The file, or nothing where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
