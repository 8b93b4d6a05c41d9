"""What people say: to an incident, to a question of Aegis, and to all of its automation.

`refusal` is asked before the event is written to the log; `apply` then carries it out.
"""

import unicodedata
from dataclasses import replace
from typing import TypeAlias, assert_never

from aegis.core import windows
from aegis.core.act import reconsider
from aegis.core.approval import at_stake, question
from aegis.core.cluster import Cluster, Pause
from aegis.core.incidents import note
from aegis.model.action import Notify
from aegis.model.event import (
    AutomationPaused,
    AutomationResumed,
    IncidentAcknowledged,
    IncidentApproved,
    IncidentDenied,
    IncidentJudged,
    IncidentNoted,
    WindowEnded,
    WindowSet,
)
from aegis.model.fault import Severity
from aegis.model.incident import Approval, EntryKind, Feedback, Incident, IncidentState
from aegis.rules import RuleSet

Answer: TypeAlias = IncidentApproved | IncidentDenied
Remark: TypeAlias = IncidentAcknowledged | IncidentNoted | IncidentJudged
Planned: TypeAlias = WindowSet | WindowEnded
Said: TypeAlias = Answer | Remark | AutomationPaused | AutomationResumed | Planned


def refusal(cluster: Cluster, event: Said) -> str | None:
    """Why it is refused, and what to do instead; None when it may be logged."""
    match event:
        case AutomationPaused():
            paused = cluster.paused
            return f"{paused.actor} has paused it already: {paused.reason}" if paused else None
        case AutomationResumed():
            return None if cluster.paused else "nothing is paused"
        case WindowSet() | WindowEnded():
            return windows.refusal(cluster, event)
        case _:
            incident = cluster.incidents.get(event.incident)
            if incident is None:
                return f"no incident is called {event.incident}: see `aegis incidents`"
            return _refused(incident, event)


def _refused(incident: Incident, event: Answer | Remark) -> str | None:
    match event:
        case IncidentApproved() | IncidentDenied():
            if (asked := question(incident)) is None:
                return f"{incident.id} asks for no approval: {incident.headline}"
            known = not _is_news(incident, asked) and isinstance(event, IncidentApproved)
            if known and _is_among(event.actor, asked.agreed):
                return f"{event.actor} has agreed already: another person must agree too"
            return None
        case IncidentAcknowledged() if incident.state is IncidentState.CLOSED:
            return f"{incident.id} is closed already: {incident.outcome}"
        case _:
            return None


def _is_among(actor: str, agreed: tuple[str, ...]) -> bool:
    """Whether it is one of them: a name in other letters is no second person."""
    return _plain(actor) in {_plain(one) for one in agreed}


def _plain(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def apply(cluster: Cluster, rules: RuleSet, event: Said) -> None:
    """Carry it out. What is no longer possible changes nothing."""
    if refusal(cluster, event) is not None:
        return
    match event:
        case AutomationPaused():
            cluster.paused = Pause(at=cluster.now, actor=event.actor, reason=event.reason)
            _tell(cluster, "automation.paused", f"{event.actor} paused all automation", event)
        case AutomationResumed():
            cluster.paused = None
            _tell(cluster, "automation.resumed", f"{event.actor} resumed automation", event)
            _look_at_all(cluster, rules)
        case WindowSet() | WindowEnded():
            windows.apply(cluster, event)
            _look_at_all(cluster, rules)
        case IncidentApproved() | IncidentDenied():
            _answer(cluster, event)
            reconsider(cluster, rules, cluster.incidents[event.incident])
        case _:
            _remark(cluster, event)


def _look_at_all(cluster: Cluster, rules: RuleSet) -> None:
    for incident in cluster.unresolved():
        reconsider(cluster, rules, cluster.incidents[incident.id])


def _tell(
    cluster: Cluster, kind: str, what: str, event: AutomationPaused | AutomationResumed
) -> None:
    text = f"{what}: {event.reason}"
    cluster.notices.append(Notify(kind=kind, severity=Severity.WARNING, text=text))


def _answer(cluster: Cluster, event: Answer) -> None:
    incident = cluster.incidents[event.incident]
    asked = question(incident)
    if asked is None:
        return
    if isinstance(event, IncidentApproved):
        text = f"{event.actor} agreed: {event.reason}"
        answered = _agreed(cluster, incident, asked, event)
    else:
        text = f"{event.actor} forbade it: {event.reason}"
        answered = replace(
            asked, agreed=(), denied_by=event.actor, reason=event.reason, consented=False
        )
    note(cluster, incident, EntryKind.HUMAN, text, approval=answered)


def _is_news(incident: Incident, asked: Approval) -> bool:
    """Whether a yes is about more by now than those who agreed knew of."""
    return not set(at_stake(incident)) <= set(asked.covers)


def _agreed(
    cluster: Cluster, incident: Incident, asked: Approval, event: IncidentApproved
) -> Approval:
    """Who agrees too late, after a no or to something more has asked the question anew."""
    is_news = _is_news(incident, asked)
    is_over = asked.expired or bool(asked.denied_by) or is_news
    expires_at = cluster.now + cluster.policy.approval_seconds if is_over else asked.expires_at
    return replace(
        asked,
        expires_at=expires_at,
        agreed=(*(() if is_news else asked.agreed), event.actor),
        covers=tuple(sorted({*asked.covers, *at_stake(incident)})),
        consented=False,
        denied_by="",
        reason=event.reason,
        expired=False,
    )


_FEEDBACK = {
    Feedback.RIGHT: "was right",
    Feedback.WRONG: "was wrong",
    Feedback.WRONG_NODE: "was about the wrong node",
}


def _remark(cluster: Cluster, event: Remark) -> None:
    incident = cluster.incidents[event.incident]
    match event:
        case IncidentAcknowledged():
            text = f"{event.actor} looks after it: {event.reason}"
            note(cluster, incident, EntryKind.HUMAN, text, acknowledged_by=event.actor)
        case IncidentNoted():
            note(cluster, incident, EntryKind.HUMAN, f"{event.actor}: {event.reason}")
        case IncidentJudged():
            text = f"{event.actor} says that the decision {_FEEDBACK[event.feedback]}"
            text += f": {event.reason}" if event.reason else ""
            note(
                cluster,
                incident,
                EntryKind.HUMAN,
                text,
                feedback=event.feedback,
                feedback_by=event.actor,
            )
        case _:
            assert_never(event)
