"""A module and a loss as pure functions of parameters, for training and for evaluation.

``loss(params, batch, key)`` runs the module in training mode, on the augmented batch, with dropout
masks drawn from the key. ``predict(params, x)`` and ``example_metrics(params, x, y)`` run it in
evaluation mode, without randomness. None of them changes the module.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value

from glocal.core import rng, tree
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.own_code import told
from glocal.core.padding import label_counts, over_positions
from glocal.core.target import Target
from glocal.core.types import Batch, Params, Tree
from glocal.nn import compat
from glocal.nn.losses import Losses, cross_entropy
from glocal.nn.precision import PRECISIONS

CLASSES = Target()
"""The task of classification."""

Augment = Callable[[Tensor, Tensor], Tensor]
"""Maps a batch's inputs and a key to inputs of the same shape; see :mod:`glocal.nn.augment`."""


class SeveralTrainingsError(GlocalError):
    """What was asked for is another in each of the trainings that are side by side."""


class Task:
    """Pure functions over the trainable parameters of ``module``.

    Args:
        module: returns logits for a batch of inputs. Layers that hold state of their own or draw
            from torch's global generator raise an error with the fix (:func:`glocal.nn.check`).
        losses: one loss per example from logits and labels.
        augment: a keyed function on a batch's inputs, applied in training only.
        fresh: builds the module anew under torch's seed, for methods that need an initialisation of
            their own; without it every layer's ``reset_parameters`` is called.
        target: what labels are (:mod:`glocal.core.target`): classes, numbers or counts.
        metric: what better off is measured by, and models are chosen by on validation data.
        precision: ``"single"``; ``"tf32"`` or ``"bf16"`` for products and convolutions of training
            in TF32 on a GPU (:mod:`glocal.nn.precision`), or in bfloat16 (torch's autocast);
            evaluation is always in single precision.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        losses: Losses = cross_entropy,
        augment: Augment | None = None,
        fresh: Callable[[], nn.Module] | None = None,
        precision: str = "single",
        target: Target = CLASSES,
        metric: Any = "accuracy",
    ) -> None:
        compat.check(module)
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        self.precision = precision
        self.module = copy.deepcopy(module).train()
        self._eval_module = copy.deepcopy(module).eval()
        self._bind()
        self.target, self.metric = target, metric
        self.losses = losses
        self.augment = augment
        self._fresh = fresh
        self.names = self._trained = [n for n, p in module.named_parameters() if p.requires_grad]
        self._keys = [f"{n}.key" for n, m in self.module.named_modules() if _is_keyed(m)]
        self.vectorised = True
        self.of_several = False

    def _bind(self) -> None:
        self._train_call: Callable[..., Tensor] = _Pure(self.module)
        self._eval_call: Callable[..., Tensor] = _Pure(self._eval_module)

    @property
    def params(self) -> Params:
        """The module's own parameters, from which the server starts."""
        if self.of_several:
            raise SeveralTrainingsError("task.params is another in each training: use down.")
        return self._read(self.module)

    def _read(self, module: nn.Module) -> Params:
        """The trainable parameters of such a module, as this task has them."""
        return _trainable(module, self._trained)

    @cached_property
    def size(self) -> int:
        """The number of trainable parameters, without a copy of them."""
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)

    @property
    def eval_module(self) -> nn.Module:
        """The module in evaluation mode, for those who look into it."""
        return self._eval_module

    def plain(self) -> Task:
        """The same task for one client at a time, where plain autograd costs less."""
        other = copy.copy(self)
        other.vectorised = False
        return other

    def for_several(self) -> Task:
        """The same task for several trainings at once, of whose models ``params`` is none."""
        other = copy.copy(self)
        other.of_several = True
        return other

    def frozen(self) -> dict[str, Tensor]:
        """What the module has beside its trainable parameters: the same for all who use it."""
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        return {name: tensor.detach() for name, tensor in named if name not in self._trained}

    def of_clients(self, ids: Tensor) -> Task:
        """The task of some clients: another one where they have different architectures."""
        return self

    def largest(self) -> Task:
        """The task of the clients with most parameters, where they have different architectures."""
        return self

    def picked(self, pick: Callable[[list[str]], set[str]]) -> frozenset[str]:
        """Of the parameters' names those that a rule picks, to be shared."""
        return frozenset(pick(self.names))

    def twin(self) -> Task:
        """The same task with modules of its own."""
        return self.to(None)

    def to(self, device: torch.device | str | None) -> Task:
        """The same task with modules of its own, on another device."""
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module).to(device)
        other._eval_module = copy.deepcopy(self._eval_module).to(device)
        other._bind()
        return other

    def init(self, key: Tensor) -> Params:
        """A fresh initialisation, the same for the same key."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.seed_of(key))
            if self._fresh is not None:
                return _on(self.params, self._read(self._fresh()))
            module = copy.deepcopy(self.module).cpu()
            for name, layer in module.named_modules():
                if not any(p.requires_grad for p in layer.parameters(recurse=False)):
                    continue
                if not callable(getattr(layer, "reset_parameters", None)):
                    raise GlocalError(
                        f"layer {name or 'the model'!r} ({type(layer).__name__}) cannot be "
                        "initialised anew: give it a reset_parameters() method, or pass a function "
                        "that builds the model instead of the model."
                    )
                layer.reset_parameters()
            return _on(self.params, self._read(module))

    def inputs(self, batch: Batch, key: Tensor) -> Tensor:
        """A batch's inputs as training sees them: augmented."""
        x = batch["x"]
        return x if self.augment is None else self.augment(x, rng.fold(key, 0))

    def logits(self, params: Params, x: Tensor, key: Tensor) -> Tensor:
        """Logits, in training mode: layers that draw (dropout) draw from the key."""
        keys = {name: rng.fold(key, i + 1) for i, name in enumerate(self._keys)}
        kind = PRECISIONS[self.precision]
        if kind is None:
            return self._train_call({**params, **keys}, x)
        # Without its cache of cast weights: a captured graph may not read what is kept elsewhere.
        with torch.autocast(x.device.type, kind, cache_enabled=False):
            return self._train_call({**params, **keys}, x).float()

    def loss(self, params: Params, batch: Batch, key: Tensor) -> Tensor:
        """Mean training loss over the labels of a batch; padding has weight 0."""
        each = self.losses(self.logits(params, self.inputs(batch, key), key), batch["y"])
        return weighted_mean(each, label_weights(batch))

    def grad(self, objective: Callable[[Tree], Tensor], at: Tree) -> tuple[Tree, Tensor]:
        """Gradient and value of a scalar function of parameters (or of a tree of them)."""
        if self.vectorised:
            return grad_and_value(objective)(at)
        leaf = tree.map(lambda x: x.detach().requires_grad_(), at)
        with torch.enable_grad():
            value = objective(leaf)
        # A model may leave a parameter out of its loss (an unused head): its gradient is zero.
        grads = iter(torch.autograd.grad(value, tree.leaves(leaf), allow_unused=True))

        def filled(x: Tensor) -> Tensor:
            g = next(grads)
            return torch.zeros_like(x) if g is None else g

        return tree.map(filled, at), value.detach()

    def predict(self, params: Params, x: Tensor) -> Tensor:
        """Logits, in evaluation mode."""
        return self._eval_call(params, x)

    def example_metrics(self, params: Params, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Each example's loss, and whether it is right (of a sequence, the share of its labels).

        Where labels are numbers, none is right, and there are losses alone.
        """
        logits = self.predict(params, x)
        if not self.target.classes:
            return {"loss": self.losses(logits, y)}
        hit = (logits.argmax(-1) == y).to(logits.dtype)
        correct = over_positions(hit, y) if hit.dim() > 1 else hit
        return {"correct": correct, "loss": self.losses(logits, y)}

    def example_logits(self, params: Params, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The logits of each example, from which any metric can be computed."""
        return {"logits": self.predict(params, x)}

    def example_outputs(self, params: Params, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The logits of each example, and its loss."""
        logits = self.predict(params, x)
        return {"logits": logits, "loss": self.losses(logits, y)}


def label_weights(batch: Batch) -> Tensor:
    """What each example of a batch weighs: as much as it has labels, or nothing if it is none."""
    weight, y = batch["weight"], batch["y"]
    return weight if y.dim() == 1 else weight * label_counts(y)


def weighted_mean(each: Tensor, weight: Tensor) -> Tensor:
    """The mean over the examples of a batch; padding has weight 0."""
    return (each * weight).sum() / weight.sum().clamp(min=1.0)


class _Pure:
    """A module as a function of its named tensors: ``torch.func.functional_call``, prepared once.

    That one walks the whole module at every call to find out which tensors go where and which are
    tied, which takes as long as a small model's forward pass.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        holders: dict[int, list[tuple[dict[str, Any], str]]] = {}
        tensors: dict[str, Tensor | None] = {}
        for path, layer in module.named_modules():
            for held in (layer._parameters, layer._buffers):
                for name, tensor in held.items():
                    tensors[f"{path}.{name}" if path else name] = tensor
                    holders.setdefault(id(tensor), []).append((held, name))
        self.holders = {n: holders[id(t)] for n, t in tensors.items() if t is not None}

    def __call__(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """The module's output for ``x`` with these tensors in place of its own."""
        replaced = [
            (held, key, held[key], tensor)
            for name, tensor in tensors.items()
            for held, key in self.holders[name]
        ]
        try:
            for held, key, _, tensor in replaced:
                held[key] = tensor
            output: Tensor = self.module(x)
            return output
        finally:
            for held, key, before, _ in replaced:
                held[key] = before


def _is_keyed(layer: nn.Module) -> bool:
    return "key" in layer._buffers and getattr(layer, "p", 1.0) > 0


def _trainable(module: nn.Module, names: list[str]) -> Params:
    named = dict(module.named_parameters())
    if not set(names) <= named.keys():
        raise GlocalError("the function that builds the model gave other parameters than before.")
    return {n: named[n].detach().clone() for n in names}


def _on(like: Params, params: Params) -> Params:
    return {k: v.to(like[k].device) for k, v in params.items()}


def try_out(task: Task, x: Tensor, y: Tensor) -> None:
    """Run the model and a training step; raise with the layer that cannot, and the fix.

    This is the second half of a model's validation: :func:`glocal.nn.check` knows layers by their
    types, and this one finds what is wrong with any other layer by running it.
    """
    batch = _small_batch(x, y)
    floats = x.is_floating_point()
    logits = _named_layer(task, lambda: task.predict(task.params, batch["x"]), "run", floats)
    if not task.target.classes and logits.shape != (*batch["y"].shape, 1):
        raise GlocalError(
            f"the model maps inputs of shape {tuple(batch['x'].shape)} to outputs of shape "
            f"{tuple(logits.shape)}: for {task.target.task} it must return one number for each "
            "example, so give its last layer one output."
        )
    classes = logits.shape[-1] if logits.dim() == y.dim() + 1 else 0
    fits = logits.shape[:-1] == batch["y"].shape
    if task.target.classes and not (fits and classes > int(y.max())):
        raise GlocalError(
            f"the model maps inputs of shape {tuple(batch['x'].shape)} to outputs of shape "
            f"{tuple(logits.shape)}, and the labels go up to {int(y.max())}: it must return one "
            "score for every class (logits), so give its last layer that many outputs."
        )
    _check_losses(task, logits, batch["y"])
    before = {n: b.clone() for n, b in task.module.named_buffers()}
    key = rng.key(0, x.device)
    plain = task.plain()
    _named_layer(
        task, lambda: plain.grad(lambda w: plain.loss(w, batch, key), task.params), "train"
    )
    for name, buffer in task.module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise GlocalError(
                f"the model's buffer {name!r} changes while it trains, which clients would share: "
                "keep such state in parameters, or use a layer without it (GroupNorm, say)."
            )


def _check_losses(task: Task, logits: Tensor, y: Tensor) -> None:
    """Raise unless the loss gives one number for each example."""
    try:
        with torch.no_grad():
            found = task.losses(logits, y)
    except Exception as error:  # whatever a user's function raises
        raise GlocalError(
            f"the loss cannot take outputs of shape {tuple(logits.shape)} and labels of shape "
            f"{tuple(y.shape)}: {told(error)}."
        ) from error
    if not isinstance(found, Tensor) or found.shape != y.shape[:1]:
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else shown(found)
        raise GlocalError(
            f"losses= must give one loss for each example, of shape {tuple(y.shape[:1])} here, and "
            f"gave {what}: take no mean over examples (reduction='none' in PyTorch's losses)."
        )


def try_vectorised(task: Task, x: Tensor, y: Tensor) -> None:
    """Raise, with the layer's name and the fix, if the model cannot be vmapped."""
    batch = _small_batch(x, y)
    stacked = {k: torch.stack([v, v]) for k, v in task.params.items()}
    keys = rng.fold(rng.key(0, x.device), torch.arange(2, device=x.device))

    def step(w: Params, key: Tensor) -> tuple[Params, Tensor]:
        return task.grad(lambda p: task.loss(p, batch, key), w)

    _named_layer(
        task, lambda: torch.func.vmap(step)(stacked, keys), "train for many clients at once"
    )


def _small_batch(x: Tensor, y: Tensor) -> Batch:
    return {"x": x[:2], "y": y[:2], "weight": torch.ones(len(x[:2]), device=x.device)}


def _named_layer(task: Task, run: Callable[[], Any], what: str, floats: bool = True) -> Any:
    """Run; on failure, raise with the name of the innermost layer that was running."""
    running: list[str] = []
    hooks = []
    for module in (task.module, task._eval_module):
        for name, layer in module.named_modules():
            label = f"{name or 'the model'} ({type(layer).__name__})"
            hooks.append(
                layer.register_forward_pre_hook(lambda *_, label=label: running.append(label))
            )
            hooks.append(layer.register_forward_hook(lambda *_: running.pop() and None))
    try:
        return run()
    except GlocalError:
        raise
    except Exception as error:  # whatever a user's layer raises
        where = f"layer {running[-1]}" if running else "the model's loss"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        fix = (
            "rewrite it without in-place changes, .item(), numpy or `if tensor:`, or choose "
            "engine='sequential'"
            if what.endswith("at once")
            else "check the model against the shape and type of the data"
            if floats
            else "the inputs are integers, which are taken for the ids of tokens: if they are "
            "features, give them as floats, as in x.astype('float32'), else take a model that "
            "reads tokens"
        )
        raise GlocalError(f"{where} cannot {what}: {reason.rstrip('.')}; {fix}.") from error
    finally:
        for hook in hooks:
            hook.remove()
