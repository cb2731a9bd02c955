"""Which components of a method do not go together, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from glocal.nn.optim import sgd
from glocal.slots.auxiliary import Auxiliary
from glocal.slots.example_privacy import INSTEAD, ExamplePrivacy

if TYPE_CHECKING:
    from glocal.slots.method import Method


def objections(method: Method) -> Iterator[str]:
    """Why the components do not go together, and what to do instead."""
    combine, privacy, memory = method.combine, method.privacy, method.memory.name
    compression = method.compression
    named = method.weighting.name if method.weighting else ""
    if method.example_privacy is not None:
        yield from _example_objections(method, method.example_privacy)
    more = (
        f"{privacy.name} protects the update alone, and {{}} sends more than that: use fedavg or "
        "fedprox as the base."
        if privacy
        else ""
    )
    if method.server is not None:
        server, plain, opt = method.server, sgd(), method.server_opt
        if combine.robust:
            yield (
                f"{server.name} also moves by a mean of what clients send, which one of them can "
                f"spoil, and {combine.name} would protect nothing: leave it out."
            )
        idle = {
            named: named,
            combine.name: combine.name != "mean",
            opt.name: (opt.name, opt.lr) != (plain.name, plain.lr),
            memory: memory != "none",
            f"shared={method.shared.name}": method.shared.name != "nothing",
        }
        for name in (name for name, given in idle.items() if given):
            yield (
                f"{server.name} brings a server half of its own, where {name} would do nothing: "
                "leave it out."
            )
        if privacy and server.message is None:
            yield more.format(server.name)
        if compression and not server.sends_update:
            yield (
                f"{server.name} sends no update of the model, so {compression.name} would do "
                "nothing: leave it out."
            )
    elif memory != "none":
        if combine.robust:
            yield (
                f"{memory} also moves by a mean of what clients send, which one of them can spoil, "
                f"so {combine.name} would protect nothing: use fedavg or fedprox as the base."
            )
        if method.shared.name != "everything":
            yield (
                f"{memory} corrects whole models, so shared={method.shared.name} cannot go with "
                "it: leave shared out, or use fedavg."
            )
        if privacy:
            yield more.format(memory)
    of_model = compression.name if compression else memory if memory != "none" else ""
    if method.auxiliary and method.auxiliary.shared and of_model:
        yield (
            f"{of_model} is made for the model alone, and a shared {method.auxiliary.name} is sent "
            "beside it: leave one of the two out."
        )
    parts = [part for part in (method.auxiliary, method.pretraining) if part is not None]
    for part in parts:
        name, of_all = part.name, isinstance(part, Auxiliary) and part.shared
        if method.shared.name == "everything" and not of_all:
            yield (
                f"{name} trains what a client's own layers make of its data, and this method keeps "
                "no layer private: use lg-fedavg, or say which layers are shared, as in "
                "fedavg(shared=last(1))."
            )
        if method.server is not None:
            yield (
                f"the clients of {method.server.name} train in a way of their own, which {name} "
                "cannot join: use lg-fedavg, fedper or fedrep."
            )
    if method.pretraining and not method.auxiliary and method.pretraining.needs_auxiliary:
        yield (
            "pretrain's weight and labels=false are about an auxiliary model, and there is none: "
            "add one, such as autoencoder, or leave them out."
        )
    if method.weighting and method.weighting.own_step and method.server_opt.adaptive:
        step, undoing = method.weighting.own_step, method.server_opt.name
        yield (
            f"{named}({step}=…) says how long the server's step is, and {undoing} divides by the "
            f"size of past ones, which would undo it: leave {step} out, or use sgd or momentum."
        )
    if not combine.weighted and named:
        yield (
            f"{combine.name} does not use weights, so {named} would do nothing: leave one of the "
            "two out."
        )
    if privacy and named and named != "uniform":
        yield (
            f"{privacy.name} bounds what one client can change only if all count alike, so {named} "
            "cannot go with it: leave the weighting out, or the privacy."
        )
    if privacy and compression and privacy.where == "local":
        yield (
            f"{privacy.name}(where=local) adds noise to every number that a client sends, so "
            f"nothing would be saved by {compression.name}: leave it out, or use where=central."
        )
    if compression and compression.feedback and method.local.resends:
        yield (
            "the clients of this method send how their own model differs from the server's, which "
            f"has in it what {compression.name} left out before: write feedback=false."
        )
    if privacy and combine.name != "mean":
        yield (
            f"{privacy.name} adds noise made for a mean, so {combine.name} cannot go with it: "
            "leave one of the two out."
        )


def _example_objections(method: Method, privacy: ExamplePrivacy) -> Iterator[str]:
    """Why a client's examples cannot be protected."""
    other = method.server.name if method.server else method.memory.name
    if other != "none":
        yield (
            f"{privacy.name} protects the update alone, and clients of {other} send more than "
            f"that: {INSTEAD}."
        )
    if method.weights.needs_loss:
        yield (
            f"{method.weights.name} asks clients for a loss, which {privacy.name} does not "
            "protect: leave one of the two out."
        )
    if method.auxiliary or method.pretraining:
        yield (
            f"{privacy.name} protects the method's own steps alone, and auxiliary models and "
            "pre-training learn from the same examples beside them: leave one of the two out."
        )
    if method.local.solve_before_evaluation:
        yield (
            "clients of this method also train where they are evaluated, which nobody would "
            f"account for, so {privacy.name} would promise too much: {INSTEAD}."
        )
