"""Tokens of a text, and the vocabulary that numbers them.

A vocabulary of size ``V`` has ``<pad>`` (0) and ``<unk>`` (1), and the ``V − 2`` tokens that are
the most frequent in all clients' *training* text, ties in alphabetical order. Counts are sums,
which clients could send. Every other token is ``<unk>`` where it is read; where it should be
predicted, nothing is asked: that position has no label (:mod:`glocal.core.padding`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from glocal.core.padding import IGNORED, PAD

Ids = npt.NDArray[np.int64]

UNKNOWN = 1
SPECIAL = ("<pad>", "<unk>")

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[.,;:?!]")


def words(text: str) -> list[str]:
    """Words in lower case (``don't`` is one), numbers, and marks of punctuation."""
    return _WORD.findall(text.lower().replace("’", "'"))


def characters(text: str) -> list[str]:
    """Every character."""
    return list(text)


@dataclass(frozen=True)
class Vocabulary:
    """The known tokens: the id of one is its place."""

    tokens: tuple[str, ...]

    @classmethod
    def fitted(cls, texts: Iterable[Sequence[str]], size: int) -> Vocabulary:
        """The most frequent tokens of some texts, at most so many with the two special ones."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        by_count = sorted(counts, key=lambda token: (-counts[token], token))
        return cls((*SPECIAL, *by_count[: size - len(SPECIAL)]))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def codes(self) -> dict[str, int]:
        """The id of each token."""
        return {token: i for i, token in enumerate(self.tokens)}

    def ids(self, text: Sequence[str]) -> Ids:
        """What a model reads."""
        codes = self.codes
        return np.array([codes.get(token, UNKNOWN) for token in text], np.int64)


def labels(ids: Ids) -> Ids:
    """What a model is to predict: unknown tokens and padding are no labels."""
    return np.where((ids == UNKNOWN) | (ids == PAD), IGNORED, ids)
