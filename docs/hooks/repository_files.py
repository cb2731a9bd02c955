"""Links from the docs to files of the repository lead somewhere in the site, too.

A page may link to ``../../benchmarks/alone.txt``, which a repository browser shows. For the site
such a file becomes a page of its own, with its content as it is; and a file of ``benchmarks/`` or
``src/`` that a page names in ``code`` becomes a link to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
"""The target of a relative link, without its anchor."""
NAMED = re.compile(r"(?<!\[)`((?:benchmarks|src|tests)/[\w./-]+\.(?:py|txt|json))`")
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".md": "markdown"}


def prose(markdown: str, change: Callable[[str], str]) -> str:
    """The same page, with a function applied to all of it but fenced code."""
    ends = [0, *(at for fence in FENCE.finditer(markdown) for at in fence.span()), len(markdown)]
    parts = [markdown[a:b] for a, b in pairwise(ends)]
    return "".join(change(part) if i % 2 == 0 else part for i, part in enumerate(parts))


def in_repository(page: str) -> str:
    """Where a page of the site is in the repository."""
    return f"docs/{page}"


def in_site(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    return f"repository/{path}.md"


def with_links(markdown: str, page: str) -> str:
    """The page, whose links into the repository lead to pages of the site."""
    folder = posixpath.dirname(page)

    def to(path: str) -> str:
        return posixpath.relpath(in_site(path), folder or ".")

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository(page)), found[1]))
        outside = not path.startswith("docs/") and (ROOT / path).is_file()
        return to(path) if outside or path.endswith(".ipynb") else found[1]

    def named(found: re.Match[str]) -> str:
        exists = (ROOT / found[1]).is_file()
        return f"[`{found[1]}`]({to(found[1])})" if exists else found[0]

    return prose(markdown, lambda text: NAMED.sub(named, LINK.sub(link, text)))


def mentioned(markdown: str, page: str) -> set[str]:
    """The files of the repository outside of the docs that a page links to or names."""
    found: set[str] = set()

    def look(text: str) -> str:
        folder = posixpath.dirname(in_repository(page))
        found.update(posixpath.normpath(posixpath.join(folder, t)) for t in LINK.findall(text))
        found.update(NAMED.findall(text))
        return text

    prose(markdown, look)
    return {p for p in found if not p.startswith("docs/") and (ROOT / p).is_file()}


def shown(path: str) -> str:
    """A file of the repository as a page."""
    content = (ROOT / path).read_text(encoding="utf-8").rstrip()
    language = LANGUAGES.get(Path(path).suffix, "text")
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{path}`\n\n"
    return f"{head}````{language}\n{content}\n````\n"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of the repository that a page mentions."""
    pages = [file for file in files if file.src_uri.endswith(".md")]
    paths = {path for file in pages for path in mentioned(file.content_string, file.src_uri)}
    for path in sorted(paths):
        files.append(File.generated(config, in_site(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links into the repository to these pages."""
    if page.file.src_uri.startswith("repository/"):
        return markdown
    return with_links(markdown, page.file.src_uri)
