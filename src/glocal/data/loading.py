"""``load``: a federation from a data set's name or a file's path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.core.validation import integer
from glocal.data.datasets import Source, files
from glocal.data.datasets.registry import named
from glocal.data.federation import Federation, federation
from glocal.data.partition import column_of
from glocal.data.transforms import Transform

DEFAULT_PARTITION = "dirichlet(0.3)"


def load(
    name: str | Path,
    *,
    clients: int = 20,
    partition: str | None = None,
    split: Sequence[float] = (0.7, 0.1, 0.2),
    seed: int = 0,
    transforms: Sequence[str | Transform] = (),
    label: str = "label",
    client: str = "client",
    group: str | None = None,
    pooled: bool | None = None,
) -> Federation:
    """A federation from a data set's name, or from a ``.csv`` or ``.npz`` file.

    Args:
        name: of a data set that ``glocal data`` lists, as in ``mnist(examples=6000)``, or a
            path. A ``.csv`` has a header; an ``.npz`` has the arrays ``x`` and ``y``, and
            ``client`` if the data has clients of its own, and ``group`` if its rows have groups.
        clients: the number of clients of a partition.
        partition: how rows are assigned to clients. By default these are the data's own clients, in
            any number, if it has some, and else ``dirichlet(0.3)``.
        split: the shares of training, validation and test, of every client.
        seed: of the partition, the splits and the transforms.
        transforms: of chosen clients, such as ``"rotate(90, clients=5)"``.
        label: the label column of a ``.csv``.
        client: the client column of a ``.csv``; it need not be there, and is never a feature.
        group: the column of a ``.csv`` that says which rows belong together, such as those of one
            patient (see :func:`glocal.federation`).
        pooled: True for real clients that differ in label shares only, False never to pool (see
            :func:`glocal.federation`).
    """
    integer(clients, "the number of clients", 1)  # even where the data has clients of its own
    source = _source(name, label, client, group)
    x, ids = source.x, source.clients
    if partition is not None or ids is None:
        partition = DEFAULT_PARTITION if partition is None else partition
        if isinstance(ids, str) and column_of(partition) != ids:
            x = {c: v for c, v in x.items() if c != ids}
        ids = clients
    return federation(
        x,
        source.y,
        ids,
        split=split,
        seed=seed,
        partition=partition,
        classes=source.classes,
        name=str(name),
        transforms=transforms,
        central=source.central,
        group=source.group,
        pooled=pooled,
    )


def _source(name: str | Path, label: str, client: str, group: str | None) -> Source:
    if not isinstance(name, str | Path):
        raise GlocalError(
            f"{shown(name)} is no data set: give the name of one, such as 'digits', or the path of "
            "a .csv or .npz file."
        )
    path = Path(name)
    if path.suffix.lower() in (".csv", ".npz"):
        return files.read(path, label, client, group)
    for what, column, default in (
        ("label", label, "label"),
        ("client", client, "client"),
        ("group", group, None),
    ):
        if column != default:
            also = "; the number of clients is clients=" if what == "client" else ""
            raise GlocalError(
                f"{what}= names a column of a .csv file, and {shown(str(name))} is none: leave it "
                f"out{also}."
            )
    return named(str(name))
