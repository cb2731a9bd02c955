"""The settings that papers published, by name: ``lg-fedavg@mnist``, ``superfed-mm@cifar10``.

After ``@`` stands the data of the paper that proposed the method; where a paper used a method of
others, the paper stands before it, as in ``fedavg@superfed-mnist``. ``spec`` is the method with its
hyper-parameters; ``settings`` is what else the paper fixes, by the names of the options.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A method's published settings."""

    spec: str
    source: str
    """The paper, and where in it."""
    settings: dict[str, Any] = field(default_factory=dict)
    remark: str = ""
    """Where this departs from the paper, or what it leaves open."""


LG = "Liang et al., Think locally, act globally, 2020"
SALVAGING = "Yu, Bagdasaryan, Shmatikov, Salvaging federated learning by local adaptation, 2020"
SUPERFED = "Hahn, Jeong, Lee, Connecting low-loss subspace, KDD 2022; dissertation, table 2.2"
AAGGFF = "Hahn, dissertation, 2024, chapter III (AAggFF), section 6.1"
FEDEVG = "Hahn, dissertation, 2024, chapter IV (FedEvg), section 4.1"

DISJOINT_TEST = {"test": "official"}

_LG_MNIST = "epochs=1, batch_size=10, lr=0.05, momentum=0.5"
_LG_CIFAR = "epochs=1, batch_size=50, lr=0.1, momentum=0.5, schedule=inverse(0.005)"
_LG_SPLIT = {"clients": 100, "partition": "classes(2)", "fraction": 0.1, **DISJOINT_TEST}
_LG_OF_MNIST = {
    "data": "mnist",
    "model": "mlp(512, 256, 256, 128)",
    "transforms": ("normalise",),
    **_LG_SPLIT,
}
_LG_OF_CIFAR = {
    "data": "cifar10",
    "model": "lenet",
    "augment": "crop(4)+flip",
    "transforms": ("normalise",),
    **_LG_SPLIT,
}
_LG_LAYERS = "the text says that two layers are shared, and its count of parameters takes three"
_LG_DECAY = "the form of the learning rate's decay is not given; the images are not enlarged to 224"

_SALVAGING = "epochs=2, batch_size=32, lr=0.1, momentum=0.9, weight_decay=0.0005"
_SALVAGING_WORDS = "epochs=2, batch_size=20, lr=40, grad_clip=0.25"
_SALVAGING_OF_CIFAR = {
    "data": "cifar10",
    "clients": 100,
    "partition": "dirichlet(0.9)",
    "sampled": 10,
    "rounds": 1000,
    "model": "resnet18",
    **DISJOINT_TEST,
}
_SALVAGING_OF_WORDS = {"model": "word-lstm(hidden=200, layers=2)", "sampled": 100, "rounds": 5000}
_NOISE = "clip 15 and sigma 0.01 are a noise multiplier of 0.007, which protects nobody"
_WORDS = "the paper's data (Reddit, November 2017) is not fixed here: name yours with --data"


def _of_salvaging() -> dict[str, Preset]:
    found = {}
    for data, training, settings, remark, where in (
        ("cifar10", _SALVAGING, _SALVAGING_OF_CIFAR, "", "section 4.2"),
        ("words", _SALVAGING_WORDS, _SALVAGING_OF_WORDS, _WORDS, "section 4.1"),
    ):
        for name, more, said in (
            ("fedavg", "", ""),
            ("dp", "+dp(clip=15, noise=0.007)", _NOISE),
            ("median", "+median", ""),
        ):
            about = "; ".join(each for each in (remark, said) if each)
            found[f"{name}@salvaging-{data}"] = Preset(
                f"fedavg({training}){more}", f"{SALVAGING}, {where}", settings, about
            )
    return found


