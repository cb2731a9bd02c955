"""Text in pieces: training, validation and test in the order of time, and examples within each.

A client's text is cut into three parts first, ``train`` before ``val`` before ``test``, and
examples are taken from each part by itself: none has a token of two parts, as input or as label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glocal.core.padding import IGNORED, PAD
from glocal.data.split import Shares
from glocal.data.text.vocabulary import Ids, labels

Streams = list[Sequence[str]]
"""Tokens that follow each other, one for each passage that stands by itself."""


def parts(streams: Streams, shares: Shares) -> tuple[Streams, Streams, Streams]:
    """The first tokens of a client for training, the next for validation, the last for testing."""
    total = sum(map(len, streams))
    borders = [0, int(total * shares[0]), int(total * (shares[0] + shares[1])), total]
    cut: tuple[Streams, Streams, Streams] = ([], [], [])
    at = 0
    for stream in streams:
        for part, low, high in zip(cut, borders, borders[1:], strict=False):
            piece = stream[max(low - at, 0) : max(high - at, 0)]
            if len(piece):
                part.append(piece)
        at += len(stream)
    return cut


def next_token(ids: Ids, length: int, stride: int) -> tuple[Ids, Ids]:
    """Windows of so many tokens, and the token after each; a window begins every ``stride``.

    Windows whose next token is unknown are left out.
    """
    if len(ids) <= length:
        return np.zeros((0, length), np.int64), np.zeros(0, np.int64)
    spans = np.lib.stride_tricks.sliding_window_view(ids, length + 1)[::stride]
    y = labels(spans[:, -1])
    known = y != IGNORED
    return spans[known, :-1], y[known]


def every_token(ids: Ids, length: int) -> tuple[Ids, Ids]:
    """Sequences of so many tokens, and the next token at each position; the last one is padded.

    Every token but the first is a label once. Sequences without any label are left out.
    """
    count = -(-(len(ids) - 1) // length) if len(ids) > 1 else 0
    x = np.full((count, length), PAD, np.int64)
    y = np.full((count, length), IGNORED, np.int64)
    x.reshape(-1)[: max(len(ids) - 1, 0)] = ids[:-1]
    y.reshape(-1)[: max(len(ids) - 1, 0)] = labels(ids[1:])
    told = (y != IGNORED).any(1)
    return x[told], y[told]
