"""Notebooks of the docs are executed when the site is built, and become pages with their outputs.

An error in a cell, or anything that it writes to the error stream, is a warning of the build, which
fails with ``--strict``. Notebooks are kept in the repository without outputs.
"""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

log = logging.getLogger("mkdocs.hooks.notebooks")
SECONDS = 120


def executed(path: Path) -> Any:
    """The notebook with the outputs of its cells, computed anew in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--IPKernelApp.log_level=40"],  # it need not warn of itself
        )
        try:
            client.execute()
        except CellExecutionError as error:
            log.warning("%s: %s", path.name, error)
    return notebook


def as_markdown(notebook: Any, name: str) -> str:
    """Cells and outputs as a page; the download link is of the notebook as it is kept."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts.extend(_output(each, name) for each in cell.outputs)
    note = (
        f'*This page is a notebook, executed when the site was built: <a href="{name}">{name}</a>.*'
    )
    return "\n\n".join([*parts, note]) + "\n"


def _output(output: Any, name: str) -> str:
    if output.output_type == "stream":
        if output.name == "stderr":
            log.warning("%s writes to the error stream: %s", name, output.text.strip())
        return _text(output.text)
    if output.output_type == "error":
        return _text("\n".join(output.traceback))
    data = output.data
    if "image/png" in data:
        image = data["image/png"].replace("\n", "")
        return f'<img alt="output of the cell above" src="data:image/png;base64,{image}">'
    if "text/html" in data:
        return f'<div class="output">{re.sub(chr(10) + "{2,}", chr(10), data["text/html"])}</div>'
    return _text(data.get("text/plain", ""))


def _text(text: str) -> str:
    plain = re.sub("\x1b\\[[0-9;]*m", "", text).rstrip()
    return f"````text\n{plain}\n````"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook; the notebook itself is copied beside it."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        path = Path(config.docs_dir) / file.src_uri
        page = as_markdown(executed(path), path.name)
        uri = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, uri, content=page))
    return files
