"""The rules in force: shown, read anew, explained, and how far each may go."""

from collections.abc import Collection
from http import HTTPStatus

from fastapi import APIRouter

from aegis.controller import reload
from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.configuration import ConfigurationError
from aegis.controller.problems import RESPONSES, ProblemError, not_found
from aegis.controller.services import Services
from aegis.controller.views import ModeRequest, RulesExplained, RulesView
from aegis.core.incidents import cause
from aegis.core.memory import Known
from aegis.core.modes import GROUP
from aegis.model.event import RuleModeSet
from aegis.rules.explain import explain

router = APIRouter(tags=["rules"], responses=RESPONSES, route_class=OnceRoute)


@router.get("/rules")
async def show_rules(here: Here) -> RulesView:
    """The rules in force, in the order in which they are asked."""
    return _view(here)


@router.post("/rules:reload")
async def reload_rules(here: Here, _token: Operator) -> RulesView:
    """Read rules and policy anew. What cannot be used changes nothing."""
    try:
        await reload.reload(here)
    except ConfigurationError as error:
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            str(error),
            "the rules and the policy before stay in force; mend the file and reload again",
            "invalid-rules",
        ) from error
    return _view(here)


@router.post("/rules/{rule}:mode")
async def set_mode(rule: str, body: ModeRequest, here: Here, token: Operator) -> RulesView:
    """Say how far a rule may go, everywhere or on the nodes of one group."""
    rules = here.loop.state.rules
    if rules.find(rule) is None:
        raise not_found("rule", rule, [one.id for one in rules.rules])
    groups = _groups(here)
    if body.group and body.group not in groups:
        known = f"known: {', '.join(sorted(groups))}" if groups else "no node has a group yet"
        raise ProblemError(HTTPStatus.NOT_FOUND, f"no node is of the group {body.group!r}", known)
    await here.loop.command(
        lambda at: RuleModeSet(
            at=at,
            rule=rule,
            group=body.group,
            mode=body.mode,
            actor=token.name,
            reason=body.reason,
        )
    )
    return _view(here)


@router.get("/incidents/{name}/rules")
async def explain_incident(name: str, here: Here) -> RulesExplained:
    """Why each rule that speaks of the incident's class fires or does not, as things are now."""
    incident = here.cluster.incidents.get(name)
    if incident is None:
        raise not_found("incident", name, [])
    fault, rules = cause(incident), here.loop.state.rules
    known = Known(here.cluster, fault.node)
    return RulesExplained(
        incident=incident.id,
        fault=fault,
        digest=rules.digest,
        rules=explain(rules, fault, known),
        decision=incident.decisions[-1] if incident.decisions else None,
    )


def _groups(here: Services) -> Collection[str]:
    labels = (dict(node.labels) for node in here.cluster.nodes.values())
    return {label[GROUP] for label in labels if GROUP in label}


def _view(here: Services) -> RulesView:
    rules = here.loop.state.rules
    return RulesView(
        digest=rules.digest,
        rules=rules.rules,
        reload_error=here.reloads.error,
        modes=here.cluster.rule_modes,
    )
