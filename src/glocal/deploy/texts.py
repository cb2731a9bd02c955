"""Texts that are written into a deployment's folder: the operator's page, units of systemd."""

from __future__ import annotations

from pathlib import Path

SERVER_README = """\
# A deployment of glocal

1. Send `kit.json` to every participant. Nothing in it is secret, but it must arrive unchanged:
   participants trust the server by the certificate in it, and approve the plan in it.
2. Each participant runs `glocal deploy join kit.json --data FILE --as NAME`, and sends you the
   line that this prints, with its public key. Check by telephone that it is theirs, and admit it:
   `glocal deploy admit {folder} NAME 'ecdsa-sha2-nistp384 ...'`
3. When all are admitted: `glocal deploy up {folder}`. It begins when all have joined, goes on from
   its checkpoint after an interruption, and ends with the table of who is better off.
   `glocal deploy status {folder}` says how far it is.
   Where the plan has no schema yet, it ends with that: send the new `kit.json` to everybody, who
   join again and approve it, and run it once more.
4. `glocal deploy remove {folder} NAME` takes out one that leaves, or whose key was lost.

Keep `private/` to yourself. The address {address} must be reachable by the participants' machines
and by nobody else. Let a user run it who has no data.

- `plan.json`: what everybody agreed on. `roster.json`: who was admitted, with which key.
- `history.jsonl`: a line for each round. `result.json`, `model.safetensors`: what it came to.
- `audit.jsonl`: every message that left this server, when, to whom, its length and its sha256.
- `systemd/`: units that start the server, and a participant's node, with the machine.
"""


def server_unit(glocal: Path, folder: Path, user: str) -> str:
    """The unit of the server, which runs as the user who made it."""
    command = f"{_word(glocal)} deploy up {_word(folder)}"
    return _unit("glocal: the server of a deployment", command, user, _path(folder.parent))


def _path(path: Path) -> str:
    """A path as a unit has it, where % begins a specifier."""
    return str(path).replace("%", "%%")


def _word(path: Path) -> str:
    """A path as one word of a unit's command, whatever blanks or signs it has."""
    escaped = _path(path).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"'


def node_unit() -> str:
    """The unit of a participant, with names to fill in; the plan is approved by hand before."""
    command = "/path/to/glocal deploy join kit.json --data FILE --as NAME"
    fill_in = (
        "# Fill in the user, the paths and the names, after you joined and approved by hand.\n"
    )
    unit = _unit("glocal: a participant's node", command, "USER", "/path/to/your/folder")
    return fill_in + unit


def supernode_unit() -> str:
    """The unit of a participant's SuperNode where it is another user's."""
    command = "/path/to/python -m glocal.deploy.apart /path/to/shared/folder"
    fill_in = (
        "# Only for a node that joined with --apart: fill in the SuperNode's user and the paths.\n"
    )
    return fill_in + _unit("glocal: a participant's SuperNode", command, "USER", "/")


def _unit(about: str, command: str, user: str, folder: str) -> str:
    return f"""\
[Unit]
Description={about}
After=network-online.target
Wants=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Restart=on-failure
RestartSec=15
# What a user can put right is not tried again.
RestartPreventExitStatus=2
KillMode=mixed
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
