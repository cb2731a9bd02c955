"""Handwritten digits and generated questions about them: a small visual question answering.

An example is an image of a digit, a question (``is it even``, ``which digit is it``) and its answer
(``yes``, ``7``). There are clients with images and questions, and clients that lack one of them and
answer by what they have. An example is one row of numbers::

    64 pixels from 0 to 1 | the ids of up to 5 words, 0 for padding

The pixels of a client without images are 0, and so are the words of one without questions. The
images are those of scikit-learn; each belongs to one client and has several questions, and they are
one group, so that no image is trained on with one question and tested with another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from glocal.core import rng
from glocal.core.validation import integer
from glocal.data.datasets import Source

YES_OR_NO = ("no", "yes")
QUESTIONS: dict[str, Callable[[int], str]] = {
    "which digit is it": str,
    "which digit is after it": lambda digit: str((digit + 1) % 10),
    "is it even": lambda digit: YES_OR_NO[digit % 2 == 0],
    "is it odd": lambda digit: YES_OR_NO[digit % 2 == 1],
    "is it greater than four": lambda digit: YES_OR_NO[digit > 4],
    "is it less than five": lambda digit: YES_OR_NO[digit < 5],
}
"""The questions, and what the answer is for a digit."""

WORDS = tuple(dict.fromkeys(word for text in QUESTIONS for word in text.split()))
"""The vocabulary; a word's id is its place, from 1."""

LONGEST = max(len(text.split()) for text in QUESTIONS)
"""Words of the longest question."""


def tokens(text: str) -> list[int]:
    """The ids of a question's words, padded."""
    ids = [1 + WORDS.index(word) for word in text.split()]
    return ids + [0] * (LONGEST - len(ids))


def digits_questions(
    both: int = 6, image: int = 3, question: int = 3, questions: int = 4, seed: int = 0
) -> Source:
    """Digits and generated questions: clients with both, with images, with questions alone."""
    from sklearn.datasets import load_digits

    for name, count in (("both", both), ("image", image), ("question", question)):
        integer(count, name, 0, 200)
    integer(both + image + question, "the number of clients", 1)
    integer(questions, "questions", 1, len(QUESTIONS))
    has = [*["both"] * both, *["image"] * image, *["question"] * question]
    names = [f"{kind} {has[:k].count(kind) + 1}" for k, kind in enumerate(has)]
    data, root = load_digits(), rng.fold(rng.key(seed), 0x905E)
    n = len(data.target)
    owner = rng.permutation(rng.fold(root, 0), n).numpy() % len(has)
    each_image = rng.fold(rng.fold(root, 1), torch.arange(n))
    chosen = rng.permutation(each_image, len(QUESTIONS))[:, :questions].tolist()
    texts, rows, answers = list(QUESTIONS), [], []
    for i, digit in enumerate(data.target.tolist()):
        pixels = data.data[i] / 16.0 * (has[owner[i]] != "question")
        for text in (texts[kind] for kind in chosen[i]):
            words = np.array(tokens(text)) * (has[owner[i]] != "image")
            rows.append(np.concatenate([pixels, words]))
            answers.append(QUESTIONS[text](digit))
    x = np.stack(rows).astype(np.float32)
    clients = [names[k] for k in owner.repeat(questions)]
    return Source(x=x, y=np.array(answers), clients=clients, group=np.arange(n).repeat(questions))
