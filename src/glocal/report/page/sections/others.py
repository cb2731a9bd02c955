"""Privacy spent, synthetic data, adaptation, and how to run it again."""

from __future__ import annotations

from glocal.report.page.markup import Html, Place, join, tag
from glocal.report.page.sections.common import (
    finished,
    paragraphs,
    prefix,
    section,
    table,
    unit,
)


def privacy(group: Place) -> Html | None:
    """What was spent, in the words of the terminal: vacuous is called vacuous."""
    said = paragraphs((group / "words").get("privacy"))
    return section(f"{prefix(group)}-privacy", "Privacy spent", *said) if said else None


def synthetic(group: Place) -> Html | None:
    """What synthetic data is worth and gives away, and a sheet of it."""
    said = paragraphs((group / "words").get("synthetic"))
    sheets = [
        tag(
            "figure",
            tag("figcaption", tag("strong", f"Synthetic data of {name}"), ", a row for each class"),
            tag("img", src=place.value, alt=f"Synthetic examples that {name} made, by class"),
        )
        for name, place in (group / "pictures").items()
    ]
    if not said and not sheets:
        return None
    return section(f"{prefix(group)}-synthetic", "Synthetic data", *said, *sheets)


def adaptation(group: Place) -> Html | None:
    """Before and after participants adapted what they received."""
    methods = [(n, m) for n, m in finished(group) if "adapted" in m.value["summary"]]
    if not methods:
        return None
    how, rows = unit(group), []
    for name, method in methods:
        s = method / "summary"
        adapted = s / "adapted"
        by = sorted(adapted.value["by"].items(), key=lambda item: -item[1])
        shown = [join((adapted / "by" / k).number(), f" {k}") for k, _ in by]
        middle = adapted / "gain"
        ends = join(
            " (",
            middle.get("low").number(how.difference),
            " … ",
            middle.get("high").number(how.difference),
            ")",
        )
        rows.append(
            [
                tag("bdi", name),
                (s / "mean").number(how.value),
                s.get("adapted_mean").number(how.value),
                join(
                    middle.get("difference").number(how.difference),
                    ends if middle.value.get("low") is not None else None,
                ),
                *(
                    join(s.get(k).number(), " → ", s.get(f"adapted_{k}").number())
                    for k in ("better_off", "worse_off")
                ),
                join(*[part for each in shown for part in (", ", each)][1:]),
            ]
        )
    head = ["method", f"mean {how.heading}", f"adapted {how.heading}", "gain", "better off"]
    name = prefix(group)
    note = (
        "Adapted: each client goes on from what it got, on its own data; rate, epoch and "
        "technique are chosen on its validation data. Better and worse off than alone: before → "
        "after."
    )
    return section(
        f"{name}-adaptation",
        "Adapted",
        tag("p", note),
        table(
            f"{name}-adaptation-table",
            "Before and after adaptation",
            [*head, "worse off", "adapted by"],
            rows,
        ),
    )


def again(group: Place) -> Html | None:
    """The settings file, the command that runs it, and the versions that ran."""
    place = group.get("again")
    if not place.value:
        return None
    name = prefix(group)
    text = "\n".join(place.value["lines"])
    versions = [
        join(tag("dt", key), tag("dd", version.text()))
        for key, version in (place / "versions").items()
    ]
    return section(
        f"{name}-again",
        "To run it again",
        tag(
            "p",
            "Save these settings as ",
            (place / "file").text("code"),
            ", then: ",
            (place / "command").text("code"),
        ),
        tag("p", tag("button", "Save settings", type="button", data_save="text"), class_="tools"),
        tag("pre", text, tabindex="0", aria_label="Settings", data_name=place.value["file"]),
        tag("h3", "Versions that ran") if versions else None,
        tag("dl", *versions) if versions else None,
    )


def meaning(group: Place) -> Html | None:
    """What the figures mean, for the page of one participant."""
    said = paragraphs((group / "words").get("legend"))
    return section(f"{prefix(group)}-meaning", "What the figures mean", *said) if said else None
