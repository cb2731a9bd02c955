"""What a plan costs in privacy, as a table."""

from __future__ import annotations

from typing import Any

from glocal.report.tables import Cell, show_table
from glocal.slots.accounting import Scheme
from glocal.slots.privacy import shown


def show(scheme: Scheme, plan: dict[str, Any]) -> None:
    """Print what was asked for first; then what it assumes."""
    accountant = plan["accountant"]
    figures: dict[str, list[Cell]] = {
        "epsilon": ["ε", (shown(plan["epsilon"]), "bold"), f"accountant: {accountant}"],
        "noise": ["noise", f"{plan['noise']:g}", "of the sum of updates, times the clip"],
        "rounds": ["rounds", f"{plan['rounds']:,}", "skipped ones included"],
    }
    if accountant != "RDP":
        figures["rdp"] = ["ε by RDP", shown(plan["epsilon_rdp"]), "the looser bound"]
    figures["delta"] = ["δ", f"{plan['delta']:.3g}", "the chance that ε does not hold"]
    first = figures.pop(plan["asked"])
    head = ["figure", "value", "what it is"]
    show_table(head, [first, *figures.values()], _assumed(scheme, plan), left=3)


def _assumed(scheme: Scheme, plan: dict[str, Any]) -> str:
    protected = (
        "Every update that leaves a client is protected, from the server too"
        if scheme.sampling == "local"
        else "Protected is a client with all its data, in what the server publishes"
    )
    text = f"{protected}. Neighbours: {scheme.neighbours}. Sampling: {scheme}."
    if plan["budget"] is not None:
        text += f" The budget is ε = {plan['budget']:g}."
    if plan["rounds"] == 0:
        text += " Not one round can be afforded: add noise, or raise --epsilon."
    if scheme.sampling == "fixed":
        text += " With Poisson sampling instead (--poisson) it costs less."
    if plan["vacuous"]:
        text += (
            " Vacuous: an attacker's odds that a client took part may grow more than 10^8-fold, "
            "which protects nobody."
        )
    return text
