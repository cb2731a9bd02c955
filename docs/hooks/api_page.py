"""The reference of the Python interface: ``glocal.__all__``, and what those functions return."""

from __future__ import annotations

from typing import Any

import glocal

URI = "reference/api.md"

MORE = {
    "What a function of yours is given, and what it returns": [
        "glocal.slots.client.Local",
        "glocal.slots.client.Phase",
        "glocal.slots.client.minibatch_training",
        "glocal.slots.weighting.Weighting",
        "glocal.slots.weighting.Setting",
        "glocal.slots.aggregation.Combine",
        "glocal.slots.compression.Compression",
        "glocal.nn.task.Task",
        "glocal.core.types.Uplink",
    ],
    "Tests of methods": ["glocal.testing.check_method"],
    "What sweeps and searches return": [
        "glocal.runs.swept.Sweep",
        "glocal.experiment.search.Tuned",
    ],
}
"""Beside the public face."""


def page() -> str:
    """The page, on which mkdocstrings puts the docstrings."""
    homes = glocal._HOME
    functions = [name for name in glocal.__all__ if name[0].islower()]
    classes = [name for name in glocal.__all__ if name[0].isupper()]
    text = (
        "---\ntitle: Python interface\n---\n\n# The Python interface\n\n"
        "`import glocal` has these names; their text is that of their docstrings. Settings that "
        "`fit`, `compare` and the rest take by name are those of `glocal run --help`.\n"
    )
    groups = {
        "Functions": [f"{homes[name]}.{name}" for name in functions],
        "Classes": [f"{homes[name]}.{name}" for name in classes],
        **MORE,
    }
    for title, names in groups.items():
        text += f"\n## {title}\n" + "".join(f"\n::: {name}\n" for name in names)
    return text


def on_files(files: Any, config: Any) -> Any:
    """Add it to the docs."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, URI, content=page()))
    return files
