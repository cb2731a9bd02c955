from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.nn import models
from glocal.nn.compat import check
from glocal.nn.layers import Dropout


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small layers are slower on two threads, much slower when the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(model: nn.Module) -> Params:
    return {k: p.detach() for k, p in model.named_parameters()}


def count(model: nn.Module) -> int:
    return tree.count(parameters(model))


IMAGE = (3, 8, 8)
SMALL = {
    "logistic": ("logistic", IMAGE),
    "mlp": ("mlp(16,12,dropout=0.3)", IMAGE),
    "lenet": ("lenet", IMAGE),
    "cnn": ("cnn", (1, 8, 8)),
    "resnet10": ("resnet10(width=8,activation=silu)", IMAGE),
    "resnet18": ("resnet18(width=4)", IMAGE),
    "vgg": ("vgg(width=4)", IMAGE),
    "mobilenet": ("mobilenet(width=0.25)", IMAGE),
    "bilstm": ("bilstm(9,8,vocabulary=7,embedding=4,hidden=6,dropout=0.3)", (5,)),
    "char-lstm": ("char-lstm(hidden=12)", (5,)),
    "word-lstm": ("word-lstm(hidden=12,dropout=0.3)", (5,)),
    "headed": ("headed(mlp(9, dropout=0.3),width=8)", IMAGE),
    "image-question": ("image-question(pixels=3,hidden=6,width=8)", (5,)),
}


def test_every_model_is_put_to_the_test() -> None:
    assert sorted(SMALL) == sorted(models.REGISTRY)


def batch(shape: tuple[int, ...], rows: int, classes: int) -> Tensor:
    key = rng.key(1)
    if len(shape) == 1:
        return rng.randint(key, classes, (rows, *shape))
    return rng.normal(key, (rows, *shape))


@pytest.mark.parametrize("name", SMALL)
def test_gradients_vectorised_are_those_of_a_loop(name: str) -> None:
    spec, shape = SMALL[name]
    classes, clients, rows = 7, 2, 3
    nets = [models.build(spec, input_shape=shape, classes=classes, seed=i) for i in range(clients)]
    model = nets[0].train()
    check(model)
    dropouts = [k for k, m in model.named_modules() if isinstance(m, Dropout)]
    xs = batch(shape, clients * rows, classes).unflatten(0, (clients, rows))
    xs = xs.float() if name == "image-question" else xs  # whose rows are pixels, too

    def loss(params: Params, key: Tensor, x: Tensor) -> Tensor:
        keys = {f"{path}.key": rng.fold(key, i) for i, path in enumerate(dropouts)}
        logits = functional_call(model, {**params, **keys}, (x,))
        assert logits.shape == ((rows, 5, classes) if name == "word-lstm" else (rows, classes))
        y = torch.arange(logits[..., 0].numel()) % classes
        return functional.cross_entropy(logits.flatten(0, -2), y)

    stacked = tree.stack([parameters(net) for net in nets])
    keys = rng.fold(rng.key(0), torch.arange(clients))
    together = vmap(grad(loss))(stacked, keys, xs)
    for i in range(clients):
        alone = grad(loss)(tree.row(stacked, i), keys[i], xs[i])
        for k, g in alone.items():
            torch.testing.assert_close(together[k][i], g, rtol=1e-4, atol=1e-4, msg=k)
            assert g.abs().sum() > 0, k


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "expected"),
    [
        ("logistic", (1, 28, 28), 10, 7_850),
        ("mlp", (1, 8, 8), 10, 8_970),
        ("mlp(200,200)", (1, 28, 28), 10, 199_210),
        ("mlp(512,256,256,128)", (1, 28, 28), 10, 633_226),
        ("lenet", (3, 32, 32), 10, 64_102),
        ("cnn", (1, 28, 28), 10, 1_663_370),
        ("cnn", (3, 32, 32), 10, 2_156_490),
        ("resnet10", (3, 32, 32), 10, 4_903_242),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("vgg", (3, 32, 32), 10, 3_491_530 + 1_728),
        ("vgg(norm=false)", (3, 32, 32), 10, 3_491_530),
        ("mobilenet", (3, 64, 64), 1000, 4_231_976),
        ("mobilenet", (3, 32, 32), 10, 3_217_226),
        ("char-lstm", (80,), 80, 819_920),
        ("word-lstm", (30,), 50_000, 10_693_200),
        ("headed(mlp(16),width=8)", (1, 8, 8), 10, 1_040 + 136 + 90),
        ("image-question", (69,), 12, 12_448 + 8_224 + 732),
        ("image-question(only=image)", (69,), 12, 12_448 + 732),
        ("image-question(only=question)", (69,), 12, 8_224 + 732),
    ],
)
def test_parameter_counts(spec: str, shape: tuple[int, ...], classes: int, expected: int) -> None:
    assert count(models.build(spec, input_shape=shape, classes=classes)) == expected


