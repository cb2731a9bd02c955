"""FedJAX (Google): ``fed_avg.federated_averaging``, jitted, or mapped over two host devices."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from peers.work import Arrays, Turns, Work


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Rounds of its federated averaging; datasets are handed over in order, unshuffled."""
    if setting == "pmap, 2 devices":
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        os.environ["JAX_PMAP_NO_RANK_REDUCTION"] = (
            "false"  # FedJAX reads shards as JAX once gave them
        )
    import fedjax
    import jax
    import jax.numpy as jnp
    import optax

    fedjax.set_for_each_client_backend("pmap" if "pmap" in setting else "jit")
    logits = lenet if work.model == "lenet" else mlp

    def loss(params: Any, batch: Any, key: Any) -> Any:
        out = logits(params, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(out, batch["y"]).mean()

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        grad_fn=jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(work.rate),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            work.batch_size, num_epochs=1, skip_shuffle=True
        ),
    )
    x = work.x.transpose(0, 1, 3, 4, 2) if work.model == "lenet" else work.x  # channels last
    y = work.y.astype(np.int32)
    state = algorithm.init([jnp.asarray(swapped(p)) for p in work.initial])
    keys = list(jax.random.split(jax.random.PRNGKey(0), work.cohorts.shape[1]))
    turns.params = lambda: [swapped_back(np.asarray(p)) for p in state.params]
    for r in turns:
        clients = [
            (bytes(str(c), "ascii"), fedjax.ClientDataset({"x": x[c][o], "y": y[c][o]}), key)
            for c, o, key in zip(work.cohorts[r], work.orders[r], keys, strict=True)
        ]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)


def swapped(p: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A Linear's weight as inputs × outputs; a convolution's as height, width, in, out."""
    return p.T if p.ndim == 2 else p.transpose(2, 3, 1, 0) if p.ndim == 4 else p


def swapped_back(p: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """PyTorch's layout again."""
    return p.T if p.ndim == 2 else p.transpose(3, 2, 0, 1) if p.ndim == 4 else p


def mlp(params: Arrays, x: Any) -> Any:
    """Linears with ReLUs between."""
    import jax

    pairs = list(zip(params[::2], params[1::2], strict=True))
    for w, b in pairs[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = pairs[-1]
    return x @ w + b


def lenet(params: Arrays, x: Any) -> Any:
    """Two convolutions with max-pools, then Linears; flattened in PyTorch's order."""
    import jax
    import jax.numpy as jnp

    for w, b in ((params[0], params[1]), (params[2], params[3])):
        x = jax.lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(
            jax.nn.relu(x + b), -jnp.inf, jax.lax.max, window, window, "VALID"
        )
    return mlp(params[4:], x.transpose(0, 3, 1, 2).reshape(len(x), -1))
