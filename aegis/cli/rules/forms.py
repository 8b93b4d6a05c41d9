"""The form of rule tests and of the event that `explain --event` is given."""

from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from aegis.cli.client import CommandError, Exit
from aegis.model.catalogue import CATALOGUE
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.incident import DecisionResult, IncidentState, Remedy
from aegis.model.policy import Mode
from aegis.rules import Match
from aegis.rules.form import seconds

F = TypeVar("F", bound=BaseModel)
_STRICT = ConfigDict(extra="forbid")
_ORDER = ("class", "severity", "device", "count")


def _after(value: object) -> float:
    """A time after the beginning; 0 is one."""
    return 0.0 if value in (0, "0", "0s") else seconds(value)


def _named(value: object) -> object:
    """`[class, severity, device, count]` is short for the mapping."""
    return dict(zip(_ORDER, value, strict=False)) if isinstance(value, list) else value


After = Annotated[float, BeforeValidator(_after)]


class Earlier(BaseModel):
    """Faults like it that came before."""

    model_config = _STRICT

    ago: Annotated[float, BeforeValidator(seconds)]
    count: int = 1


class FaultForm(BaseModel):
    """A fault as a rule sees it."""

    model_config = _STRICT

    fault_class: Annotated[FaultClass, Field(alias="class")]
    severity: Severity | None = None  # none: the usual one
    node: str = "n1"
    device: str = "host"
    count: int = 1
    job: str = ""
    details: dict[str, str] = {}
    labels: dict[str, str] = {}  # of its node
    earlier: list[Earlier] = []

    def fault(self, at: float = 0.0) -> Fault:
        """The fault itself."""
        return Fault(
            fault_class=self.fault_class,
            severity=self.severity or CATALOGUE[self.fault_class].severity,
            node=self.node,
            device=self.device,
            count=self.count,
            observed_at=at,
            job=self.job or None,
            details=tuple(self.details.items()),
            evidence=(Evidence(source="test", text=f"{self.fault_class} on {self.device}"),),
        )

    def seen(self, _match: Match, fault: Fault, within: float) -> int:
        """How many came in this time, it included."""
        return fault.count + sum(one.count for one in self.earlier if one.ago <= within)


class Case(BaseModel):
    """Faults on which a rule fires, and faults that it leaves alone."""

    model_config = _STRICT

    rule: str
    remedy: Remedy
    fires_on: list[Annotated[FaultForm, BeforeValidator(_named)]] = []
    silent_on: list[Annotated[FaultForm, BeforeValidator(_named)]] = []


class Then(BaseModel):
    """What must have come of it."""

    model_config = _STRICT

    rule: str | None = None
    remedy: Remedy | None = None
    result: DecisionResult | None = None
    mode: Mode | None = None
    blocked_by: list[str] | None = None  # rails
    reason: str | None = None  # a part of it
    state: IncidentState | None = None  # of the newest incident
    out: list[str] | None = None  # nodes out of service


class Moment(BaseModel):
    """Something that happens at a time of the story, and what must have come of it."""

    model_config = _STRICT

    at: After
    fault: Annotated[FaultForm | None, BeforeValidator(_named)] = None
    begins: Annotated[FaultForm | None, BeforeValidator(_named)] = None  # and lasts
    ends: Annotated[FaultForm | None, BeforeValidator(_named)] = None
    returned: str = ""  # a person returns this node
    then: Then | None = None


class Story(BaseModel):
    """Signals over time and the decisions that they must lead to."""

    model_config = _STRICT

    name: str
    policy: dict[str, Any] = {}  # mode: enforce, when it says nothing else
    nodes: int = 2
    spares: int = 1
    labels: dict[str, dict[str, str]] = {}  # by node: n1, n2, …
    moments: list[Moment]


class TestsForm(BaseModel):
    """A file of tests."""

    model_config = _STRICT

    cases: list[Case] = []
    stories: list[Story] = []
    kind: Literal["RuleTests"] = "RuleTests"


def read(form: type[F], file: str, text: str) -> F:
    """What the text says. Raises CommandError with a sentence."""
    try:
        return form.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CommandError(
            f"{file}: {place}: {first['msg'].lower()}",
            "docs/how-to/write-a-rule.md shows the form",
            Exit.FAILURE,
        ) from error