def test_the_shares_of_lg_fedavg() -> None:
    net = models.build("mlp(512,256,256,128)", input_shape=(1, 28, 28), classes=10)
    last = [p for k, p in parameters(net).items() if k.split(".")[1] in {"2", "3", "4"}]
    assert sum(p.numel() for p in last) == 99_978
    net = models.build("lenet", input_shape=(3, 32, 32), classes=10)
    convs = [p for k, p in parameters(net).items() if k.startswith("convs.")]
    assert sum(p.numel() for p in convs) == 2_872


@pytest.mark.parametrize("name", [k for k, (_, shape) in SMALL.items() if len(shape) == 3])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 9, 15)])
def test_images_of_all_sizes(name: str, shape: tuple[int, ...]) -> None:
    net = models.build(SMALL[name][0], input_shape=shape, classes=4)
    assert net(batch(shape, 2, 0)).shape == (2, 4)


@pytest.mark.parametrize(("side", "left"), [(8, 1), (32, 4), (64, 8), (96, 3)])
@pytest.mark.parametrize("spec", ["resnet10(width=4)", "mobilenet(width=0.25)"])
def test_how_far_images_shrink(spec: str, side: int, left: int) -> None:
    net = models.build(spec, input_shape=(3, side, side), classes=4)
    seen: list[Tensor] = []
    last = list(net.children())[-2]  # all stages or blocks; the head comes after
    (last[-1] if isinstance(last, nn.ModuleList) else last).register_forward_hook(
        lambda module, x, out: seen.append(out)
    )
    net(batch((3, side, side), 1, 0))
    assert seen[0].shape[2:] == (left, left)


def test_tied_embeddings_are_one_parameter() -> None:
    net = models.build("word-lstm(hidden=8)", input_shape=(5,), classes=6)
    names = parameters(net)
    assert "embedding.weight" in names
    assert "head.weight" not in names


def test_the_seed_decides_the_weights_and_nothing_else_changes() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a, b, c = (models.build("lenet", input_shape=IMAGE, classes=3, seed=s) for s in (5, 5, 6))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.convs[0].weight, c.convs[0].weight)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("resnet19", IMAGE, "did you mean 'resnet18'"),
        ("mlp(", IMAGE, "cannot read 'mlp('"),
        ("mlp(width=3)", IMAGE, "'width': known are dropout; values of hidden go without a name"),
        ("logistic(3)", IMAGE, "write it without brackets"),
        ("mlp(0)", IMAGE, "width must be an integer from 1"),
        ("mlp(1.5)", IMAGE, "in mlp, hidden must be an integer"),
        ("mlp(drop=0.1)", IMAGE, "unknown setting of mlp 'drop': did you mean 'dropout'"),
        ("mlp(true)", IMAGE, "in mlp, hidden must be an integer"),
        ("mlp(dropout=1)", IMAGE, "dropout p=1 is not in [0, 1): give a probability"),
        ("resnet10(activation=tanh)", IMAGE, "activation 'tanh': known are relu, silu"),
        ("resnet10(activation=last(2))", IMAGE, "activation must be text"),
        ("resnet10(width=2)", IMAGE, "from 4"),
        ("vgg(norm=3)", IMAGE, "norm must be true or false"),
        ("mobilenet(width=0)", IMAGE, "must be a number in (0, 4]"),
        ("cnn", (64,), "use 'mlp'"),
        ("cnn", (1, 3, 8), "at least 4×4, not 3×8"),
        ("char-lstm", IMAGE, "sequences of token ids"),
        ("mlp", (), "at least one feature"),
    ],
)
def test_what_cannot_be_built_says_what_to_do(
    spec: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(GlocalError) as caught:
        models.build(spec, input_shape=shape, classes=3)
    assert message in str(caught.value)


def test_language_models_refuse_floats() -> None:
    net = models.build("char-lstm", input_shape=(5,), classes=3)
    with pytest.raises(GlocalError, match="integer tensor"):
        net(torch.zeros(2, 5))
