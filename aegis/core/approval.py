"""Asking people: what was asked, whether enough of them have agreed, and what silence means.

A yes is to what was told when it was given: the rails that refused, and what the act would hit. It
passes no rail that refuses later, and no process that came since; then people are asked anew.
"""

from dataclasses import replace

from aegis.core.cluster import Cluster
from aegis.core.incidents import note, notice
from aegis.core.words import duration, listed, who_must
from aegis.model.incident import (
    Approval,
    DecisionResult,
    EntryKind,
    Incident,
    IncidentState,
    Remedy,
)
from aegis.model.policy import Mode, Unanswered


def standing(cluster: Cluster, incident: Incident, remedy: Remedy, *about: str) -> tuple[bool, str]:
    """Whether people have agreed to the remedy in spite of this, and how that stands in words."""
    asked, needed = incident.approval, cluster.policy.approvals_needed
    waits = f"approve: Aegis waits for {who_must(needed)} to agree"
    if asked is None or asked.remedy is not remedy:
        return False, waits
    if asked.denied_by:
        return False, f"{asked.denied_by} forbade it: {asked.reason}"
    if (asked.consented or asked.agreed) and not set(about) <= set(asked.covers):
        return False, f"{waits} anew: this was not known when people did"
    if asked.consented or len(asked.agreed) >= needed:
        return True, f"{listed(asked.agreed)} agreed" if asked.agreed else "nobody objected in time"
    if asked.agreed:
        return False, f"approve: {listed(asked.agreed)} agreed, {needed} people must"
    return False, waits


def is_forbidden(incident: Incident, remedy: Remedy) -> bool:
    """Whether somebody said no to this remedy."""
    asked = incident.approval
    return asked is not None and asked.remedy is remedy and bool(asked.denied_by)


def question(incident: Incident) -> Approval | None:
    """What the incident asks, or asked and got a no to, as long as it is open."""
    if incident.state is not IncidentState.OPEN or not incident.decisions:
        return None
    decision, asked = incident.decisions[-1], incident.approval
    asks = decision.mode in (Mode.APPROVE, Mode.ENFORCE)
    return asked if asks and asked and asked.remedy is decision.remedy else None


def waiting_for_people(cluster: Cluster) -> list[Incident]:
    """The incidents that wait for somebody to agree, oldest first."""
    return [
        one
        for one in cluster.unresolved()
        if one.decisions and one.decisions[-1].result is DecisionResult.NEEDS_APPROVAL
    ]


def at_stake(incident: Incident) -> tuple[str, ...]:
    """What a yes would be about: the rails that refuse, and the plan, as last told."""
    decision = incident.decisions[-1]
    return (*(one.rail for one in decision.verdicts if not one.passed), *decision.plan)


def ask(cluster: Cluster, incident: Incident, remedy: Remedy) -> Incident:
    """Begin to wait for an answer."""
    asked, until = incident.approval, cluster.now + cluster.policy.approval_seconds
    if asked is not None and asked.remedy is remedy:
        return incident
    needed = cluster.policy.approvals_needed
    approval = Approval(
        remedy=remedy,
        asked_at=cluster.now,
        expires_at=until,
        needed=needed,
        covers=at_stake(incident),
    )
    return note(
        cluster,
        incident,
        EntryKind.DECISION,
        f"people are asked; {_unanswered(cluster)} without an answer in "
        f"{duration(cluster.policy.approval_seconds)}",
        approval=approval,
    )


def _unanswered(cluster: Cluster) -> str:
    acts = cluster.policy.approval_unanswered is Unanswered.ACT
    return "Aegis acts" if acts else "nothing is done"


def expire(cluster: Cluster, incident: Incident) -> Incident:
    """What time brings: an answer that counts no more, or none at all."""
    asked = question(incident)
    if asked is None or asked.expired or asked.denied_by or cluster.now < asked.expires_at:
        return incident
    waited = duration(cluster.now - asked.asked_at)
    if asked.consented or len(asked.agreed) >= cluster.policy.approvals_needed:
        text = f"the consent counts no more: it could not be acted on within {waited}"
        return _over(cluster, incident, asked, text)
    if cluster.policy.approval_unanswered is Unanswered.ACT:
        text = f"nobody objected within {waited}: by the policy that is consent"
        return note(
            cluster,
            incident,
            EntryKind.DECISION,
            text,
            approval=replace(
                asked,
                consented=True,
                expires_at=cluster.now + cluster.policy.approval_seconds,
            ),
        )
    return _over(cluster, incident, asked, f"nobody has agreed within {waited}: nothing is done")


def _over(cluster: Cluster, incident: Incident, asked: Approval, text: str) -> Incident:
    over = replace(asked, agreed=(), expired=True, consented=False)
    incident = note(cluster, incident, EntryKind.DECISION, text, approval=over)
    told = notice("incident.unanswered", incident)
    cluster.notices.append(replace(told, text=f"{told.text}; {text}"))
    return incident
