from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations
from torch.nn.utils import spectral_norm as old_spectral_norm

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.nn import (
    LSTM,
    Dropout,
    SpectralConv2d,
    SpectralLinear,
    check,
    convert,
    group_norm,
    spectral_norm,
)
from toys import seeded


def randn(seed: int, *shape: int) -> Tensor:
    return rng.normal(rng.key(seed), shape)


def parameters(model: nn.Module) -> Params:
    return {k: p.detach() for k, p in model.named_parameters()}


def assert_grads_agree(model: nn.Module, x: Tensor) -> None:
    """One client at a time and vectorised over two clients with different weights."""

    def loss(params: Params) -> Tensor:
        out = functional_call(model, params, (x,))
        return ((out if isinstance(out, Tensor) else out[0]) ** 2).sum()

    one = parameters(model)
    two = tree.map(lambda p: p + 0.1 * randn(p.numel(), *p.shape), one)
    together = vmap(grad(loss))(tree.stack([one, two]))
    for i, params in enumerate((one, two)):
        torch.testing.assert_close(tree.row(together, i), grad(loss)(params), rtol=1e-4, atol=1e-4)


# Dropout


def drop(layer: Dropout, x: Tensor, key: Tensor) -> Tensor:
    out: Tensor = functional_call(layer, {"key": key}, (x,))
    return out


@pytest.mark.parametrize("layer", [Dropout(0.4), Dropout(0.4, channels=True)])
def test_dropout_is_the_same_vectorised_and_padded(layer: Dropout) -> None:
    keys = rng.fold(rng.key(0), torch.arange(3))
    x = torch.ones(3, 6, 4, 5)
    together = vmap(drop, in_dims=(None, 0, 0))(layer, x, keys)
    for i in range(3):
        assert torch.equal(together[i], drop(layer, x[i], keys[i]))
        assert torch.equal(together[i, :2], drop(layer, x[i, :2], keys[i]))
    assert not torch.equal(together[0], together[1])


def test_dropout_zeroes_a_share_and_keeps_the_mean() -> None:
    out = drop(Dropout(0.3), torch.ones(100, 200), rng.key(1))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)


def test_channel_dropout_zeroes_whole_channels() -> None:
    out = drop(Dropout(0.5, channels=True), torch.ones(8, 16, 3, 3), rng.key(1)).flatten(2)
    assert torch.equal(out, out[..., :1].expand_as(out))
    zeros = (out[..., 0] == 0).float()
    assert 0.3 < zeros.mean() < 0.7
    assert ((zeros.mean(1) > 0) & (zeros.mean(1) < 1)).all()  # channels of one image differ


def test_dropout_does_nothing_in_eval_or_at_zero() -> None:
    x = randn(0, 4, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_dropout_keeps_the_type_and_has_no_saved_state() -> None:
    assert Dropout(0.5)(torch.ones(3, dtype=torch.float16)).dtype == torch.float16
    assert Dropout(0.5).state_dict() == {}


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_dropout_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(GlocalError, match="such as"):
        Dropout(p)


# LSTM


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_lstm_is_torchs(batch_first: bool, bias: bool) -> None:
    theirs = nn.LSTM(3, 5, 2, bias=bias, batch_first=batch_first)
    ours = LSTM(3, 5, 2, bias=bias, batch_first=batch_first)
    ours.load_state_dict(theirs.state_dict())
    x, state = randn(0, 4, 6, 3), None
    for _ in range(2):  # from zeros, then from where the first pass ended
        a, b = theirs(x, state), ours(x, state)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
        state = (a[1][0].detach(), a[1][1].detach())
    ga = torch.autograd.grad(a[0].square().sum(), list(theirs.parameters()))
    gb = torch.autograd.grad(b[0].square().sum(), list(ours.parameters()))
    torch.testing.assert_close(ga, gb, rtol=1e-4, atol=1e-5)


def test_lstm_starts_as_torchs() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = nn.LSTM(3, 5, 2).state_dict()
        torch.manual_seed(0)
        ours = LSTM(3, 5, 2).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


def test_lstm_gradients_agree() -> None:
    assert_grads_agree(LSTM(3, 5, 2, dropout=0.5), randn(0, 2, 4, 3))


def test_lstm_dropout_is_between_layers_and_ignores_padding() -> None:
    lstm = LSTM(3, 5, 2, batch_first=False, dropout=0.5)
    x = randn(0, 6, 4, 3)
    padded = torch.cat([x, x], 1)
    torch.testing.assert_close(lstm(padded)[0][:, :4], lstm(x)[0])
    assert not torch.allclose(lstm(x)[0], lstm.eval()(x)[0])
    assert not LSTM(3, 5, 1, dropout=0.5).dropouts


def test_lstm_says_what_it_reads() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(4, 3)])
    for x in (packed, torch.zeros(4, 3)):
        with pytest.raises(GlocalError, match="pad_sequence"):
            LSTM(3, 5)(x)


