"""Which page answers which address. Nothing is looked up in a file system by what an address says.

=======================  ===========================================
``/``                    the list of what there is
``/report/PATH``         the report of a run or of a comparison
``/compare?run=PATH…``   several runs side by side
``/deployment/PATH``     how far a deployment is
``/live.js``             what keeps a page up to date, and ``/live.css``
=======================  ===========================================

A PATH is that of something which was found below the folder; every other one is unknown. A page has
the stamp of what it shows as its ``ETag``: it asks for itself again with that, and is answered 304
as long as nothing changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from glocal.core.errors import GlocalError
from glocal.report.live import deployments, frame, pages
from glocal.report.live.watched import Seen, Watched, digest
from glocal.runs.listing import Listed

KEPT = 8
"""Pages that are kept until what they show changes."""

MOST = 12
"""Runs that can be set side by side."""

Report = Callable[[Sequence[Path]], str]
"""The report of some folders, as a page that is kept up to date."""


@dataclass(frozen=True)
class Answer:
    """A status, a body, and the headers that only it has."""

    status: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def plain_text(status: HTTPStatus, sentence: str) -> Answer:
    """A sentence that no browser takes for anything else."""
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    return Answer(status, f"{sentence}\n".encode("utf-8", "replace"), kind)


class Site:
    """The pages of one folder."""

    def __init__(self, watched: Watched, report: Report) -> None:
        self._watched, self._report = watched, report
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._keeping = threading.Lock()

    def answer(self, target: str, known: str | None = None) -> Answer:
        """What is at an address; ``known`` is the stamp of the page that the browser has."""
        path, _, query = target.partition("?")
        if path in frame.FILES:
            kind = {"Content-Type": f"{frame.FILES[path]}; charset=utf-8"}
            return Answer(HTTPStatus.OK, frame.file(path), kind)
        page = self._page(unquote(path, errors="surrogateescape"), query, self._watched.look())
        if page is None:
            return plain_text(HTTPStatus.NOT_FOUND, "There is no such page, or not any more.")
        stamp, make = page
        tagged = f'"{stamp}"'
        if known == tagged:
            return Answer(HTTPStatus.NOT_MODIFIED, headers={"ETag": tagged})
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": frame.policy(),
            "ETag": tagged,
        }
        return Answer(HTTPStatus.OK, self._made(target, stamp, make), headers)

    def _page(self, path: str, query: str, seen: Seen) -> tuple[str, Callable[[], str]] | None:
        """The stamp of a page, and how it is made."""
        _, kind, rest = path.split("/", 2) if path.count("/") > 1 else ("", path[1:], "")
        if path == "/":
            return seen.stamp(), lambda: pages.overview(seen, self._watched.root)
        if kind == "report" and (rest in seen.groups or rest in seen.runs):
            return seen.stamp(rest), lambda: self._reported(seen, [rest])
        if kind == "deployment" and rest in seen.deployments:
            return seen.stamp(rest), lambda: deployments.page(rest, seen.deployments[rest])
        if path == "/compare":
            chosen = _chosen(query)
            return digest([chosen, seen.stamp(*chosen)]), lambda: self._compared(seen, chosen)
        return None

    def _reported(self, seen: Seen, paths: Sequence[str]) -> str:
        """The report, or the sentences that say why there is none."""
        problems = [said for path in paths for said in seen.refusals(path)]
        if problems:
            return pages.without_report(paths, problems)
        try:
            report = self._report([self._watched.root / path for path in paths])
            return frame.begun_with(report, pages.unfinished(_runs_of(seen, paths)))
        except GlocalError as error:  # nothing to show yet, or it broke since the last look
            return pages.without_report(paths, [str(error)])

    def _compared(self, seen: Seen, chosen: Sequence[str]) -> str:
        there = [path for path in chosen if path in seen.runs]
        if len(there) < len(chosen) or not 2 <= len(there) <= MOST:
            missing = [path for path in chosen if path not in seen.runs]
            return pages.not_comparable(there, missing, MOST)
        chosen_runs = {path: seen.runs[path] for path in there}
        return frame.begun_with(self._reported(seen, there), pages.side_by_side(chosen_runs))

    def _made(self, address: str, stamp: str, make: Callable[[], str]) -> bytes:
        """The page, made once for all who ask while nothing changes."""
        with self._keeping:
            kept = self._kept.setdefault(address, _Kept())
            self._kept.move_to_end(address)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        with kept.making:
            if kept.stamp != stamp:
                page = frame.kept_up_to_date(make(), stamp, home=address == "/")
                kept.content = page.encode("utf-8", "replace")
                kept.stamp = stamp
            return kept.content


@dataclass
class _Kept:
    """A page, and the stamp of what it shows."""

    making: threading.Lock = field(default_factory=threading.Lock)
    stamp: str | None = None
    content: bytes = b""


def _runs_of(seen: Seen, paths: Sequence[str]) -> dict[str, Listed]:
    """The runs of some runs and groups."""
    within = [each for path in paths for each in _parts(seen, path)]
    return {path: seen.runs[path] for path in within}


def _parts(seen: Seen, path: str) -> Sequence[str]:
    return seen.groups[path].runs if path in seen.groups else (path,)


def _chosen(query: str) -> list[str]:
    """The paths that an address names; too many are none."""
    try:
        fields = parse_qsl(query, errors="surrogateescape", max_num_fields=10 * MOST)
    except ValueError:
        return []
    paths = (unquote(text, errors="surrogateescape") for name, text in fields if name == "run")
    return list(dict.fromkeys(paths))
