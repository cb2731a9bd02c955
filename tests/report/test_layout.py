"""Tables of text: rows and columns that do not fit."""

from glocal.report import tables
from glocal.report.tables import Column, how_shown, lay_out, side_by_side


def test_a_row_that_does_not_fit_takes_two_lines(monkeypatch):
    columns = [Column("name", text=True), Column("what", text=True, line=1), Column("n", line=1)]
    rows = [["abcdefghijkl", "zyx", "10"], ["東京", ("w", "red"), "2"]]
    assert lay_out(columns, rows, None) == [
        "name          what   n",
        "abcdefghijkl  zyx   10",
        "東京          w      2",
    ]
    monkeypatch.setattr(tables, "painted", lambda text, colour: f"<{text}>")
    assert lay_out(columns, rows, 11) == [
        "name",
        "  what   n",
        "abcdefghijk",
        "l",
        "  zyx   10",
        "東京",
        "  <w>      2",
    ]


def test_the_widest_text_is_folded():
    columns = [Column("a", text=True), Column("b", text=True)]
    assert lay_out(columns, [["1" * 12, "2" * 16]], 26) == [
        "a             b",
        "111111111111  222222222222",
        "              2222",
    ]


def test_columns_that_do_not_fit_follow_below():
    lines = side_by_side("k", ["A", "B", "C"], {"x": ["1" * 20, "2", "3"]}, 50, text=False)
    assert [line.split() for line in lines] == [
        ["k", "A", "B"],
        ["x", "1" * 20, "2"],
        [],
        ["k", "C"],
        ["x", "3"],
    ]


def test_what_verdicts_are_by_changes_where_the_verdict_does():
    from glocal.evaluation import trials

    said = {n: how_shown(n) for n in (1, 2, 3, 5)}
    assert said[1] == said[2] == "by an exact paired test at 90 % of these trained models"
    assert (
        said[3]
        == said[5]
        == "by a 90 % interval that covers test examples and the luck of training"
    )
    assert trials.ENOUGH == 3