# Spectral norm


@pytest.mark.parametrize("shape", [(6, 4), (4, 9), (8, 3, 3, 3), (5, 1)])
def test_spectral_norm_is_the_largest_singular_value(shape: tuple[int, ...]) -> None:
    weight = randn(2, *shape)
    top = torch.linalg.svdvals(weight.flatten(1))[0]
    torch.testing.assert_close(spectral_norm(weight, 100), weight / top, rtol=1e-4, atol=1e-5)
    # Ten iterations come near, from below.
    ratio = torch.linalg.svdvals(spectral_norm(weight).flatten(1))[0]
    assert 1 - 1e-5 <= ratio < 1.05


def test_spectral_norm_of_zero_is_zero() -> None:
    assert torch.equal(spectral_norm(torch.zeros(3, 2)), torch.zeros(3, 2))


def test_spectral_norm_gradient_is_torchs() -> None:
    # Drawn with any seed, two singular values may be too close for so many iterations.
    theirs = parametrizations.spectral_norm(seeded(lambda: nn.Linear(4, 3)), n_power_iterations=100)
    ours = convert(theirs)
    assert isinstance(ours, SpectralLinear)
    ours.iterations = 100
    x = randn(0, 5, 4)
    theirs(x).square().sum().backward()
    ours(x).square().sum().backward()
    original = theirs.parametrizations.weight.original
    torch.testing.assert_close(ours.weight.grad, original.grad, rtol=1e-4, atol=1e-4)


def test_spectral_norm_counts_u_and_v_as_constants() -> None:
    weight = randn(0, 4, 3).requires_grad_()
    w, u = weight.detach(), torch.cos(torch.arange(4.0))
    v = w.T @ u / (w.T @ u).norm()
    u = w @ v / (w @ v).norm()
    v = w.T @ u / (w.T @ u).norm()
    (expected,) = torch.autograd.grad((weight / (u @ weight @ v)).sum(), weight)
    (got,) = torch.autograd.grad(spectral_norm(weight, iterations=1).sum(), weight)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (seeded(lambda: SpectralLinear(4, 3)), (5, 4)),
        (seeded(lambda: SpectralConv2d(2, 3, 3, padding=1)), (2, 2, 5, 5)),
    ],
)
def test_spectral_gradients_agree(layer: nn.Module, shape: tuple[int, ...]) -> None:
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    assert_grads_agree(layer, randn(0, *shape))
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


# Group norm


@pytest.mark.parametrize(
    ("channels", "groups"),
    [(1, 1), (3, 1), (6, 1), (8, 2), (10, 2), (64, 16), (512, 32), (200, 25)],
)
def test_groups(channels: int, groups: int) -> None:
    assert group_norm(channels).num_groups == groups


# The door


