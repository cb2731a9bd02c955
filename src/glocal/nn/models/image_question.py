"""Encoders for an image and a question, and a fusion head on top of both or of one of them.

It stands in for the model of visual question answering of Liang et al., *Think locally, act
globally: federated learning with local and global representations*, 2020: clients own an encoder
for each modality they have, and share the fusion head. As in Antol et al., *VQA: visual question
answering*, ICCV 2015, the two representations are multiplied entry by entry. The question's is made
of the mean of its words' embeddings, as in the deep averaging network of Iyyer, Manjunatha,
Boyd-Graber, Daumé, *Deep unordered composition rivals syntactic methods for text classification*,
ACL 2015.

An example is one row of numbers: the pixels, then the ids of the question's words, where 0 is
padding (``digits-questions``). A modality that a client lacks changes nothing in the product, so
the head has the same shape for everybody. With 12 answers the head has 732 parameters: 3.4 % of a
model with both encoders, 5.6 % with the image's alone, 8.2 % with the question's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.core.errors import GlocalError, unknown
from glocal.nn.models.shapes import Shape, sizes

MODALITIES = ("image", "question")


class ImageEncoder(nn.Module):
    """Pixels to a representation, through one hidden layer."""

    def __init__(self, pixels: int, hidden: int, width: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(pixels, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width]."""
        return torch.tanh(self.out(functional.relu(self.hidden(x))))


class QuestionEncoder(nn.Module):
    """The ids of words to a representation, through the mean of their embeddings."""

    def __init__(self, vocabulary: int, hidden: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width]; padding has no part in the mean."""
        words = x.round().long()
        real = (words > 0).unsqueeze(-1).to(x.dtype)
        mean = (self.embedding(words) * real).sum(1) / real.sum(1).clamp(min=1.0)
        return torch.tanh(self.out(mean))


class ImageQuestion(nn.Module):
    """``image`` and ``question``, or one of them, and ``fusion``: ``hidden`` and ``out``."""

    def __init__(
        self, encoders: dict[str, nn.Module], pixels: int, width: int, fused: int, classes: int
    ) -> None:
        super().__init__()
        self.pixels, self.has = pixels, tuple(encoders)
        for name, encoder in encoders.items():
            self.add_module(name, encoder)
        self.fusion = nn.ModuleDict(
            {"hidden": nn.Linear(width, fused), "out": nn.Linear(fused, classes)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        given = {"image": x[:, : self.pixels], "question": x[:, self.pixels :]}
        product, *more = (getattr(self, name)(given[name]) for name in self.has)
        for representation in more:
            product = product * representation
        logits: Tensor = self.fusion["out"](functional.relu(self.fusion["hidden"](product)))
        return logits


def image_question(
    input_shape: Shape,
    classes: int,
    /,
    *,
    only: str | None = None,
    pixels: int = 64,
    vocabulary: int = 32,
    hidden: int = 128,
    width: int = 32,
    fused: int = 16,
) -> nn.Module:
    """An image and a question; ``only=image`` or ``only=question`` for clients with one of them."""
    if only is not None and only not in MODALITIES:
        raise unknown("modality", only, MODALITIES)
    sizes(pixels=pixels, vocabulary=vocabulary, hidden=hidden, width=width, fused=fused)
    if len(input_shape) != 1 or input_shape[0] <= pixels:
        raise GlocalError(
            f"model 'image-question' reads rows of {pixels} pixels and then words, not inputs of "
            f"shape {input_shape}: use it with digits-questions, or say pixels=."
        )
    encoders: dict[str, nn.Module] = {}
    if only != "question":
        encoders["image"] = ImageEncoder(pixels, hidden, width)
    if only != "image":
        encoders["question"] = QuestionEncoder(vocabulary, hidden, width)
    return ImageQuestion(encoders, pixels, width, fused, classes)
