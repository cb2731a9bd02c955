"""Flower's SuperLink, with a guard: its Control API takes nothing but what ``up`` asks of it.

The SuperLink serves its Control API at the port that nodes connect to, and runs whatever program is
submitted there, as the user who started it. The guard lets this machine alone reach that API, and
of it three calls: a node's key is registered or taken back, and a run is started whose program is
the deployment's own bundle, byte by byte.

``python -m glocal.deploy.superlink BUNDLE ...``: the other words are Flower's.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTROL = "/v1/control"
START = f"{CONTROL}/start-run"
ALLOWED = (START, f"{CONTROL}/register-node", f"{CONTROL}/unregister-node")

MOST_BYTES = 1 << 24
"""Of a request to start a run; the bundle has four short files."""


def guarded(app: App, is_ours: Callable[[bytes], bool]) -> App:
    """The app (of the ASGI), without what nobody has to ask of a deployment's SuperLink.

    ``is_ours`` says of the body of a request to start a run whether that is the bundle's.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] == "lifespan" or not path.lower().startswith(CONTROL):
            await app(scope, receive, send)
            return
        if scope["type"] != "http" or path not in ALLOWED or not _is_here(scope):
            await _refuse(send)
            return
        body = await _body(receive)
        if body is None or (path == START and not is_ours(body)):
            await _refuse(send)
            return
        left = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> MutableMapping[str, Any]:
            return left.pop() if left else await receive()

        await app(scope, again, send)

    return answer


def _is_here(scope: Scope) -> bool:
    """Whether a request comes from this machine."""
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


async def _body(receive: Receive) -> bytes | None:
    """The whole body of a request; none, where it is too long or its sender went away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _refuse(send: Send) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": b"not served by this deployment"})


def starts(bundle: bytes) -> Callable[[bytes], bool]:
    """Whether a request starts this bundle and no other program."""
    from flwr.proto.control_pb2 import StartRunRequest

    def is_ours(body: bytes) -> bool:
        request = StartRunRequest()
        try:
            request.ParseFromString(body)
        except Exception:  # whatever protobuf raises for bytes that are none
            return False
        return request.fab.content == bundle and not request.app_spec

    return is_ours


def main() -> None:
    """Run the SuperLink; the first argument is the bundle's folder."""
    import uvicorn
    from flwr.cli.build import build_fab_from_disk
    from flwr.superlink.cli import flower_superlink

    is_ours, run = starts(build_fab_from_disk(Path(sys.argv[1]))), uvicorn.run

    def run_guarded(app: Any, **options: Any) -> None:
        # Whose request it is says the connection, and no header.
        run(guarded(app, is_ours), **{**options, "proxy_headers": False})

    uvicorn.run = run_guarded
    sys.argv = ["flower-superlink", *sys.argv[2:]]
    flower_superlink()


if __name__ == "__main__":
    main()