class Inside(nn.Module):
    """A layer somewhere within a model."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(2, 2), layer])


CONVERTIBLE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), "nn.GroupNorm"),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(8, affine=False), "nn.GroupNorm"),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(8, track_running_stats=False), "nn.GroupNorm"),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(8), "nn.GroupNorm"),
    "InstanceNorm2d": (
        lambda: nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        "track_running_stats=False",
    ),
    "Dropout": (lambda: nn.Dropout(0.2), "glocal.nn.Dropout(0.2)"),
    "Dropout1d": (lambda: nn.Dropout1d(0.2), "glocal.nn.Dropout(0.2, channels=True)"),
    "Dropout2d": (lambda: nn.Dropout2d(0.2), "glocal.nn.Dropout(0.2, channels=True)"),
    "Dropout3d": (lambda: nn.Dropout3d(0.2), "glocal.nn.Dropout(0.2, channels=True)"),
    "LSTM": (lambda: nn.LSTM(2, 3, 2, dropout=0.1), "glocal.nn.LSTM"),
    "Linear": (lambda: old_spectral_norm(nn.Linear(3, 2)), "glocal.nn.SpectralLinear"),
    "ParametrizedLinear": (
        lambda: parametrizations.spectral_norm(nn.Linear(3, 2, bias=False)),
        "glocal.nn.SpectralLinear",
    ),
    "ParametrizedConv2d": (
        lambda: parametrizations.spectral_norm(nn.Conv2d(4, 2, 3, 2, 1, groups=2)),
        "glocal.nn.SpectralConv2d",
    ),
}

REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "AlphaDropout": (lambda: nn.AlphaDropout(0.2), "use glocal.nn.Dropout"),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.2), "use glocal.nn.Dropout"),
    "LSTM": (lambda: nn.LSTM(2, 3, proj_size=2), "without projection"),
    "GRU": (lambda: nn.GRU(2, 3), "nn.GRUCell in a loop over time"),
    "RNN": (lambda: nn.RNN(2, 3), "nn.RNNCell in a loop over time"),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2, dropout=0.1), "with dropout=0"),
    "LazyLinear": (lambda: nn.LazyLinear(3), "run the model on one batch first"),
    "LazyBatchNorm1d": (lambda: nn.LazyBatchNorm1d(), "run the model on one batch first"),
    "ParametrizedConv1d": (
        lambda: parametrizations.spectral_norm(nn.Conv1d(2, 2, 3)),
        "glocal.nn.spectral_norm",
    ),
    "ParametrizedLinear": (
        lambda: parametrizations.spectral_norm(parametrizations.weight_norm(nn.Linear(3, 2))),
        "glocal.nn.spectral_norm",
    ),
}


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_check_names_layer_and_fix_and_convert_does_it(name: str) -> None:
    make, fix = CONVERTIBLE[name]
    model = Inside(make()).eval()
    with pytest.raises(GlocalError) as caught:
        check(model)
    message = str(caught.value)
    assert message.startswith(f"layer 'body.1' ({name}) cannot be federated: ")
    assert fix in message
    assert message.endswith("or let glocal.nn.convert(model) do it.")
    state = torch.get_rng_state()
    converted = convert(model)
    check(converted)
    assert torch.equal(state, torch.get_rng_state())
    assert not any(m.training for m in converted.modules())
    with pytest.raises(GlocalError, match="cannot be federated"):
        check(model)


@pytest.mark.parametrize("name", REFUSED)
def test_check_and_convert_refuse_what_has_no_replacement(name: str) -> None:
    make, fix = REFUSED[name]
    model = Inside(make())
    for door in (check, convert):
        with pytest.raises(GlocalError) as caught:
            door(model)
        message = str(caught.value)
        assert message.startswith(f"layer 'body.1' ({name}) cannot be federated: ")
        assert fix in message
        assert "convert" not in message


def test_check_finds_the_attention_in_a_transformer() -> None:
    with pytest.raises(GlocalError, match=r"'self_attn' \(MultiheadAttention\).*dropout=0"):
        check(nn.TransformerEncoderLayer(4, 2, dropout=0.1))
    check(nn.TransformerEncoderLayer(4, 2, dropout=0.0))


def test_check_wants_something_to_train() -> None:
    with pytest.raises(GlocalError, match="no trainable parameters"):
        check(nn.ReLU())
    with pytest.raises(GlocalError, match="no trainable parameters"):
        check(nn.Linear(2, 2).requires_grad_(False))


def test_check_accepts_the_rest() -> None:
    tied = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.InstanceNorm1d(3), nn.Linear(3, 3))
    tied[3].weight = tied[0].weight
    check(tied)
    check(nn.Sequential(Dropout(0.3), LSTM(2, 3), SpectralLinear(3, 2)))


def test_convert_keeps_weights() -> None:
    norm = nn.BatchNorm2d(8, eps=1e-3)
    nn.init.normal_(norm.weight)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.Dropout2d(0.5)).eval()
    new = convert(model)
    assert isinstance(new[1], nn.GroupNorm)
    assert new[1].eps == 1e-3
    for a, b in zip(model.parameters(), new.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a is not b


def test_convert_computes_the_same() -> None:
    lstm = nn.LSTM(3, 4, 2)
    x = randn(0, 5, 2, 3)
    torch.testing.assert_close(convert(lstm)(x), lstm(x), rtol=0, atol=1e-5)
    conv = old_spectral_norm(nn.Conv2d(2, 3, 3, stride=2, padding=1), n_power_iterations=100)
    new = convert(conv)
    assert isinstance(new, SpectralConv2d)
    new.iterations = 100
    image = randn(1, 2, 2, 6, 6)
    torch.testing.assert_close(new(image), conv(image), rtol=1e-4, atol=1e-4)
    convert(conv)  # after a forward pass its weight is no leaf, which deepcopy alone refuses


def test_convert_keeps_tied_parameters_and_shared_layers() -> None:
    dropout = nn.Dropout(0.5)
    model = nn.ModuleDict({"a": nn.LSTM(4, 4), "b": dropout, "c": dropout, "d": nn.Linear(4, 16)})
    model["d"].weight = model["a"].weight_ih_l0
    new = convert(model)
    assert new["d"].weight is new["a"].weight_ih_l0
    assert new["b"] is new["c"]
    assert len(list(new.parameters())) == len(list(model.parameters()))


def test_a_converted_layer_may_be_the_whole_model() -> None:
    with pytest.raises(GlocalError, match=r"^the model \(LSTM\)"):
        check(nn.LSTM(2, 3))
    assert isinstance(convert(nn.LSTM(2, 3)), LSTM)
