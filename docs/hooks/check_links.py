"""The built site is checked: its links and anchors exist, nothing is loaded from elsewhere.

What is wrong is a warning of the build, which fails with ``--strict``. External links are checked
for their form alone, without a network.
"""

from __future__ import annotations

import logging
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

log = logging.getLogger("mkdocs.hooks.check_links")

LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("use", "href")}
"""What a browser fetches by itself."""
FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest", "modulepreload"}


class Page(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to and loads."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        for name, value in given.items():
            if (tag, name) in LOADED and value:
                self.loads.append(value)
        if tag == "link" and FETCHED_LINKS & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


def wrong(site: Path) -> list[str]:
    """What is wrong with the links of a built site, a sentence each."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"  # its links are absolute
    }
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for load in page.loads:
            if urlsplit(load).scheme not in ("", "data"):
                found.append(f"{where} loads {load}, which is not part of the site")
        for link in dict.fromkeys([*page.links, *page.loads]):
            if problem := _problem(link, path, pages):
                found.append(f"{where} links to {link}: {problem}")
    return found


def _problem(link: str, path: Path, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https"):
        return "" if "." in (parts.hostname or "") and " " not in link else "it is malformed"
    if parts.scheme in ("mailto", "data"):
        return ""
    if parts.scheme or parts.netloc:
        return "it is malformed"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "there is no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].ids | {"__skip"}:
        return "there is no such anchor"
    return ""


def on_post_build(config: Any) -> None:
    """Warn of whatever is wrong."""
    for sentence in wrong(Path(config.site_dir).resolve()):
        log.warning(sentence)
