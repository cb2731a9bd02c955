"""A digest of what a training depends on: equal for the same code with the same settings.

Methods are made of plain values, dataclasses and functions with what they close over; all of these
are followed, down to the functions' code. What a function looks up by a global name is not.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def digest(*things: Any) -> str:
    """A sha256 over all of them."""
    found = hashlib.sha256()
    for part in _parts(things, []):
        found.update(part.encode(errors="surrogatepass") + b"\0")
    return found.hexdigest()


def _parts(thing: Any, above: list[Any]) -> Iterator[str]:
    if any(thing is one for one in above):
        yield f"again {[thing is one for one in above].index(True)}"  # it holds itself
        return
    yield type(thing).__qualname__
    if thing is None or isinstance(thing, str | int | float | complex | bool | bytes | Enum):
        yield repr(thing)
    elif isinstance(thing, torch.dtype | torch.device | type):
        yield str(thing)
    elif isinstance(thing, Tensor):
        yield hashlib.sha256(thing.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    elif isinstance(thing, set | frozenset):
        yield from sorted(digest(one) for one in thing)
    else:
        above = [*above, thing]
        for name, part in _inside(thing):
            yield name
            yield from _parts(part, above)


def _inside(thing: Any) -> Iterator[tuple[str, Any]]:
    """What something is made of, by name."""
    if isinstance(thing, Mapping):
        yield from ((str(k), v) for k, v in thing.items())
    elif isinstance(thing, tuple | list):
        yield from ((str(i), v) for i, v in enumerate(thing))
    elif isinstance(thing, types.FunctionType):
        yield "code", thing.__code__
        yield "defaults", (thing.__defaults__, thing.__kwdefaults__)
        yield "closure", [_held(cell) for cell in thing.__closure__ or ()]
    elif isinstance(thing, types.CodeType):
        yield "code", (thing.co_qualname, thing.co_code, thing.co_names, thing.co_consts)
    elif isinstance(thing, types.MethodType):
        yield "method", (thing.__func__, thing.__self__)
    elif isinstance(thing, partial):
        yield "partial", (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, nn.Module):
        # Its parameters are in the digest of the model as it begins.
        kind = type(thing)
        yield "module", (kind.__qualname__, thing.extra_repr(), kind.forward)
        yield from thing.named_children()
    elif is_dataclass(thing):
        yield from ((f.name, getattr(thing, f.name)) for f in fields(thing))
        yield from _code(type(thing))
    elif hasattr(thing, "__dict__"):
        yield from vars(thing).items()
        yield from _code(type(thing))


def _code(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions of a class that is not ours: ours are the version's."""
    if not kind.__module__.startswith("glocal."):
        yield from ((k, v) for k, v in vars(kind).items() if isinstance(v, types.FunctionType))


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None
