"""A page for each method and component, from the registry, the docstrings and what was measured."""

from __future__ import annotations

import posixpath
import re
import sys
import textwrap
from typing import Any

from docstring_text import plain
from measured import Excerpt, excerpts

from glocal.core.spec import written
from glocal.methods import hyperparameters, registry
from glocal.report.catalogue import description, first_line

FOLDER = "reference/methods"
CHOOSING = "how-to/choose-a-method.md"
KINDS = {
    "method": ("Methods", "Each is a whole method: the first name of a spec."),
    "weighting": ("Weightings", "How much each client counts; joined to any method with `+`."),
    "combine": ("Aggregators", "How the updates of a round become one."),
    "server_opt": ("Server optimisers", "How the server applies the aggregated update."),
    "privacy": ("Privacy of clients", "What the server publishes hides each client."),
    "example_privacy": ("Privacy of examples", "What a client sends hides each of its examples."),
    "compression": ("Compression", "Fewer bytes for an update."),
    "auxiliary": ("Auxiliary models", "What else a client's private layers are trained for."),
    "pretraining": ("Pre-training", "What a client does before its first round."),
}
MOST_TABLES = 8
OF_ONE_PAPER = ("glocal.methods", "glocal.nn.server_optim", "glocal.slots.privacy")
OF_ONE_PAPER += ("glocal.slots.example_privacy", "glocal.slots.adversary")
"""Files whose docstring has the paper and the equation; else the function's has them."""


def page(name: str) -> str:
    """The page of a method or component."""
    entry = registry.entries()[name]
    component = entry.slot != "method"
    kind = KINDS[entry.slot][0].lower()
    path = f"src/glocal/{registry.BUILT_IN[name][1].partition(':')[0].replace('.', '/')}.py"
    module = sys.modules[entry.make.__module__]
    spec = f"fedavg+{name}" if component else name
    parts = [
        f"---\ntitle: {name}\n---\n\n# {name}",
        f"**{first_line(entry.make)}**",
        f"One of the [{kind}](index.md#{_anchor(entry.slot)}). In a spec: `{spec}`"
        f"{' (any other method goes in the place of `fedavg`)' if component else ''}.",
        "## In plain words",
        plain(description(entry.make))
        or "Nothing more than the sentence above has been written yet.",
    ]
    if entry.make.__module__.startswith(OF_ONE_PAPER):
        parts += [
            "## Paper and equation",
            f"{plain(first_line(module))}\n\n{plain(description(module))}",
        ]
    parts += ["## Its result", _result(name, component)]
    parts += ["## Settings", _settings(name, component)]
    parts += ["## Its file", f"[`{path}`]({posixpath.relpath(path, f'docs/{FOLDER}')})"]
    return "\n\n".join(parts) + "\n"


def _anchor(slot: str) -> str:
    return KINDS[slot][0].lower().replace(" ", "-")


def _result(name: str, component: bool) -> str:
    found = excerpts(name, component)
    if not found:
        return "It is not in any of the [measurements](../../index.md#what-is-where) yet."
    shown = [_excerpt(each) for each in found[:MOST_TABLES]]
    if more := found[MOST_TABLES:]:
        links = ", ".join(dict.fromkeys(f"[{_where(e)}]({_link(e)})" for e in more))
        shown.append(f"More: {links}.")
    intro = (
        "What the tables of [measurements](../../index.md#what-is-where) say of it. Their pages "
        "have commands, seeds and what it was set against: choose by federations like yours."
    )
    return "\n\n".join([intro, *shown])


def _excerpt(excerpt: Excerpt) -> str:
    return "\n".join([f"From [{_where(excerpt)}]({_link(excerpt)}):", "", *excerpt.lines])


def _where(excerpt: Excerpt) -> str:
    if excerpt.page == "README.md":
        return "the README's comparison"
    same = excerpt.heading == excerpt.title
    return excerpt.title if same else f"{excerpt.title}: {excerpt.heading}"


def _link(excerpt: Excerpt) -> str:
    place = posixpath.relpath(excerpt.page, f"docs/{FOLDER}")
    in_docs = excerpt.anchor and excerpt.page.startswith("docs/")
    return f"{place}#{excerpt.anchor}" if in_docs else place


def _settings(name: str, component: bool) -> str:
    part = hyperparameters.parts(name)[-1 if component else 0]
    own = [each for each in part.settings if each.own]
    others = [each for each in part.settings if not each.own]
    text = _table(own) if own else "It has none of its own."
    if others:
        text += "\n\nIt also takes what every method takes:\n\n" + _table(others)
    return text


def _table(settings: list[hyperparameters.Setting]) -> str:
    rows = [
        f"| `{each.name}` | {_value(each)} | {each.kind} | {_cell(each.meaning)} |"
        for each in settings
    ]
    return "\n".join(
        ["| setting | default | type | what it is |", "| --- | --- | --- | --- |", *rows]
    )


def _value(setting: hyperparameters.Setting) -> str:
    if setting.needed:
        return "(needed)"
    value = hyperparameters.plain(setting.value)
    return "–" if setting.value is None else f"`{written(value)}`"


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def index() -> str:
    """The page that lists them all."""
    text = textwrap.dedent(
        """\
        ---
        title: Methods and components
        ---

        # Methods and components

        A spec begins with a method and goes on with components, joined by `+`, each with settings
        in brackets: `ditto(lam=0.1)+median`. A component by itself means fedavg with it. Each page
        has the method in plain words, its paper and equation, what was measured of it here, its
        settings and its file.
        `glocal methods NAME` prints the same in a terminal.
        """
    )
    for slot, (title, what) in KINDS.items():
        rows = "\n".join(
            f"| [{name}]({name}.md) | {_cell(first_line(entry.make))} |"
            for name, entry in registry.entries(slot).items()
        )
        text += f"\n## {title}\n\n{what}\n\n| name | what it is |\n| --- | --- |\n{rows}\n"
    return text


def pages() -> dict[str, str]:
    """All pages, by their place in the docs."""
    made = {f"{FOLDER}/{name}.md": page(name) for name in registry.BUILT_IN}
    return {f"{FOLDER}/index.md": index(), **made}


def on_config(config: Any) -> Any:
    """Put them into the navigation, by kind, in the place of ``FOLDER``."""
    listed: list[Any] = [f"{FOLDER}/index.md"]
    for slot, (title, _) in KINDS.items():
        listed.append({title: [f"{FOLDER}/{name}.md" for name in registry.known(slot)]})
    for section in config.nav:
        for inside in section.values():
            if isinstance(inside, list):
                for item in inside:
                    if isinstance(item, dict) and FOLDER in item.values():
                        item[next(iter(item))] = listed
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead from the names on the page that helps to choose to their pages."""
    if page.file.src_uri != CHOOSING:
        return markdown

    def link(found: re.Match[str]) -> str:
        name = found[1].split("(")[0].split("+")[-1]
        known = name in registry.BUILT_IN
        return f"[{found[0]}](../{FOLDER}/{name}.md)" if known else found[0]

    return re.sub(r"(?<!\[)`([a-z][\w+-]*(?:\([^`]*\))?)`", link, markdown)


def on_files(files: Any, config: Any) -> Any:
    """Add them to the docs."""
    from mkdocs.structure.files import File

    for uri, content in pages().items():
        files.append(File.generated(config, uri, content=content))
    return files
