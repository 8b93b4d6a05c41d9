"""An incident told in plain lines, for the one on call and for the one whose job it was."""

from typing import assert_never

from aegis.core.words import FAULTS, REMEDIES, duration, listed
from aegis.model.incident import (
    Decision,
    DecisionResult,
    EntryKind,
    Incident,
    IncidentState,
    Remedy,
)

PHASES = ("detect", "decide", "stop", "provision", "load", "first_step")


def seconds(incident: Incident) -> dict[str, float | None]:
    """How long each phase took; None where it was not reached.

    Phases follow each other, so their sum is the whole. A phase that ended before the one ahead of
    it (ranks that were gone before anyone decided to stop them) took no time.
    """
    phases = incident.phases
    ends = (
        phases.opened_at,
        phases.decided_at,
        phases.stopped_at,
        phases.started_at,
        phases.loaded_at,
        phases.first_step_at,
    )
    took: dict[str, float | None] = {}
    last = phases.observed_at
    for name, end in zip(PHASES, ends, strict=True):
        took[name] = None if end is None else max(0.0, end - last)
        last = last if end is None else max(last, end)
    return took


def where(incident: Incident) -> str:
    """The thing that broke: "node-2 gpu3", "rank 2 on node-1", "node-3"."""
    if incident.device.startswith("rank"):
        return f"{incident.node}, {incident.device.replace('rank', 'rank ')}"
    if incident.device.startswith("step"):
        return f"job {incident.job}, {incident.device.replace('step', 'step ')}"
    if incident.device in ("launcher", "ranks"):
        return f"{incident.node}, with its {incident.device}"
    if incident.device in ("", "host"):
        return incident.node or incident.job or ""
    return f"{incident.node} {incident.device}"


def headline(incident: Incident) -> str:
    """One sentence: what, where, effect, what Aegis did, and how it stands."""
    return f"{FAULTS[incident.fault_class]} on {where(incident)}: {_standing(incident)}"


def recovered(incident: Incident) -> str:
    """What came of a recovery, in one sentence."""
    moved = [name for name in incident.nodes_after if name not in incident.nodes_before]
    place = f"at {listed(moved)}" if moved else "in place"
    steps = ""
    if incident.resumed_step is not None:
        lost = incident.steps_lost or 0
        steps = f" from step {incident.resumed_step}, {lost} step{'' if lost == 1 else 's'} lost"
    end = incident.phases.first_step_at or incident.phases.loaded_at
    took = ""
    if end is not None:
        after = duration(max(0.0, end - incident.phases.observed_at))
        took = f", {after} after the fault"
    return f"job {incident.job} goes on {place}{steps}{took}"


def _standing(incident: Incident) -> str:
    match incident.state:
        case IncidentState.CLOSED:
            return incident.outcome
        case IncidentState.WATCHING:
            return "Aegis is watching whether it lasts"
        case IncidentState.RECOVERING:
            return _under_way(incident)
        case IncidentState.OPEN:
            return incident.decisions[-1].reason if incident.decisions else "not yet decided"
        case _:
            assert_never(incident.state)


def _under_way(incident: Incident) -> str:
    decision = incident.decisions[-1]
    if decision.remedy is Remedy.RESTART:
        return f"job {incident.job} is being restarted"
    if incident.job is None:
        return f"{incident.node} is being taken out"
    return f"{incident.node} is being drained and job {incident.job} moved"


def tell(incident: Incident) -> list[str]:
    """The story: what, where, effect, evidence, decision, action, outcome, seconds by phase."""
    lines = [
        f"{incident.id}  {incident.headline}",
        f"What      {incident.fault_class} ({incident.severity})"
        + (", on simulated hardware" if incident.simulated else ""),
        f"Where     {where(incident)}",
        *(f"Evidence  {text}" for text in _evidence(incident)),
        f"Effect    {_effect(incident)}",
        *(line for decision in incident.decisions for line in _decision(decision)),
        *(f"Action    {text}" for text in _texts(incident, EntryKind.ACTION)),
        *(f"Checkpoint {text}" for text in incident.rejected_checkpoints),
        *(f"Human     {text}" for text in _texts(incident, EntryKind.HUMAN)),
        f"Outcome   {incident.outcome or 'not over yet'}",
    ]
    if incident.phases.first_step_at is not None:
        lines.append(f"Seconds   {_where_time_went(incident)}")
    return lines


def _evidence(incident: Incident) -> list[str]:
    texts = [
        f"{one.source}: {one.text}"
        + (f" ({one.before} → {one.after})" if one.before and one.after else "")
        for fault in incident.faults
        for one in fault.evidence
    ]
    shown = list(dict.fromkeys(texts))[:4]
    if incident.suppressed:
        shown.append(f"{incident.suppressed} more signals of the same cause")
    return shown


def _effect(incident: Incident) -> str:
    if incident.job is None:
        return "no job was touched"
    if not _stopped(incident):
        return f"job {incident.job} has ranks there; Aegis has not stopped it"
    return (
        f"job {incident.job} stopped at step {incident.last_step_before} "
        f"(generation {incident.generation_before} on {listed(incident.nodes_before)})"
    )


def _stopped(incident: Incident) -> bool:
    acted = any(one.result is DecisionResult.ACTED for one in incident.decisions)
    return bool(incident.generation_before) and acted


def _decision(decision: Decision) -> list[str]:
    lines = [f"Decision  {decision.reason} (result: {decision.result})"]
    if decision.verdicts:
        said = "; ".join(
            f"{'✓' if one.passed else '✗'} {one.rail}: {one.text}" for one in decision.verdicts
        )
        lines.append(f"Rails     {said}")
    lines += [f"Refused   to {REMEDIES[one.remedy]}: {one.reason}" for one in decision.alternatives]
    if decision.clears_when and decision.result is not DecisionResult.ACTED:
        lines.append(f"Clears    {decision.clears_when}")
    return lines


def _texts(incident: Incident, kind: EntryKind) -> list[str]:
    return [entry.text for entry in incident.entries if entry.kind is kind]


def _where_time_went(incident: Incident) -> str:
    took = {name: value for name, value in seconds(incident).items() if value is not None}
    parts = [f"{name.replace('_', ' ')} {value:.2f}" for name, value in took.items()]
    return f"{' · '.join(parts)} · total {sum(took.values()):.2f}"
