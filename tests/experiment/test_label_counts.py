"""A result has the counts of labels, unless it is private, or they are none or too many."""

from __future__ import annotations

from glocal.experiment import label_counts
from glocal.experiment.label_counts import about_data
from glocal.testing import ragged


def test_each_clients_training_labels_are_counted() -> None:
    fed = ragged()
    counts = about_data(fed, private=False)["label_counts"]
    for k in range(len(fed)):
        _, y = fed[k].train
        assert counts[k] == [int((y == c).sum()) for c in range(fed.classes)]
    assert sum(map(sum, counts)) == int(fed.train.counts().sum())
    assert all(isinstance(n, int) for row in counts for n in row)


def test_private_runs_and_large_federations_have_none(monkeypatch) -> None:
    fed = ragged()
    assert about_data(fed, private=True) == fed.describe
    monkeypatch.setattr(label_counts, "MOST_CLIENTS", len(fed) - 1)
    assert about_data(fed, private=False) == fed.describe
    monkeypatch.undo()
    monkeypatch.setattr(label_counts, "MOST_CLASSES", fed.classes - 1)
    assert about_data(fed, private=False) == fed.describe
