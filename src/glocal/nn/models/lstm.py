"""Language models: the next character of a text, and the next word at every position.

char-lstm: Caldas et al., *LEAF: a benchmark for federated settings*, 2018 (Shakespeare): embedding
of 8, two LSTM layers of 256, a dense layer on the last hidden state; 819,920 parameters with 80
characters. word-lstm: Yu, Bagdasaryan, Shmatikov, *Salvaging federated learning by local
adaptation*, 2020: two LSTM layers of 200 whose output layer is the embedding (Press, Wolf, *Using
the output embedding to improve language models*, EACL 2017); 10,693,200 with 50,000 words.

``classes`` is the size of the vocabulary; inputs are token ids [batch, time]. What char-lstm reads
is a full window, without padding; what word-lstm says at a position depends on none behind it, and
so not on padding there.
"""

from __future__ import annotations

from torch import Tensor, nn

from glocal.nn.layers import LSTM, Dropout
from glocal.nn.models.shapes import Shape, sequence, sizes, tokens


class CharLSTM(nn.Module):
    """``embedding``, ``lstm``, ``head``: logits for the character after the last."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = LSTM(embedding, hidden, layers)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, vocabulary]."""
        output, _ = self.lstm(self.embedding(tokens(x)))
        logits: Tensor = self.head(output[:, -1])
        return logits


class WordLSTM(nn.Module):
    """``embedding``, ``lstm``, ``head`` with the embedding's weight: logits at every position."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.before = Dropout(dropout)
        self.lstm = LSTM(hidden, hidden, layers, dropout=dropout)
        self.after = Dropout(dropout)
        self.head = nn.Linear(hidden, vocabulary)
        # A unit normal, the default of an embedding, is far too wide for an output layer.
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, time, vocabulary]."""
        output, _ = self.lstm(self.before(self.embedding(tokens(x))))
        logits: Tensor = self.head(self.after(output))
        return logits


def char_lstm(
    input_shape: Shape, classes: int, /, *, embedding: int = 8, hidden: int = 256, layers: int = 2
) -> nn.Module:
    """The next character from the last hidden state."""
    sequence("char-lstm", input_shape)
    sizes(embedding=embedding, hidden=hidden, layers=layers)
    return CharLSTM(classes, embedding, hidden, layers)


def word_lstm(
    input_shape: Shape, classes: int, /, *, hidden: int = 200, layers: int = 2, dropout: float = 0.0
) -> nn.Module:
    """The next word at every position, with tied embeddings of size ``hidden``."""
    sequence("word-lstm", input_shape)
    sizes(hidden=hidden, layers=layers)
    return WordLSTM(classes, hidden, layers, dropout)
