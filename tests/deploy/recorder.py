"""What a SuperLink receives, kept: the body of every request, after TLS and before Flower."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

KEPT_IN = "GLOCAL_TEST_RECEIVED"
"""The variable that names the folder with a file for each request."""

# Python runs a module of this name when it starts, wherever that is.
MODULE = "sitecustomize.py"

CODE = f"""
import os, sys

if "glocal.deploy.superlink" in sys.orig_argv:
    import uvicorn

    folder, run = os.environ["{KEPT_IN}"], uvicorn.run
    numbers = iter(range(10**9))

    def recorded(app):
        async def answer(scope, receive, send):
            if scope["type"] != "http":
                return await app(scope, receive, send)
            path = os.path.join(folder, f"{{os.getpid()}}-{{next(numbers)}}")
            with open(path, "wb", buffering=0) as file:
                file.write(repr((scope["path"], scope["query_string"], scope["headers"])).encode())

                async def kept():
                    message = await receive()
                    file.write(message.get("body", b""))
                    return message

                await app(scope, kept, send)

        return answer

    uvicorn.run = lambda app, **options: run(recorded(app), **options)
"""


def record(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Have every SuperLink that is started from now on record; return the folder where it does."""
    received, code = folder / "received", folder / "recorder"
    for each in (received, code):
        each.mkdir()
    (code / MODULE).write_text(CODE)
    patch.setenv(KEPT_IN, str(received))
    before = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(code), *([before] if before else [])]))
    return received


def has_message(content: bytes, length: int, sha256: str) -> bool:
    """Whether a message of this length and sum is in what was received."""
    start = content.find(b'{"__metadata__"') - 8
    while start >= 0:
        if hashlib.sha256(content[start : start + length]).hexdigest() == sha256:
            return True
        start = content.find(b'{"__metadata__"', start + 9) - 8
    return False
