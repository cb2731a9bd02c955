"""The words of the field, in README, docs and source: terms that a search finds."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ("benchmarks", "examples", "tools")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
    *(file for folder in SCRIPTS for file in sorted((ROOT / folder).rglob("*.py"))),
]

INSTEAD = {
    r"made examples?": "synthetic data",
    r"yardsticks?": "local baseline",
    r"dealt": "partitioned",
    r"deals? (rows|examples|digits|data|it)": "partitions",
    r"own coin": "Poisson sampling",
    r"whole numbers?": "integer",
    r"combiners?": "aggregator",
    r"fillers?": "component",
    r"taken up( again)?": "resumed",
    r"put down": "checkpoint",
    r"at the door": "validated",
    r"hostile": "malicious",
    r"numbers sent": "parameters communicated",
    r"travel(s|led|ling)?": "shared, communicated",
    r"at home": "private",
    r"judg(e|es|ed|ing)": "evaluate",
    r"examin(e|es|ed|ing)": "evaluate",
}
"""What is not written, as a pattern, and what is written instead."""


def dialect(text: str) -> list[str]:
    """The words of a text that are not the field's, each with what to write instead."""
    # A line break within a phrase, with the indentation or comment sign after it, is a blank.
    flat = re.sub(r"\s*\n[ \t]*(#[ \t]*)?", " ", text)
    return [
        f"{found[0]!r}: write {instead}"
        for pattern, instead in INSTEAD.items()
        for found in re.finditer(rf"\b({pattern})\b", flat, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_words_of_the_field(page: Path) -> None:
    assert not dialect(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "each client against its Yardstick",
        "made\n    # examples",
        "the rows are dealt",
        "n must be a whole\nnumber",
        "robust combiners",
        "hostile clients",
        "what travels",
    ],
)
def test_the_check_bites(text: str) -> None:
    assert dialect(text)
    assert not dialect("partitioned data, evaluated by an aggregator's integer; unmade examples")
