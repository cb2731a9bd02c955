"""Text as a federation: parts in the order of time, vocabulary, padding; and rows in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from text_files import SPEECHES, toy

from glocal.core.errors import GlocalError
from glocal.core.padding import IGNORED, PAD
from glocal.data.datasets import texts
from glocal.data.federation import Federation, federation
from glocal.data.loading import load
from glocal.data.text.passages import Passages
from glocal.data.text.text_federation import TextData, text_federation
from glocal.data.text.vocabulary import UNKNOWN, Vocabulary, words
from glocal.data.text.windows import every_token, next_token, parts

SHARES = (0.5, 0.2, 0.3)
NUMBERS = [str(i) for i in range(40)]
"""A text in which every token says where it is."""


def counted(a: int, b: int) -> str:
    return " ".join(map(str, range(a, b)))


def numbered(by_word: bool, **given: Any) -> Federation:
    """Two clients who count, one of them in two passages, and one whose training text has all."""
    passages = ((counted(0, 100),), (counted(100, 160), counted(160, 220)))
    found = Passages(("a", "b", "c"), (*passages, (counted(0, 220), counted(0, 220))))
    settings = {"length": 6, "stride": 6, "vocabulary": 1000, **given}
    data = TextData(found, by_word, **settings)
    return text_federation(data, name="numbers", split=SHARES, seed=0)


def test_words_are_lower_case_with_marks_of_punctuation() -> None:
    assert words("Don’t stop; I'm at 42 Elm-street!") == [
        *("don't", "stop", ";", "i'm", "at", "42", "elm", "street", "!"),
    ]


def test_a_vocabulary_has_the_most_frequent_tokens_ties_by_alphabet() -> None:
    found = Vocabulary.fitted([["b", "a", "c"], ["c", "d"]], 5)
    assert found.tokens == ("<pad>", "<unk>", "c", "a", "b")
    assert found.ids(["a", "d", "c"]).tolist() == [3, UNKNOWN, 2]


def test_parts_follow_each_other_across_passages() -> None:
    train, val, test = parts([NUMBERS[:15], NUMBERS[15:40]], SHARES)
    assert [list(x) for x in train] == [NUMBERS[:15], NUMBERS[15:20]]
    assert [list(x) for x in val] == [NUMBERS[20:28]]
    assert [list(x) for x in test] == [NUMBERS[28:40]]


def test_windows_and_sequences_by_hand() -> None:
    ids = np.arange(2, 12)
    x, y = next_token(ids, 4, 3)
    assert x.tolist() == [[2, 3, 4, 5], [5, 6, 7, 8]]
    assert y.tolist() == [6, 9]
    x, y = every_token(ids, 4)
    assert x.tolist() == [[2, 3, 4, 5], [6, 7, 8, 9], [10, PAD, PAD, PAD]]
    assert y.tolist() == [[3, 4, 5, 6], [7, 8, 9, 10], [11, *[IGNORED] * 3]]
    unknown = np.array([2, UNKNOWN, 3, UNKNOWN, 4])
    assert next_token(unknown, 2, 1)[1].tolist() == [3, 4]
    assert every_token(unknown, 4)[1].tolist() == [[IGNORED, 3, IGNORED, 4]]
    for nothing in (next_token(ids[:4], 4, 1), every_token(ids[:1], 4), every_token(ids[:0], 4)):
        assert len(nothing[0]) == len(nothing[1]) == 0


def test_no_example_has_text_of_two_parts_and_tests_come_last() -> None:
    fed = numbered(by_word=True)
    assert fed.describe["chronological"]
    assert fed.fold(3) is fed
    tokens = list(fed.describe["labels"])
    for k in range(2):
        last = -1
        for split in (fed.train, fed.val, fed.test):
            rows = split.of(k)
            read = {tokens[i] for i in fed.x[rows].flatten().tolist() if i != PAD}
            said = {tokens[i] for i in fed.y[rows].flatten().tolist() if i != IGNORED}
            places = sorted(map(int, read | said))
            assert places[0] > last
            last = places[-1]
        assert last == (99, 219)[k]


def test_windows_of_characters_lie_within_a_part() -> None:
    fed = numbered(by_word=False, stride=1)
    # 289 characters are cut at 144 and 202; a part of n has n − 6 windows and their next ones.
    assert [int(s.counts()[0]) for s in (fed.train, fed.val, fed.test)] == [138, 52, 81]


def test_only_training_text_makes_the_vocabulary() -> None:
    found = Passages(("a", "b"), ((counted(0, 100),), (counted(100, 220),)))
    data = TextData(found, True, 6, 6, 1000)
    with pytest.raises(GlocalError, match="text enough"):  # nothing is known after training text
        text_federation(data, name="numbers", split=SHARES, seed=0)
    fed = numbered(by_word=True, vocabulary=12)
    # Of the first halves: 0 to 49, 100 to 159, and all; those said twice come first, by alphabet.
    assert list(fed.describe["labels"])[2:] == sorted(map(str, [*range(50), *range(100, 160)]))[:10]


def test_padding_is_token_0_and_has_no_label() -> None:
    found = Passages(("a",), (("x y z " * 10, "x y"),))
    fed = text_federation(TextData(found, True, 4, 4, 10), name="t", split=SHARES, seed=0)
    assert bool((fed.y[fed.x == PAD] == IGNORED).all())
    assert bool((fed.x == PAD).any())
    assert fed.label_counts.tolist() == (fed.y != IGNORED).sum(1).tolist()
    assert fed.vocabulary == fed.classes == 5


def test_clients_with_too_little_text_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Passages(("a", "b"), (("x y z " * 10,), ("x y z",)))
    fed = text_federation(TextData(found, True, 4, 4, 10), name="t", split=SHARES, seed=0)
    assert fed.names == ("a",)
    assert "'b'" in capsys.readouterr().err
    with pytest.raises(GlocalError, match="text enough"):
        text_federation(TextData(found, True, 4, 4, 10, 3), name="t", split=SHARES, seed=0)


def test_a_text_by_name_takes_the_first_tokens_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {
        name: content.replace(b"speech", b"speech " * 40).replace(b"Fellow", b"Fellow " * 40)
        for name, content in SPEECHES.items()
    }
    data = toy(texts.SOTU, many)
    monkeypatch.setattr(texts, "passages", lambda *_: data.read(many))
    fed = load("sotu(words=30,length=5,vocabulary=4)", split=(0.5, 0.2, 0.3))
    assert len(fed) == 2
    assert fed.classes == 4
    assert int(fed.label_counts.sum()) < 60
    for option in ({"partition": "iid"}, {"clients": 2}, {"chronological": False}):
        with pytest.raises(GlocalError, match=f"takes no {next(iter(option))}="):
            load("sotu", **option)
    assert torch.equal(load("sotu(length=5)", chronological=True).x, load("sotu(length=5)").x)


def rows_in_order(**given: Any) -> Federation:
    x = torch.arange(60.0)[:, None]
    return federation(x, [i % 2 for i in range(60)], [i % 3 for i in range(60)], **given)


def test_rows_of_any_data_can_be_split_in_the_order_of_time() -> None:
    fed = rows_in_order(chronological=True)
    for k in range(3):
        train, val, test = (s.of(k).tolist() for s in (fed.train, fed.val, fed.test))
        assert train + val + test == list(range(k, 60, 3))
        assert (len(train), len(val), len(test)) == (14, 2, 4)
    assert torch.equal(fed.fold(2).test.rows, fed.test.rows)
    assert not torch.equal(rows_in_order().test.rows, fed.test.rows)
    with pytest.raises(GlocalError, match="chronological= splits"):
        rows_in_order(chronological=True, group=list(range(60)))


def test_labels_of_positions_may_be_left_out_but_not_all_of_a_row() -> None:
    x = np.array([[1, 2], [3, 0], [2, 1]])
    y = np.array([[1, 2], [1, IGNORED], [0, 1]])
    fed = federation(np.repeat(x, 4, 0), np.repeat(y, 4, 0), [0] * 12)
    assert fed.classes == 3
    assert fed.label_counts.sum() == 20
    with pytest.raises(GlocalError, match="no label at any position"):
        federation(x, np.full_like(y, IGNORED), [0] * 3)
    with pytest.raises(GlocalError, match="labels out of range"):
        federation(x[:, 0], y[:, 1], [0] * 3)
