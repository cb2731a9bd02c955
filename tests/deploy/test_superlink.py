"""The guard of the SuperLink: whoever reaches it starts no program but the deployment's own."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from glocal.deploy.bundle import write_bundle
from glocal.deploy.superlink import START, guarded, starts

Message = MutableMapping[str, Any]


def asked(path: str, body: bytes = b"", client: str = "127.0.0.1", kind: str = "http") -> Any:
    """The status that a request has, and the body that came through to the app."""
    sent: list[Message] = []
    seen: list[bytes] = []
    pieces = [body[:3], body[3:]]
    requests = [
        {"type": "http.request", "body": piece, "more_body": k == 0}
        for k, piece in enumerate(pieces)
    ]

    async def app(scope: Message, receive: Any, send: Any) -> None:
        whole = b""
        while (message := await receive()).get("more_body"):
            whole += message["body"]
        seen.append(whole + message["body"])
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Message:
        return requests.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "client": (client, 50_000)}
    asyncio.run(guarded(app, lambda given: given == b"our own")(scope, receive, send))
    return sent[0]["status"], seen


def test_a_run_of_the_own_bundle_is_started_and_no_other() -> None:
    assert asked(START, b"our own") == (200, [b"our own"])
    assert asked(START, b"another") == (403, [])
    assert asked(START, b"x" * (1 << 24) + b"more") == (403, [])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-runs",
        "/v1/control/add-app",
        "/v1/control/start-automation",
        "/v1/CONTROL/x",
    ],
)
def test_what_is_not_needed_is_not_served(path: str) -> None:
    assert asked(path, b"our own") == (403, [])


def test_the_control_api_is_for_this_machine_and_nodes_come_from_anywhere() -> None:
    for path in (START, "/v1/control/register-node"):
        assert asked(path, b"our own", "192.0.2.7") == (403, [])
        assert asked(path, b"our own", "::1") == (200, [b"our own"])
        assert asked(path, b"our own", "") == (403, [])
    assert asked("/v1/fleet/activate-node", b"a node's", "192.0.2.7") == (200, [b"a node's"])
    assert asked(START, b"our own", kind="websocket") == (403, [])


@pytest.mark.deploy
@pytest.mark.filterwarnings("ignore")
def test_a_request_is_ours_by_its_bytes(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="make test-deploy installs it")
    from flwr.cli.build import build_fab_from_disk
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.fab_pb2 import Fab

    write_bundle(tmp_path / "a")
    write_bundle(tmp_path / "b")
    bundle = build_fab_from_disk(tmp_path / "a")
    assert build_fab_from_disk(tmp_path / "b") == bundle
    is_ours = starts(bundle)
    assert is_ours(StartRunRequest(fab=Fab(content=bundle)).SerializeToString())
    client = tmp_path / "b" / "glocal_bundle" / "client.py"
    client.write_text(client.read_text() + "import evil\n")
    other = Fab(content=build_fab_from_disk(tmp_path / "b"))
    assert not is_ours(StartRunRequest(fab=other).SerializeToString())
    hub = StartRunRequest(fab=Fab(content=bundle), app_spec="@somebody/app")
    assert not is_ours(hub.SerializeToString())
    assert not is_ours(b"no message")
    assert not is_ours(b"")
