"""The divergence guard: what a cohort sends and keeps is screened before it changes anything.

What is not finite (a client's training diverged, or it is malicious) is noticed in the round it
comes in, with the client's name. What then happens is the run's choice:

- *fatal* (the default): the run ends there;
- *skip*: the client sits the round out: nothing it sent is used, and it keeps its state as it was;
- *clip*: what is not finite in its update counts as 0 and the rest is shortened to the median
  length of the others' updates; its state, if not finite, stays as it was.

A robust aggregator always goes on without an update that is not finite, so that nobody can stop a
federation that way. If nothing finite is left of a whole cohort the run ends, whatever was chosen
(unless every client of it is known to be malicious).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Params, Tree, Uplink
from glocal.training.attacks import Adversary

POLICIES = ("fatal", "skip", "clip")


@dataclass(frozen=True)
class Screened:
    """What of a cohort's messages and states is used."""

    uplink: Uplink
    norm: Tensor
    """That of all its updates together."""
    keeps: Tensor | None = None
    """[cohort] whose new state is kept; None: everybody's."""
    left_out: Sequence[int] = ()
    """Ids of those whose update is not used."""
    clipped: Sequence[int] = ()
    """Ids of those whose update was cleaned and shortened."""

    def without(self, far: Tensor, ids: Tensor) -> Screened:
        """The same without some of those whose update is used, of the cohort ``ids``."""
        if not bool(far.any()):
            return self
        gone, rest = self.uplink.ids[far], self.uplink.subset(~far)
        stays = ~torch.isin(ids, gone)
        return replace(
            self,
            uplink=rest,
            norm=tree.norm(rest.update),
            keeps=stays if self.keeps is None else self.keeps & stays,
            left_out=[*self.left_out, *gone.tolist()],
        )

    def report(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Whom it concerned, for the round's line."""
        lists = {"left_out": self.left_out, "clipped": self.clipped}
        return {key: [names[i] for i in ids] for key, ids in lists.items() if ids}


def check_policy(diverged: str) -> None:
    """Refuse a policy that there is not."""
    if diverged not in POLICIES:
        raise GlocalError(
            f"diverged must be one of {', '.join(POLICIES)}, not {diverged!r}: it says what "
            "becomes of a client whose training is not finite."
        )


def screen(
    uplink: Uplink,
    states: Tree,
    policy: str,
    robust: bool,
    adversary: Adversary | None,
    names: Sequence[str],
    round: int,
) -> Screened:
    """What of a cohort's messages and states is used; ``names`` are all clients', by id."""
    norm = tree.norm(uplink.update)
    sent: Tree = {"sent": uplink.update, "extra": uplink.extra}
    if uplink.loss is not None:
        sent["loss"] = {"loss": uplink.loss}
    beside = [*tree.leaves({**sent, "sent": {}}), *tree.leaves(states)]
    # If the norm of all updates is finite, they are.
    if _all_finite([norm, *beside] if uplink.update else beside):
        return Screened(uplink, norm)
    good, kept = finite(sent, uplink.ids), finite(states, uplink.ids)
    fine = good & kept
    if bool(fine.all()):
        return Screened(uplink, norm)
    malicious = adversary is not None and bool(adversary.among(uplink.ids).all())
    going_on = robust and (bool(good.any()) or malicious)
    if policy == "fatal" or not bool(fine.any()):
        fatal = ~kept if going_on else ~fine
        if bool(fatal.any()):
            client = names[int(uplink.ids[fatal][0])]
            skip = "; go on without it by diverged='skip' (--diverged skip)"
            raise ClientError(
                f"client {client}'s training in round {round + 1} is not finite: it diverged; "
                "lower the learning rate, as in fedavg(lr=0.01), or look at its data"
                f"{skip if policy == 'fatal' else ''}; if it may be malicious, use a robust "
                "aggregator, as in fedavg+median."
            )
    if policy == "clip" and not robust:
        cleaned = _cleaned(uplink, fine)
        return Screened(
            cleaned, tree.norm(cleaned.update), kept, clipped=uplink.ids[~fine].tolist()
        )
    used = good if policy == "fatal" else fine
    keeps = kept if policy == "fatal" else fine
    rest = uplink.subset(used)
    return Screened(rest, tree.norm(rest.update), keeps, left_out=uplink.ids[~used].tolist())


def finite(stacked: Tree, ids: Tensor) -> Tensor:
    """Of whom every number is finite."""
    everything = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
    for leaf in tree.leaves(stacked):
        if leaf.numel():
            everything &= leaf.isfinite().reshape(len(leaf), -1).all(1)
    return everything


def _all_finite(leaves: list[Tensor]) -> bool:
    """Whether all sums are finite: what is not makes its sum so too, which is seen at once.

    A sum of finite numbers may be too large: then one has to look again.
    """
    sums = [leaf.sum(dtype=torch.float32) for leaf in leaves if leaf.numel()]
    return not sums or bool(torch.stack(sums).sum().isfinite())


def _cleaned(uplink: Uplink, fine: Tensor) -> Uplink:
    """What is not finite as 0, and no such update longer than the median of the fine ones."""

    def clean(x: Tensor) -> Tensor:
        return x.nan_to_num(0.0, 0.0, 0.0) if x.is_floating_point() else x

    update: Params = tree.map(clean, uplink.update)
    length = tree.row_sq_norms(update, uplink.n).sqrt()
    limit = length[fine].median()
    scale = torch.where(fine, 1.0, (limit / length.clamp(min=1e-30)).clamp(max=1.0))
    update = tree.map(lambda x: x * scale.view(-1, *(1,) * (x.dim() - 1)).to(x.dtype), update)
    loss = uplink.loss
    if loss is not None:  # as bad as the worst known: it is no better
        loss = torch.where(loss.isfinite(), loss, loss[fine].max())
    return Uplink(uplink.ids, uplink.n, update, loss, tree.map(clean, uplink.extra))
