"""An incident told in plain lines, for the one on call and for the one whose job it was."""

from typing import assert_never

from aegis.core.words import (
    CRASH,
    FAULTS,
    REMEDIES,
    REPAIR_VERBS,
    counted,
    duration,
    listed,
    who_must,
)
from aegis.model.fault import FaultClass
from aegis.model.incident import (
    Approval,
    Decision,
    DecisionResult,
    EntryKind,
    Incident,
    IncidentState,
    Remedy,
)

OUTPUT_LINES = 8
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


def what(incident: Incident) -> str:
    """What broke and where, as a headline begins: "Rank 3 died on node-2"."""
    words, node, device = FAULTS[incident.fault_class], incident.node, incident.device
    if device == "launcher":
        return f"Launcher gone on {node}"
    if device[:4] == "rank" and device[4:].isdigit():
        if incident.fault_class is FaultClass.JOB_HANG:
            return f"Rank {device[4:]} hangs on {node}"
        return f"{words.replace('Rank', f'Rank {device[4:]}', 1)} on {node}"
    if words.startswith("Node "):
        return words.replace("Node", f"Node {node}", 1)
    return f"{words} on {where(incident)}"


def where(incident: Incident) -> str:
    """The thing that broke: "node-2 gpu3", "node-1 rank3", "node-3"."""
    if incident.device.startswith("step"):
        return f"job {incident.job}, step {incident.device[4:]}"
    if incident.device in ("", "host", "ranks"):
        return incident.node or incident.job or ""
    return f"{incident.node} {incident.device}"


def headline(incident: Incident) -> str:
    """One sentence: what, where, effect, what Aegis did, and how it stands."""
    return f"{what(incident)}: {_standing(incident)}"


def recovered(incident: Incident) -> str:
    """What came of a recovery, in one sentence."""
    moved = [name for name in incident.nodes_after if name not in incident.nodes_before]
    text = f"job {incident.job} goes on {f'at {listed(moved)}' if moved else 'in place'}"
    if incident.resumed_step is not None:
        lost = counted(incident.steps_lost or 0, "step")
        text += f" from step {incident.resumed_step}, {lost} lost"
    end = incident.phases.first_step_at or incident.phases.loaded_at
    if end is not None:
        text += f", {duration(max(0.0, end - incident.phases.observed_at))} after the fault"
    if rejected := len(incident.rejected_checkpoints):
        text += f"; {counted(rejected, 'newer checkpoint')} failed verification"
    return text


def _standing(incident: Incident) -> str:
    match incident.state:
        case IncidentState.CLOSED:
            return incident.outcome
        case IncidentState.WATCHING:
            return "Aegis is watching whether it lasts"
        case IncidentState.RECOVERING:
            return _under_way(incident)
        case IncidentState.OPEN if not incident.decisions:
            return "not decided"
        case IncidentState.OPEN if incident.decisions[-1].result is DecisionResult.ACTED:
            return _being_repaired(incident)
        case IncidentState.OPEN:
            return held_back(incident.decisions[-1], incident.approval)
        case _:
            assert_never(incident.state)


def _under_way(incident: Incident) -> str:
    decision = incident.decisions[-1]
    if decision.result is DecisionResult.BLOCKED:
        return f"job {incident.job} is being given up"
    if decision.remedy is Remedy.RESTART:
        return f"job {incident.job} is being restarted"
    if incident.job is None:
        return f"{incident.node} is being taken out"
    return f"{incident.node} is being drained and job {incident.job} moved"


def _being_repaired(incident: Incident) -> str:
    if incident.decisions[-1].remedy is Remedy.REBOOT:
        return f"{incident.node} is being rebooted"
    return f"the GPUs of {incident.node} are being reset"


