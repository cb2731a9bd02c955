"""Data sets by name: ``digits``, or with settings in brackets, ``mnist(examples=6000)``."""

from __future__ import annotations

from glocal.core.errors import GlocalError, unknown
from glocal.core.spec import parse_call
from glocal.core.validation import check_call, first_line
from glocal.data.datasets import images
from glocal.data.datasets.entry import Entry, Source
from glocal.data.datasets.image_dataset import ImageSet


def digits() -> Source:
    """Handwritten digits, 1,797 images of 8×8 in 10 classes; comes with scikit-learn."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Source(x=data.images[:, None] / 16.0, y=data.target, classes=10)


def _from_package(data: ImageSet) -> str:
    package = data.package
    return f"{package.client}: {package.name}, {package.size / 1e6:.0f} MB"


SOURCES: dict[str, Entry] = {
    "digits": Entry(digits, "as scikit-learn", "scikit-learn"),
    # As Keras' documentation states it; the packages state nothing about the data.
    "mnist": Entry(images.mnist, "CC BY-SA 3.0", _from_package(images.MNIST)),
    "fashion-mnist": Entry(images.fashion_mnist, "MIT", _from_package(images.FASHION_MNIST)),
    "cifar10": Entry(images.cifar10, "none stated", _from_package(images.CIFAR10)),
}


def list_datasets() -> dict[str, str]:
    """List every data set by name, with a line about it."""
    return {name: first_line(entry.make) for name, entry in SOURCES.items()}


def named(spec: str) -> Source:
    """Load the data set of a spec; it is downloaded if necessary."""
    name = spec.partition("(")[0].strip()
    if name not in SOURCES:
        message = str(unknown("data set", name, SOURCES)).removesuffix(".")
        raise GlocalError(f"{message}, or the path of a .csv or .npz file.")
    _, args, kwargs = parse_call(spec)
    make = SOURCES[name].make
    check_call(name, make, args, kwargs)
    return make(*args, **kwargs)