_SUPERFED = "momentum=0.9, weight_decay=0.0001, schedule=step(0.99, 1)"
_FOR_SUPERFED: dict[str, tuple[str, dict[str, Any], str]] = {
    "mnist": (
        "epochs=10, batch_size=10, lr=0.01",
        {"data": "mnist", "clients": 100, "partition": "shards(2)", "model": "mlp(200, 200)"},
        "the paper also has 50 and 500 clients",
    ),
    "cifar10": (
        "epochs=10, batch_size=10, lr=0.01",
        {"data": "cifar10", "clients": 100, "partition": "shards(2)", "model": "cnn"},
        "the paper also has 50 and 500 clients",
    ),
    "cifar100": (
        "epochs=5, batch_size=20, lr=0.01",
        {"clients": 100, "model": "resnet10"},
        "the paper says ResNet; name your folder with --data, and a dirichlet partition",
    ),
    "tinyimagenet": (
        "epochs=5, batch_size=20, lr=0.02",
        {"clients": 200, "model": "mobilenet"},
        "name your folder with --data, and a dirichlet partition",
    ),
    "femnist": (
        "epochs=10, batch_size=10, lr=0.01",
        {"model": "vgg"},
        "730 clients of LEAF's: name your folder with --data",
    ),
    "shakespeare": (
        "epochs=5, batch_size=50, lr=0.8",
        {"data": "shakespeare", "model": "char-lstm"},
        "the paper has LEAF's 660 clients",
    ),
}
_OF_SUPERFED = {
    "superfed-mm": "mu=0.01, nu=1",
    "superfed-lm": "mu=0.01, nu=2",
}
_BESIDE_SUPERFED = {
    "fedavg": "",
    "fedprox": "mu=0.01",
    "scaffold": "",
    "lg-fedavg": "warmup=0",
    "fedper": "",
    "fedrep": "",
    "apfl": "alpha=0.25",
    "pfedme": "",
    "ditto": "",
}
_DECAY = "schedule=step(0.99, 1)"
_SCAFFOLD = "without the paper's momentum and weight decay, as its correction is for plain SGD"


def _of_superfed() -> dict[str, Preset]:
    found = {}
    for data, (training, settings, remark) in _FOR_SUPERFED.items():
        fixed = {**settings, "sampled": 5, "rounds": 500}
        for method, own in {**_OF_SUPERFED, **_BESIDE_SUPERFED}.items():
            name = data if method in _OF_SUPERFED else f"superfed-{data}"
            others, about = _SUPERFED, remark
            if method == "scaffold":
                others, about = _DECAY, f"{remark}; {_SCAFFOLD}"
            inside = ", ".join(each for each in (own, training, others) if each)
            found[f"{method}@{name}"] = Preset(f"{method}({inside})", SUPERFED, fixed, about)
    return found


_FOR_AAGGFF = {
    "berka": ("lr=1, weight_decay=0.001, schedule=step(0.99, 10)", 100, None),
    "mqp": ("lr=0.00316, weight_decay=0.01, schedule=step(0.99, 15)", 100, None),
    "isic": ("lr=0.0001, weight_decay=0.01, schedule=step(0.95, 5)", 50, None),
    "celeba": ("lr=0.1, weight_decay=0.0001, schedule=step(0.96, 300)", 3000, 5),
    "reddit": ("lr=7.5, weight_decay=0.000001, schedule=step(0.95, 20)", 300, 5),
    "speechcommands": ("lr=0.1, schedule=step(0.999, 10)", 500, 5),
}
"""How clients train, the rounds, and how many are sampled in one (none: all)."""

_BESIDE_AAGGFF = {
    "fedavg": "",
    "afl": "its step is chosen from 0.01, 0.1 and 1",
    "q-fedavg": "q is chosen from 0.1, 1 and 5",
    "term": "lam is chosen from 0.1, 1 and 10",
    "fedmgda": "epsilon is chosen from 0.1, 0.5 and 1",
    "propfair": "its baseline is chosen from 2, 3 and 5",
}


