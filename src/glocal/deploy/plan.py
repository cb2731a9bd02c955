"""The plan: what all participants of a deployment agree on before anyone trains.

It is a method, a configuration (which names the model) and the schema of the data, as a file of
JSON. Its digest also covers the code: that of glocal, and files of the user's that the plan names.
So a node that has approved a plan notices any change of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.core import checksums, files
from glocal.core.errors import GlocalError, shown
from glocal.core.target import Target
from glocal.core.version import VERSION
from glocal.data.federation import Federation
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.split import Split
from glocal.experiment import setup as setups
from glocal.experiment.adaptation import techniques
from glocal.experiment.config import Config
from glocal.experiment.config_reading import from_mapping
from glocal.experiment.runner import Federated, runner_of
from glocal.runs import same_data

FORMAT = 1


@dataclass(frozen=True)
class DataSchema:
    """What an example is, for every participant: no row of anybody's data is in it."""

    shape: tuple[int, ...]
    """Of the features of one example."""
    classes: int
    vocabulary: int | None = None
    """How many token ids there are, where features are token ids."""
    labels_shape: tuple[int, ...] = ()
    """Of the labels of one example: ``(t,)`` of a sequence."""
    target: Target = field(default_factory=Target)
    """What labels are; of numbers, the unit that they are standardised with."""
    label_words: Mapping[str, int] | None = None
    """The number of each class, where labels are words."""
    preprocessing: Preprocessing | None = None
    """How rows of a table become features: categories, means and deviations."""
    counted: Mapping[str, Any] | None = None
    """Of a schema that participants computed together: by whose counts, below which count nothing
    was named, and what missing numbers become; none: it is that of somebody's data."""

    @classmethod
    def of(cls, fed: Federation) -> DataSchema:
        """The schema of a federation."""
        return cls(
            tuple(fed.x.shape[1:]),
            fed.classes,
            fed.vocabulary,
            tuple(fed.y.shape[1:]),
            fed.target,
            fed.describe.get("labels"),
            fed.preprocessing,
        )

    def check(self, fed: Federation) -> None:
        """Refuse data that does not fit, in a sentence that says what does not."""
        other = DataSchema.of(fed)
        if other.shape != self.shape or other.labels_shape != self.labels_shape:
            raise GlocalError(
                f"an example of the plan has the shape {self.shape}, and of this data "
                f"{other.shape}: prepare the data as the plan says."
            )
        if (other.vocabulary is None) != (self.vocabulary is None):
            raise GlocalError(
                f"the plan's features are {_kind(self.vocabulary)}, and this data's are "
                f"{_kind(other.vocabulary)}: prepare the data as the plan says."
            )
        if self.vocabulary is not None and int(fed.x.max()) >= self.vocabulary:
            raise GlocalError(
                f"the plan has {self.vocabulary} token ids, from 0 up, and this data has "
                f"{int(fed.x.max())}: prepare the data as the plan says."
            )
        if (other.target, other.classes) != (self.target, self.classes):
            raise GlocalError(
                f"the plan is for {self.target.task} ({self.classes} outputs), and this data for "
                f"{other.target.task} ({other.classes}): prepare the data as the plan says."
            )
        if self.label_words is not None and dict(self.label_words) != dict(other.label_words or {}):
            raise GlocalError("the labels are other words than the plan's: name them as it does.")

    def without_rows(self, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Federation:
        """The federation as a server knows it: who is in it, how many examples each declared.

        ``counts`` are those of training, validation and test. All rows are one example of zeros,
        of the right shape and type, which is nobody's.
        """
        number = torch.float32 if self.vocabulary is None else torch.int64
        label = torch.int64 if self.target.classes else torch.float32
        y = torch.zeros((1, *self.labels_shape), dtype=label)
        about: dict[str, Any] = {"data": "at the nodes", "clients": len(names)}
        train, val, test = (_nobodys(torch.tensor(each)) for each in counts)
        if self.preprocessing is not None:
            about["categories"] = self.preprocessing.categories
        if self.vocabulary is not None:
            about["vocabulary"] = self.vocabulary
        return Federation(
            x=torch.zeros((1, *self.shape), dtype=number),
            y=y,
            y_train=y,
            classes=self.classes,
            names=tuple(names),
            label_shift_only=False,
            describe=about,
            pooled=False if self.target.classes else None,
            targets=(self.target,),
            train=train,
            val=val,
            test=test,
        )

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON holds it."""
        return {
            "shape": list(self.shape),
            "classes": self.classes,
            "vocabulary": self.vocabulary,
            "labels_shape": list(self.labels_shape),
            "target": self.target.to_json(),
            "label_words": None if self.label_words is None else dict(self.label_words),
            "preprocessing": self.preprocessing and self.preprocessing.to_json(),
            "counted": None if self.counted is None else dict(self.counted),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> DataSchema:
        """The schema again."""
        columns, words, vocabulary, counted = (
            given[name] for name in ("preprocessing", "label_words", "vocabulary", "counted")
        )
        return cls(
            tuple(int(size) for size in given["shape"]),
            int(given["classes"]),
            None if vocabulary is None else int(vocabulary),
            tuple(int(size) for size in given["labels_shape"]),
            Target.from_json(given["target"]),
            None if words is None else {str(word): int(n) for word, n in words.items()},
            None if columns is None else Preprocessing.from_json(columns),
            None if counted is None else dict(counted),
        )


def _kind(vocabulary: int | None) -> str:
    return "numbers" if vocabulary is None else "token ids"


def _nobodys(counts: Tensor) -> Split:
    """So many rows of each client, all of them the one example that is nobody's."""
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Split(torch.zeros(1, dtype=torch.int64).expand(int(start[-1])), start)  # one is stored


@dataclass(frozen=True)
class DeployPlan:
    """A method, a configuration and a schema; anything that is no plan for nodes is refused."""

    method: str
    """A spec, such as ``ditto(lam=0.1)+yogi``."""
    config: Config
    schema: DataSchema
    results: bool | None = None
    """Whether nodes send their clients' metrics; by default only where the method has no privacy,
    which would not cover them."""

    def __post_init__(self) -> None:
        for refused in (*refusals(self.config), *_refusals(self)):
            raise GlocalError(refused)
        _ = self.runner  # refuses a method that cannot be deployed

    @cached_property
    def runner(self) -> Federated:
        """The method as its clients and its server run it."""
        return federated(self.method)

    @property
    def sends_results(self) -> bool:
        """Whether metrics leave the nodes."""
        return not self.runner.private if self.results is None else self.results

    def setup(self, fed: Federation, *, server: bool = False) -> setups.Setup:
        """The model and the engine, for a node's clients or for a server without rows.

        Only the server has weights to begin with, if there are any (``init``): it sends them.
        """
        config = self.config if server else replace(self.config, init=None)
        return setups.make(config, fed, 0)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the plan, of glocal's code, and of the user's files that it names."""
        return digest_of(self.method, self.config, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON holds it."""
        return plan_json(self.method, self.config, self.schema.to_json(), self.results)

    @classmethod
    def from_json(cls, given: Any) -> DeployPlan:
        """The plan again; refuses what is none."""
        method, config, schema, results = parts_of(given)
        with whole():
            read = DataSchema.from_json(schema)
        return cls(method, config, read, results)

    def write(self, path: Path) -> None:
        """Write it to a file, atomically."""
        files.write(path, files.dump(self.to_json()))

    @classmethod
    def read(cls, path: Path) -> DeployPlan:
        """The plan in a file."""
        return cls.from_json(json_of(path))


def federated(method: str) -> Federated:
    """The method of a plan as its clients and its server run it; refuses one that sends nothing."""
    runner = runner_of(method, method)
    if not isinstance(runner, Federated):
        raise GlocalError(f"{method} sends nothing, so there is nothing to deploy.")
    for stage in runner.plan.stages:
        if stage.method.auxiliary is not None and stage.method.auxiliary.name == "adversary":
            raise GlocalError(
                "adversary hides protected attributes, of which a deployment's schema has none: "
                "leave it out of the plan."
            )
    return runner


def digest_of(method: str, config: Config, plan: Mapping[str, Any]) -> str:
    """The SHA-256 of a plan, of glocal's code, and of the user's files that it names."""
    code = {"glocal": VERSION, "code": checksums.of_package()}
    own = same_data.own_code([method], config)
    return checksums.of_json({**code, "own": own, "plan": plan})


def plan_json(method: str, config: Config, schema: Any, results: bool | None) -> dict[str, Any]:
    """A plan as JSON holds it, with its schema or with how that is to be found."""
    settings = {k: v for k, v in config.as_toml().items() if v != getattr(Config, k, None)}
    about = {"format": FORMAT, "method": method, "settings": settings}
    return {**about, "schema": schema, "results": results}


def parts_of(given: Any) -> tuple[str, Config, Any, bool | None]:
    """The method, the configuration, the schema (as JSON) and whether results are sent."""
    if not isinstance(given, Mapping) or given.get("format") != FORMAT:
        raise GlocalError("this is no plan of a deployment, or one of another version.")
    with whole():
        method, settings, schema, results = (
            given[k] for k in ("method", "settings", "schema", "results")
        )
    named_twice = isinstance(settings, Mapping) and "method" in settings
    if not isinstance(settings, Mapping) or named_twice or not isinstance(results, bool | None):
        raise GlocalError("the plan is damaged (its settings or results): get it again.")
    return str(method), from_mapping(settings), schema, results


@contextmanager
def whole() -> Iterator[None]:
    """Raise the sentence for a plan that is damaged, in place of Python's errors."""
    try:
        yield
    except GlocalError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise GlocalError(f"the plan is damaged ({type(error).__name__}): get it again.") from error


def json_of(path: Path) -> Any:
    """What is in a file of a plan."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GlocalError(f"{shown(str(path))} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise GlocalError(f"{shown(str(path))} is no plan: it is not JSON.") from error


def _refusals(plan: DeployPlan) -> list[str]:
    """What a schema cannot have."""
    fitted = plan.schema.preprocessing
    return [] if fitted is None or fitted.clients is None else [OWN_STATISTICS]


OWN_STATISTICS = (
    "statistics of each client by itself cannot be in a plan that all of them read: use "
    'preprocessing = "federated".'
)


def refusals(config: Config) -> list[str]:
    """Why this cannot be deployed, and what to do."""
    found = []
    text = from_mapping(config.as_toml())
    if replace(text, jobs=config.jobs) != config:
        found.append("a plan is text: name the model, metric and losses instead of giving objects.")
    if config.engine == "ray":
        found.append(
            "rows stay in their node's own process, and ray sends them to a cluster: leave engine "
            "out of the plan, or name another."
        )
    if config.attack is not None:
        found.append("attacks are for simulations: leave attack out of the plan.")
    if config.availability is not None or config.stragglers is not None:
        found.append(
            "real clients are away and slow by themselves: leave availability and stragglers out "
            "of the plan."
        )
    if "|" in str(config.model):
        found.append("clients with different models are simulated only: name one model for all.")
    if config.new_test:
        found.append(
            "new_test sets one test for models of all clients, and no test set is shared between "
            "nodes: leave new_test out of the plan."
        )
    if config.pooled:
        found.append(
            "pooled tests clients on everybody's examples, which do not leave their nodes: leave "
            "pooled out of the plan."
        )
    if config.public_noise:
        found.append(
            "noise that is drawn from the plan's seed could be taken off by anyone who has the "
            "plan: leave public_noise out of it."
        )
    if config.protected:
        found.append(
            "protected attributes are simulated only, since a schema has no place for them: leave "
            "protected out of the plan, and name such columns with drop."
        )
    if config.repeats != 1:
        found.append("a deployment trains once: leave repeats out of the plan.")
    if config.tune:
        found.append("rates are chosen in simulations: leave tune out of the plan, name the rate.")
    if config.baseline == "best":
        found.append('nodes train the same model alone: use baseline = "same" in the plan.')
    for technique in techniques(config.adapt):
        if technique.fisher in ("union", "public"):
            found.append(
                f"{technique.name}(fisher={technique.fisher}) needs what other participants have: "
                "use fisher=own in the plan."
            )
    return found
