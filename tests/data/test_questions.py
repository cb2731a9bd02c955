"""Digits with questions: what an example holds, who has what, and that no image leaks."""

from __future__ import annotations

import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.data.datasets.questions import LONGEST, QUESTIONS, WORDS, tokens

ANSWERS = [*map(str, range(10)), "no", "yes"]


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    return glocal.load("digits-questions")


def test_answers_by_hand() -> None:
    assert QUESTIONS["which digit is after it"](9) == "0"
    assert [QUESTIONS["is it greater than four"](d) for d in (4, 5)] == ["no", "yes"]
    assert [QUESTIONS["is it even"](d) for d in (0, 3)] == ["yes", "no"]
    assert [QUESTIONS["is it odd"](d) for d in (0, 3)] == ["no", "yes"]
    assert [QUESTIONS["is it less than five"](d) for d in (4, 5)] == ["yes", "no"]
    assert tokens("which digit is it") == [1, 2, 3, 4, 0]
    assert len(WORDS) < 32  # the vocabulary of the model


def test_clients_have_what_their_names_say(fed: glocal.Federation) -> None:
    assert fed.x.shape == (4 * 1797, 64 + LONGEST)
    assert fed.classes == len(ANSWERS) == 12
    for k, name in enumerate(fed.names):
        rows = torch.cat([split.of(k) for split in (fed.train, fed.val, fed.test)])
        image, words = fed.x[rows, :64], fed.x[rows, 64:]
        assert bool(image.any()) == (not name.startswith("question"))
        assert bool(words.any()) == (not name.startswith("image"))
    assert [n.split()[0] for n in fed.names].count("both") == 6


def test_an_answer_is_that_to_its_question(fed: glocal.Federation) -> None:
    from sklearn.datasets import load_digits

    pixels = torch.as_tensor(load_digits().data / 16.0, dtype=torch.float32)
    digits = {tuple(p.tolist()): int(d) for p, d in zip(pixels, load_digits().target, strict=True)}
    texts = {tuple(tokens(text)): text for text in QUESTIONS}
    for row in fed.train.of(0).tolist():
        digit = digits[tuple(fed.x[row, :64].tolist())]
        text = texts[tuple(fed.x[row, 64:].int().tolist())]
        assert ANSWERS[int(fed.y[row])] == QUESTIONS[text](digit)


def test_no_image_is_trained_on_and_tested(fed: glocal.Federation) -> None:
    for k in (0, 1, 2):
        seen, tested = (
            {tuple(fed.x[row, :64].tolist()) for row in split.of(k).tolist()}
            for split in (fed.train, fed.test)
        )
        assert len(tested) > 20
        assert not seen & tested


def test_its_settings() -> None:
    few = glocal.load("digits-questions(both=2, image=0, question=1, questions=1)")
    assert list(few.names) == ["both 1", "both 2", "question 1"]
    assert len(few.x) == 1797
    spec = "digits-questions(both=1, image=0, question=0, questions=1, seed=1)"
    other = glocal.load(spec.replace("seed=1", "seed=2"))
    assert not torch.equal(glocal.load(spec).y, other.y)
    assert torch.equal(glocal.load(spec).x, glocal.load(spec).x)
    with pytest.raises(GlocalError, match="questions must be an integer from 1 to 6"):
        glocal.load("digits-questions(questions=7)")
