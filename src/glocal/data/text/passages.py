"""What each client wrote or said: passages in the order of time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from glocal.core.errors import GlocalError


@dataclass(frozen=True)
class Passages:
    """The clients of a text, and the passages of each, the oldest first."""

    clients: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Passages:
        """From passages with their clients' names, in order; clients are sorted by name."""
        by_client: dict[str, list[str]] = {}
        for client, text in pairs:
            by_client.setdefault(client, []).append(text)
        names = tuple(sorted(by_client))
        return cls(names, tuple(tuple(by_client[name]) for name in names))

    def chosen(self, places: Iterable[int]) -> Passages:
        """Some of the clients."""
        some = list(places)
        return Passages(tuple(self.clients[k] for k in some), tuple(self.texts[k] for k in some))

    def lengths(self) -> list[int]:
        """The characters of each client, with one for the end of every passage."""
        return [sum(len(text) + 1 for text in texts) for texts in self.texts]

    def to_bytes(self) -> bytes:
        """As JSON, the same for the same text."""
        pairs = list(zip(self.clients, self.texts, strict=True))
        return json.dumps(pairs, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Passages:
        """The inverse of :meth:`to_bytes`."""
        try:
            pairs = [(str(name), tuple(map(str, texts))) for name, texts in json.loads(content)]
        except (ValueError, TypeError):
            raise GlocalError("the text is damaged: fetch it again.") from None
        return cls(tuple(name for name, _ in pairs), tuple(texts for _, texts in pairs))