def held_back(decision: Decision, asked: Approval | None = None) -> str:
    """Why nothing is under way."""
    begun = bool(decision.plan)  # the node is out: what is left is the repair
    remedy = REPAIR_VERBS[decision.remedy] if begun else REMEDIES[decision.remedy]
    match decision.result:
        case DecisionResult.WOULD_ACT:
            return f"Aegis would {remedy}, but the mode is {decision.mode}"
        case DecisionResult.NEEDS_APPROVAL:
            return f"Aegis would {remedy} and waits for {_whom(asked)} to agree"
        case DecisionResult.BLOCKED:
            refused = [one.text for one in decision.verdicts if not one.passed]
            return f"Aegis would {remedy}, but {listed(refused)}"
        case DecisionResult.NOTHING | DecisionResult.ACTED:
            return "it lasts, and no act is called for"
        case _:
            assert_never(decision.result)


def _whom(asked: Approval | None) -> str:
    if asked is None or not asked.agreed:
        return who_must(asked.needed if asked else 1)
    more = asked.needed - len(asked.agreed)
    if more <= 0:
        return f"{who_must(asked.needed)} ({listed(asked.agreed)} did, to less than it is now)"
    return f"{more} more ({listed(asked.agreed)} did)"


def tell(incident: Incident) -> list[str]:
    """The story: what, where, effect, evidence, decision, action, outcome, seconds by phase."""
    lines = [
        f"{incident.id}  {incident.headline}",
        f"What      {incident.fault_class} ({incident.severity})"
        + (", on simulated hardware" if incident.simulated else ""),
        f"Where     {where(incident)}",
        *(f"Evidence  {text}" for text in _evidence(incident)),
        *(f"Output    {text}" for text in _output(incident)),
        f"Effect    {_effect(incident)}",
        *(line for decision in incident.decisions for line in _decision(decision)),
        *(f"Action    {text}" for text in _texts(incident, EntryKind.ACTION)),
        *(f"Skipped   {text}{_instead(incident)}" for text in incident.rejected_checkpoints),
        *(f"Human     {text}" for text in _texts(incident, EntryKind.HUMAN)),
        f"Outcome   {incident.outcome or 'not over yet'}",
    ]
    if incident.phases.first_step_at is not None:
        lines.append(f"Seconds   {_where_time_went(incident)}")
    return lines


def _instead(incident: Incident) -> str:
    step = incident.resumed_step
    return "" if step is None else f"; resumed from step {step}"


def _evidence(incident: Incident) -> list[str]:
    texts = [
        f"{one.source}: {one.text}"
        + (f" ({one.before} → {one.after})" if one.before and one.after else "")
        for fault in incident.faults
        for one in fault.evidence
    ]
    shown = list(dict.fromkeys(texts))[:4]
    if incident.suppressed:
        shown.append(f"{counted(incident.suppressed, 'more signal')} of the same cause")
    return shown


def _output(incident: Incident) -> list[str]:
    """The end of what the first rank to fail has written, or the stack of the one that hangs."""
    if not incident.faults or not incident.faults[0].job:
        return []
    texts = (one.after for one in incident.faults[0].evidence if one.before is None and one.after)
    lines = [line for line in next(texts, "").splitlines() if line.strip()]
    if len(lines) < 2:
        return []
    # A stack's innermost call comes first, a traceback's last.
    stack = incident.fault_class is FaultClass.JOB_HANG or lines[0].startswith(CRASH)
    return lines[:OUTPUT_LINES] if stack else lines[-OUTPUT_LINES:]


def _effect(incident: Incident) -> str:
    if incident.job is None:
        return "no job was touched"
    at = (
        f"at step {incident.last_step_before} "
        f"(generation {incident.generation_before} on {listed(incident.nodes_before)})"
    )
    acted = any(one.result is DecisionResult.ACTED for one in incident.decisions)
    if incident.generation_before and (acted or incident.phases.stopped_at is not None):
        return f"job {incident.job} stopped {at}"
    if incident.fault_class.startswith("job.worker"):
        return f"job {incident.job} lost a rank {at}"
    return f"job {incident.job} has ranks there; Aegis has not stopped it"


def _decision(decision: Decision) -> list[str]:
    lines = [f"Decision  {decision.reason} (result: {decision.result})"]
    if decision.verdicts:
        said = "; ".join(
            f"{'✓' if one.passed else '✗'} {one.rail}: {one.text}" for one in decision.verdicts
        )
        lines.append(f"Rails     {said}")
    lines += [f"Hits      {text}" for text in decision.plan]
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
