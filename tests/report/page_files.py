"""Run folders made by hand, as comparisons leave them: nothing is trained for these tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

NAMES = ("Görlitz", "Köln", "Lübeck", "München", "Würzburg")


def row(name: str, k: int, gain: float | None, **more: Any) -> dict[str, Any]:
    """A client's row of result.json; half its interval is 3 points."""
    known = gain is not None
    low, high = (gain - 0.0301, gain + 0.0299) if gain is not None else (None, None)
    verdict = "undecided"
    if low is not None and high is not None:
        verdict = "better off" if low > 0 else "worse off" if high < 0 else "undecided"
    figures = {"benefit": gain, "estimate": gain, "low": low, "high": high, "verdict": verdict}
    return {
        "client": name,
        "n_train": 211 + 7 * k,
        "n_val": 31 + k,
        "n_test": 61 + k,
        **figures,
        "needs": {"examples": 1234 + k} if verdict == "undecided" and known else None,
        "value": 0.7123 + (gain or 0.0) if known else None,
        "local_value": 0.7123 if known else None,
        "best_local_value": None,
        "constant_value": 0.5171 if known else None,
        "ece": 0.0421 + 0.001 * k,
        "mce": 0.2342 + 0.001 * k,
        "model": "assembled",
        **more,
    }


def method(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A method of result.json with these rows."""
    gains = [r["benefit"] for r in rows if r["benefit"] is not None]
    counts = {
        w.replace(" ", "_"): sum(r["verdict"] == w for r in rows)
        for w in ("better off", "worse off", "same", "undecided")
    }
    benefit = sum(gains) / len(gains) if gains else None
    spread = {"mean": 0.7423, "worst10": 0.6217, "best10": 0.8842, "gini": 5.27, "gap": 0.2625}
    return {
        "summary": {
            **spread,
            "median": 0.7511,
            "benefit": benefit,
            "benefit_low": None if benefit is None else benefit - 0.0123,
            "benefit_high": None if benefit is None else benefit + 0.0123,
            **counts,
            "clients": len(rows),
            "repeats": 4,
            "estimate": "own",
            "params_up": 4_170_000,
            "params_down": 4_280_000,
            "bytes_up": 16_680_000,
            "gradient_evaluations": 736_000,
            "epsilon": None,
            "metric": "accuracy",
            "lower_is_better": False,
            "constant_mean": 0.5171,
            "covers": "training and tests",
            "at_least": 2,
            "by_chance": 0.4,
            "parameters": 8386,
            "same_within": None,
            "metrics": {
                k: {"mean": 0.0441, "worst10": 0.0662} if k == "ece" else {"mean": 0.2362}
                for k in ("ece", "mce")
            },
            **more,
        },
        "clients": rows,
    }


def curve(rounds: int = 6, metric: str = "accuracy") -> list[dict[str, Any]]:
    """Lines of metrics.jsonl, of two repeats."""
    return [
        {
            "round": t,
            "repeat": r,
            "train_loss": 1.13 / t,
            "val_loss": 1.27 / t + 0.017 * r,
            f"val_{metric}": 0.713 - 0.37 / t + 0.013 * r,
            "val_worst10": 0.513 - 0.37 / t,
            "val_gini": 23.7 / t,
        }
        for r in (1, 2)
        for t in range(1, rounds + 1)
    ]


def comparison(
    root: Path,
    methods: dict[str, dict[str, Any]],
    *,
    lines: Sequence[dict[str, Any]] | None = None,
    finished: bool = True,
    clients: int = len(NAMES),
    fingerprint: str = "1f9a",
) -> Path:
    """A folder of a comparison with these methods."""
    folders = [f"m{i}" for i in range(len(methods))]
    root.mkdir(parents=True)
    about = f"methods = {json.dumps(list(methods))}\nfolders = {json.dumps(folders)}\n"
    (root / "comparison.toml").write_text(f"{about}choose = false\n\n[settings]\nrounds = 6\n")
    data = {"data": "h.csv", "partition": "own ids", "clients": clients}
    for name, folder in zip(methods, folders, strict=True):
        where = root / folder
        where.mkdir()
        text = f"method = {json.dumps(name)}\nrounds = 6\nrepeats = 2\n\n[federation]\n"
        text += f'data = "h.csv"\nclients = {clients}\nfingerprint = "{fingerprint}"\n'
        (where / "settings.toml").write_text(text + '\n[versions]\nglocal = "0.1.0"\n')
        shown = curve() if lines is None else lines
        (where / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in shown))
        if finished:
            own = {"schema": 1, "data": data, "methods": {name: methods[name]}, "participants": []}
            (where / "result.json").write_text(json.dumps(own))
    if finished:
        said = [
            {"client": r["client"], "advised": "ditto", "verdict": r["verdict"],
             "sentence": f"{r['client']}: join with ditto, +4.2 points (1.2 … 7.2)."}
            for r in next(iter(methods.values()))["clients"]
        ]  # fmt: skip
        result = {"schema": 1, "data": data, "methods": methods, "participants": said}
        (root / "result.json").write_text(json.dumps(result))
    return root


GAINS = {"fedavg": (0.0421, -0.0512, 0.0123, 0.0721, 0.0009),
         "ditto": (0.0521, 0.0612, 0.0223, 0.0821, 0.0119)}  # fmt: skip


def usual(names: Sequence[str] = NAMES, **more: Any) -> dict[str, dict[str, Any]]:
    """Two methods on five clients."""
    return {
        spec: method([row(n, k, gains[k]) for k, n in enumerate(names)], **more)
        for spec, gains in GAINS.items()
    }


class Element:
    """An element of a page: its name, attributes, parents, and the text inside."""

    def __init__(self, name: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.name, self.attributes, self.parent = name, attributes, parent
        self.parts: list[str] = []
        self.own: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def above(self) -> list[Element]:
        """It and everything that it is in."""
        return [self, *(self.parent.above() if self.parent else [])]


class Page(HTMLParser):
    """A page's elements."""

    VOID = ("meta", "img", "input", "br", "hr", "link")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: Element | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {k: v or "" for k, v in attrs}, self.open)
        self.elements.append(element)
        if tag not in self.VOID:
            self.open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {k: v or "" for k, v in attrs}, self.open))

    def handle_endtag(self, tag: str) -> None:
        assert self.open is not None, f"</{tag}> closes nothing"
        assert self.open.name == tag, f"</{tag}> closes <{self.open.name}>"
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.open.own.append(data)
            for element in self.open.above():
                element.parts.append(data)

    def of(self, name: str) -> list[Element]:
        return [e for e in self.elements if e.name == name]

    def with_class(self, name: str) -> list[Element]:
        return [e for e in self.elements if name in e.attributes.get("class", "").split()]

    @property
    def data(self) -> dict[str, Any]:
        (script,) = [e for e in self.elements if e.attributes.get("id") == "data"]
        found: dict[str, Any] = json.loads(script.text)
        return found


def at(data: Any, pointer: str) -> Any:
    """What a JSON pointer leads to."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data