def _of_aaggff() -> dict[str, Preset]:
    found = {}
    for data, (training, rounds, sampled) in _FOR_AAGGFF.items():
        client = f"fedavg(epochs=1, batch_size=20, {training})"
        settings = {"rounds": rounds} | ({} if sampled is None else {"sampled": sampled})
        needed = "natural clients: name your data and its model"
        own = "aaggff-s" if sampled is None else "aaggff-d"
        found[f"{own}@{data}"] = Preset(f"{client}+{own}", AAGGFF, settings, needed)
        for method, choice in _BESIDE_AAGGFF.items():
            if method == "afl" and sampled is not None:
                continue  # it needs everybody in every round
            spec = client if method == "fedavg" else f"{client}+{method}"
            about = f"{needed}; {choice}" if choice else needed
            found[f"{method}@aaggff-{data}"] = Preset(spec, AAGGFF, settings, about)
    return found


_FEDEVG = (
    "fedevg(spc=10, beta=10, beta_last=0.01, delta=0.01, gamma=1, sigma=0.01, chain=1, lam=0.1, "
    "optimiser=adam, lr=0.001)"
)
_FEDEVG_SETTINGS = {
    "clients": 10,
    "partition": "dirichlet-clients(1)",
    "fraction": 1.0,
    "rounds": 500,
    "model": "resnet10",
}
_BESIDE_FEDEVG = {
    "fedcgan": "fedcgan(steps=none, lr=0.0005)",
    "fedcvae": "fedcvae(steps=none, lr=0.001)",
}
_FEDEVG_REMARK = "the paper also has 100 clients (fraction 0.1) and alpha 0.01"


def _of_fedevg() -> dict[str, Preset]:
    found = {}
    for data, transforms in (("mnist", ("resize(32)",)), ("cifar10", ())):
        settings = {"data": data, **_FEDEVG_SETTINGS}
        settings |= {"transforms": transforms} if transforms else {}
        found[f"fedevg@{data}"] = Preset(_FEDEVG, FEDEVG, settings, _FEDEVG_REMARK)
        for method, spec in _BESIDE_FEDEVG.items():
            remark = f"{_FEDEVG_REMARK}; its networks' settings are not given"
            found[f"{method}@fedevg-{data}"] = Preset(spec, FEDEVG, settings, remark)
    return found


PRESETS: dict[str, Preset] = {
    "lg-fedavg@mnist": Preset(
        f"lg-fedavg(warmup=400, shared=last(3), {_LG_MNIST})+uniform",
        f"{LG}, table 5",
        {"rounds": 500, **_LG_OF_MNIST},
        _LG_LAYERS,
    ),
    "fedavg@lg-mnist": Preset(
        f"fedavg({_LG_MNIST})+uniform", f"{LG}, table 5", {"rounds": 800, **_LG_OF_MNIST}
    ),
    "local@lg-mnist": Preset(
        "local(max_epochs=200, batch_size=10, lr=0.05, momentum=0.5)",
        f"{LG}, table 5",
        _LG_OF_MNIST,
        "training ends earlier where validation says so",
    ),
    "lg-fedavg@cifar10": Preset(
        f"lg-fedavg(warmup=1200, shared=first(2), {_LG_CIFAR})+uniform",
        f"{LG}, table 7",
        {"rounds": 1300, **_LG_OF_CIFAR},
        _LG_DECAY,
    ),
    "fedavg@lg-cifar10": Preset(
        f"fedavg({_LG_CIFAR})+uniform",
        f"{LG}, table 7",
        {"rounds": 1800, **_LG_OF_CIFAR},
        _LG_DECAY,
    ),
    "local@lg-cifar10": Preset(
        "local(max_epochs=200, batch_size=50, lr=0.1, momentum=0.5, schedule=inverse(0.005))",
        f"{LG}, table 7",
        _LG_OF_CIFAR,
        f"{_LG_DECAY}; training ends earlier where validation says so",
    ),
    **_of_salvaging(),
    **_of_superfed(),
    **_of_aaggff(),
    **_of_fedevg(),
}
