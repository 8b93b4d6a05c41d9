"""`aegis scan`: one look at this node, and a verdict."""

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aegis.model.catalogue import CATALOGUE
from aegis.model.node import Device, Health
from aegis.wire import Report, to_jsonable
from aegis_agent import settings as reading
from aegis_agent.loop import look_once
from aegis_agent.probes import verdict as judging
from aegis_agent.probes.verdict import Finding, Gap, Outcome, Verdict, When
from aegis_agent.senses.guard import FAILED
from aegis_agent.settings import Settings, SettingsError
from aegis_agent.sources import access, host

_FLAGS = ("node", "sys_root", "fabric", "kernel_log")
_EXPLAINED_MAX = 5
_EPILOG = """\
examples:
  aegis scan
  aegis scan -o json | jq .verdict
  aegis scan && sbatch job.sh

It takes up to 15 seconds, or 30 where a site's own checks do, remembers nothing, and disturbs no
agent that runs.

exit codes: 0 healthy, 1 something was found, 2 it could not be told
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Look at this node once: every device, every finding, a verdict."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="the agent's agent.yaml; flags win over it")
    add("--node", metavar="NAME", help="this node's name (default: the host's)")
    add("--sys-root", type=Path, metavar="DIR", help="read here instead of in /sys")
    add("--kernel-log", type=Path, metavar="PATH", help="read kernel lines here, not /dev/kmsg")
    add(
        "--fabric",
        type=reading.parse_fabric,
        metavar="IFACE[,IFACE]",
        help="the ports that training needs (default: auto, found by where they sit), or none",
    )
    add("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look, judge, print."""
    logging.basicConfig(level=logging.CRITICAL)  # what went wrong stands in what is printed
    flags = {name: getattr(arguments, name) for name in _FLAGS}
    try:
        settings = reading.read(arguments.config, flags, host.hostname())
    except SettingsError as error:
        print(f"aegis scan: {error}", file=sys.stderr)
        return Outcome.UNKNOWN
    began_at = time.monotonic()
    loop = asyncio.new_event_loop()
    report, late = loop.run_until_complete(look_once(settings))
    verdict = judge(settings, report, late)
    seconds = time.monotonic() - began_at
    if arguments.output == "json":
        print(json.dumps(_as_json(report, verdict, seconds), indent=2))
    else:
        print("\n".join(_as_text(report, verdict, seconds)))
    sys.stdout.flush()
    if late:
        os._exit(verdict.outcome)  # a read that hangs would be waited for
    loop.close()
    return verdict.outcome


def judge(settings: Settings, report: Report, late: Sequence[str]) -> Verdict:
    """What the look came to."""
    node = report.report
    gpus = sum(device.kind == "gpu" for device in node.devices)
    gaps = [
        *(Gap(what=name, why="it did not end in time") for name in late),
        *(Gap(what=name, why=why) for name, why in node.sources if why.startswith(FAILED)),
        *access.unread_gpus(settings.sys_root, gpus),
        *access.denied(),
    ]
    return judging.judge(node.devices, node.conditions, [one.fault for one in report.faults], gaps)


# ── what it prints ────────────────────────────────────────────────────────────────────────────


def _as_json(report: Report, verdict: Verdict, seconds: float) -> dict[str, Any]:
    node = report.report
    return {
        "node": node.node,
        "verdict": verdict.outcome.name.lower(),
        "sentence": verdict.sentence,
        "simulated": node.simulated,
        "boot_id": node.boot_id,
        "at": report.sent_at,
        "seconds": round(seconds, 2),
        "findings": [_finding_as_json(one) for one in verdict.findings],
        "devices": to_jsonable(node)["devices"],
        "not_read": [
            {"what": gap.what, "why": gap.why, "allow": gap.allow, "essential": gap.essential}
            for gap in verdict.gaps
        ],
        "read_through": dict(node.sources),
    }


def _finding_as_json(one: Finding) -> dict[str, Any]:
    entry = CATALOGUE[one.fault_class] if one.fault_class else None
    return {
        "class": one.fault_class,
        "title": entry.title if entry else "",
        "severity": one.severity,
        "device": one.device,
        "when": one.when,
        "since": one.since or None,
        "count": one.count,
        "counts": one.counts,
        "evidence": one.evidence,
    }


def _as_text(report: Report, verdict: Verdict, seconds: float) -> Iterable[str]:
    node = report.report
    simulated = "  (simulated hardware)" if node.simulated else ""
    yield f"{node.node}{simulated}: {verdict.sentence}"
    yield ""
    counted = [one for one in verdict.findings if one.counts]
    others = [one for one in verdict.findings if not one.counts]
    if counted:
        yield from _table(_FINDING_TITLES, map(_finding_as_row, counted))
        yield ""
        yield from _explained(counted)
        yield ""
    yield from _table(
        ("DEVICE", "KIND", "HEALTH", "COUNTERS", "DETAIL"),
        (
            (
                device.name,
                device.kind + ("" if device.used else " (unused)"),
                _health(device, counted),
                _counters(device) or "-",
                device.detail or device.identity or "-",
            )
            for device in node.devices
        ),
    )
    if verdict.gaps:
        yield "\nNot read"
        for gap in verdict.gaps:
            yield f"  {gap.what}: {gap.why}" + (f"; {gap.allow}" if gap.allow else "")
    if others:
        yield "\nEarlier, the application's, or of no consequence"
        yield from _table(_FINDING_TITLES, map(_finding_as_row, others))
    yield "\nRead through"
    for name, text in node.sources:
        yield f"  {name}: {text}"
    yield f"\nin {seconds:.1f} s"


def _health(device: Device, counted: Iterable[Finding]) -> str:
    """As it reads now; one that reads well beside a finding is not called healthy for it."""
    if device.health is Health.HEALTHY and any(one.device == device.name for one in counted):
        return "see above"
    return device.health.value


def _counters(device: Device) -> str:
    return " ".join(
        f"{name}={value}"
        for name, value in device.counters
        if value and not name.endswith("_at")  # times say nothing here
    )


_FINDING_TITLES = ("SEVERITY", "CLASS", "DEVICE", "SINCE", "COUNT", "EVIDENCE")


def _finding_as_row(one: Finding) -> Sequence[str]:
    since = "-"
    if one.since:
        since = datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    evidence = one.evidence[0] if one.evidence else "-"
    more = f" (and {len(one.evidence) - 1} more)" if len(one.evidence) > 1 else ""
    when = "" if one.when is not When.EARLIER else " (over)"
    return (
        one.severity,
        one.fault_class or "-",
        one.device,
        since + when,
        str(one.count),
        (evidence if len(evidence) <= 160 else evidence[:159] + "…") + more,
    )


def _explained(counted: Sequence[Finding]) -> Iterable[str]:
    """What the worst of them mean, and what to look at first."""
    classes = list(dict.fromkeys(one.fault_class for one in counted if one.fault_class))
    for fault_class in classes[:_EXPLAINED_MAX]:
        entry = CATALOGUE[fault_class]
        yield f"{fault_class}: {entry.description} {entry.answer}"
        yield f"  Look at {entry.check[0]}"
    if classes:
        yield "`aegis faults CLASS` says more."


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    lines = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()
