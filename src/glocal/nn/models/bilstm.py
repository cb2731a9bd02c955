"""A classifier of texts of unequal length: a bidirectional LSTM over words, and an MLP.

The shape of the mood predictor in Liang et al., *Think locally, act globally: federated learning
with local and global representations*, 2020 (appendix C.3): a Bi-LSTM with 128 hidden units over
word embeddings, and an MLP with two hidden layers of 512 on top. What the MLP reads is not said
there; here it is the state after the last word in each direction. The embedding is trained from
scratch, 100 numbers a word.

Token 0 is padding (:mod:`glocal.core.padding`): it enters neither direction, wherever it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.core.padding import PAD
from glocal.nn.layers import LSTM
from glocal.nn.models.mlp import MLP
from glocal.nn.models.shapes import MOST_WORDS, Shape, sequence, sizes, tokens


class BiLSTM(nn.Module):
    """``embedding``, ``lstm``, ``mlp``: logits for the class of a text."""

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        embedding: int,
        hidden: int,
        widths: tuple[int, ...],
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = LSTM(embedding, hidden, bidirectional=True)
        self.mlp = MLP([2 * hidden, *widths, classes], dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        x = tokens(x)
        _, (h, _) = self.lstm(self.embedding(x), real=x != PAD)
        logits: Tensor = self.mlp(torch.cat([h[0], h[1]], -1))
        return logits


def bilstm(
    input_shape: Shape,
    classes: int,
    /,
    *widths: int,
    vocabulary: int,
    embedding: int = 100,
    hidden: int = 128,
    dropout: float = 0.0,
) -> nn.Module:
    """The class of a text: a bidirectional LSTM, then hidden layers of these widths (512, 512).

    Args:
        input_shape: (time,), the longest text.
        classes: how many there are.
        widths: of the hidden layers of the MLP.
        vocabulary: how many token ids there are, with 0 for padding; by rule that of the data.
        embedding: numbers that stand for a word.
        hidden: units of the LSTM in each direction.
        dropout: share of each hidden layer that is zeroed in training.
    """
    sequence("bilstm", input_shape)
    widths = widths or (512, 512)
    sizes(embedding=embedding, hidden=hidden)
    for width in widths:
        sizes(width=width)
    sizes(2, MOST_WORDS, vocabulary=vocabulary)
    return BiLSTM(vocabulary, classes, embedding, hidden, widths, dropout)
