"""``glocal privacy``: what a plan costs in privacy, before anyone trains."""

from __future__ import annotations

import math
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperCommand

from glocal.cli.options import Json
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.report.tables import Cell
    from glocal.slots.accounting import Scheme


class BareJson(TyperCommand):
    """A command in which ``--json`` by itself prints."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``--json`` with nothing behind it is ``--json -``."""
        followed = zip(args, [*args[1:], "--"], strict=True)
        bare = [a == "--json" and b != "-" and b.startswith("-") for a, b in followed]
        return super().parse_args(
            ctx, ["--json=-" if b else a for a, b in zip(args, bare, strict=True)]
        )


def privacy(
    clients: Annotated[int, typer.Option(help="N, all clients.", show_default=False)],
    sampled: Annotated[
        float | None,
        typer.Option(help="M, clients in a round (on average, with coins). Default: all of them."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="T. Left out, with --epsilon and --noise: how many there may be."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="The noise on the sum of updates, over the clip. Left out, with --epsilon and "
            "--rounds: how much is needed."
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="A budget to be kept.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The chance of failure. Default: 1e-5, or 1/(10 N) if that is less."),
    ] = None,
    poisson: Annotated[
        bool,
        typer.Option(
            "--poisson/--fixed",
            help="Each client by its own coin, or exactly M of N, which costs more.",
        ),
    ] = True,
    local: Annotated[
        bool, typer.Option("--local", help="Every client adds the noise itself (where=local).")
    ] = False,
    json: Json = None,
) -> None:
    """What does a plan cost in privacy? Asked before anyone trains.

    Give two of --rounds, --noise and --epsilon.

    Examples:
      glocal privacy --clients 80000 --sampled 100 --rounds 5000 --noise 1 --delta 1e-6

      glocal privacy --clients 1000 --sampled 50 --rounds 200 --epsilon 2

      glocal privacy --clients 1000 --sampled 50 --noise 1 --epsilon 2 --json
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.core.validation import positive_integers
    from glocal.slots.accounting import Scheme, usual_delta

    check_json(json)
    positive_integers(clients=clients, **({} if rounds is None else {"rounds": rounds}))
    if [rounds, noise, epsilon].count(None) != 1:
        raise GlocalError(
            "give two of --rounds, --noise and --epsilon, as in --rounds 50 --noise 1: the third "
            "follows from them."
        )
    drawn = clients if sampled is None else sampled
    if not poisson and drawn != int(drawn):
        raise GlocalError(
            f"--fixed draws an integer number of clients, not {drawn:g}: use --poisson."
        )
    kind = "local" if local else "poisson" if poisson else "fixed"
    scheme = Scheme(kind, clients, drawn)
    found = plan(scheme, rounds, noise, epsilon, usual_delta(clients) if delta is None else delta)
    everything = files.dump(files.plain(found))
    if json is not None and str(json) == "-":
        sys.stdout.write(everything.decode())
        return
    if json is not None:
        files.write(json, everything)
    show(scheme, found)


def plan(
    scheme: Scheme, rounds: int | None, noise: float | None, epsilon: float | None, delta: float
) -> dict[str, Any]:
    """The plan with what was left out, and its cost by both accountants."""
    from glocal.slots import accounting

    asked = "epsilon"
    if noise is None and rounds is not None and epsilon is not None:
        asked, noise = "noise", _up(accounting.noise_for(epsilon, scheme, rounds, delta))
    elif rounds is None and noise is not None and epsilon is not None:
        asked, rounds = "rounds", accounting.rounds_for(epsilon, scheme, noise, delta)
    if noise is None or rounds is None:
        raise RuntimeError("one thing is left out, and the others are given")
    spent, accountant = accounting.bound(scheme, noise, rounds, delta)
    return {
        "epsilon": spent,
        "epsilon_rdp": accounting.epsilon(scheme, noise, rounds, delta, "rdp"),
        "accountant": accountant,
        "vacuous": accounting.vacuous(spent),
        "delta": delta,
        "noise": noise,
        "rounds": rounds,
        "clients": scheme.clients,
        "sampled": scheme.sampled,
        "sampling": scheme.sampling,
        "neighbours": scheme.neighbours,
        "asked": asked,
        "budget": epsilon,
    }


def _up(noise: float) -> float:
    """Rounded up to four digits."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 3)
    return float(f"{math.ceil(noise / unit) * unit:.4g}")


def show(scheme: Scheme, found: dict[str, Any]) -> None:
    """What was asked for first; then what it assumes."""
    from glocal.report.tables import table
    from glocal.slots.privacy import shown

    accountant = found["accountant"]
    figures: dict[str, list[Cell]] = {
        "epsilon": ["ε", (shown(found["epsilon"]), "bold"), f"accountant: {accountant}"],
        "noise": ["noise", f"{found['noise']:g}", "of the sum of updates, times the clip"],
        "rounds": ["rounds", f"{found['rounds']:,}", "skipped ones included"],
    }
    if accountant != "RDP":
        figures["rdp"] = ["ε by RDP", shown(found["epsilon_rdp"]), "the looser bound"]
    figures["delta"] = ["δ", f"{found['delta']:.3g}", "the chance that ε does not hold"]
    first = figures.pop(found["asked"])
    print()
    table(["figure", "value", "what it is"], [first, *figures.values()], left=3)
    print()
    for line in wrap(_assumed(scheme, found), 100):
        print(line)


def _assumed(scheme: Scheme, found: dict[str, Any]) -> str:
    who = (
        "Every update that leaves a client is protected, from the server too"
        if scheme.sampling == "local"
        else "Protected is a client with all its data, in what the server publishes"
    )
    text = f"{who}. Neighbours: {scheme.neighbours}. Sampling: {scheme}."
    if found["budget"] is not None:
        text += f" The budget is ε = {found['budget']:g}."
    if found["rounds"] == 0:
        text += " Not one round can be afforded: add noise, or raise --epsilon."
    if scheme.sampling == "fixed":
        text += " With coins instead (--poisson) it costs less."
    if found["vacuous"]:
        text += (
            " Vacuous: an attacker's odds that a client took part may grow more than 10^8-fold, "
            "which protects nobody."
        )
    return text
