"""A federation of text: each client's next characters or words, in the order of time.

- Characters: Caldas et al., *LEAF: a benchmark for federated settings*, 2018 (Shakespeare): windows
  of 80 characters, and the next one.
- Words: Yu, Bagdasaryan, Shmatikov, *Salvaging federated learning by local adaptation*, 2020: the
  next word at every position, and the last tenth of each client's text for testing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from glocal.core.errors import GlocalError
from glocal.core.progress import note
from glocal.core.validation import integer
from glocal.data import small_clients
from glocal.data import validation as check
from glocal.data.client_data import Federation
from glocal.data.split import Split, from_counts
from glocal.data.text.passages import Passages
from glocal.data.text.vocabulary import Ids, Vocabulary, characters, words
from glocal.data.text.windows import Streams, every_token, next_token, parts

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class TextData:
    """A text, and how examples are made of it."""

    passages: Passages
    by_word: bool
    """Words, each passage by itself; or characters, all passages of a client as one text."""
    length: int
    """Tokens of an example."""
    stride: int
    """From the beginning of a window of characters to that of the next."""
    vocabulary: int
    """The largest size of the vocabulary."""
    most: int | None = None
    """The first tokens of each client that are used; none: all."""

    def __post_init__(self) -> None:
        integer(self.length, "length", 1, 10_000)
        integer(self.stride, "stride", 1)
        integer(self.vocabulary, "vocabulary", 3, check.MOST_CLASSES)
        if self.most is not None:
            integer(self.most, "the tokens of each client", 1)

    def streams(self, client: int) -> Streams:
        """A client's tokens."""
        texts = self.passages.texts[client]
        tokens = [words(text) for text in texts] if self.by_word else [characters("\n".join(texts))]
        left, found = self.most, list[Sequence[str]]()
        for stream in tokens:
            some = stream if left is None else list(islice(stream, left))
            left = None if left is None else left - len(some)
            found.append(some)
        return found

    def examples(self, streams: Streams, vocabulary: Vocabulary) -> tuple[Ids, Ids]:
        """Inputs and labels of one part of a client's text."""
        made = [
            every_token(vocabulary.ids(stream), self.length)
            if self.by_word
            else next_token(vocabulary.ids(stream), self.length, self.stride)
            for stream in streams or [()]
        ]
        return np.concatenate([x for x, _ in made]), np.concatenate([y for _, y in made])


def text_federation(
    data: TextData, *, name: str, split: Sequence[float], seed: int, min_examples: int = 0
) -> Federation:
    """The clients of a text; those with too little of it for all three parts are left out."""
    shares = check.shares(split)
    least = max(integer(min_examples, "min_examples", 0), 1)
    cut = [parts(data.streams(k), shares) for k in range(len(data.passages.clients))]
    vocabulary = Vocabulary.fitted(
        (stream for train, *_ in cut for stream in train), data.vocabulary
    )
    made = [[data.examples(part, vocabulary) for part in of_client] for of_client in cut]
    sizes = [[len(y) for _, y in of_client] for of_client in made]
    kept = [k for k, n in enumerate(sizes) if min(n) > 0 and sum(n) >= least]
    names = data.passages.clients
    left_out = {names[k]: sum(sizes[k]) for k in sorted(set(range(len(names))) - set(kept))}
    if not kept:
        raise GlocalError(
            f"no client of {name} has text enough for training, validation and test: take more of "
            "each, or shorter examples (length=)."
        )
    if left_out:
        note(small_clients.sentence(left_out, max(least, len(SPLITS)), ", or none in a split,"))
    x, y, splits = _joined([made[k] for k in kept])
    about: dict[str, Any] = {
        "data": name,
        "n": len(y),
        "classes": len(vocabulary),
        "clients": len(kept),
        "partition": "own ids",
        "leftovers": 0,
        "split": list(shares),
        "seed": seed,
        "transforms": [],
        "chronological": True,
        "vocabulary": len(vocabulary),
        "labels": vocabulary.codes,
    } | ({"left_out_clients": left_out} if left_out else {})
    return Federation(
        x=x,
        y=y,
        y_train=y,
        classes=len(vocabulary),
        names=tuple(names[k] for k in kept),
        label_shift_only=False,
        describe=about,
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
    )


def _joined(
    clients: Sequence[Sequence[tuple[Ids, Ids]]],
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Split]]:
    """All clients' examples, and which of them belong to whose training, validation and test."""
    every = [example for of_client in clients for example in of_client]
    x, y = (torch.from_numpy(np.concatenate([pair[i] for pair in every])) for i in (0, 1))
    counts = torch.tensor([len(labels) for _, labels in every]).view(-1, len(SPLITS))
    owner = torch.repeat_interleave(torch.arange(counts.numel()) % len(SPLITS), counts.flatten())
    rows = {part: (owner == i).nonzero().flatten() for i, part in enumerate(SPLITS)}
    return x, y, {p: from_counts(rows[p], counts[:, i]) for i, p in enumerate(SPLITS)}
