"""`aegis status`: how the whole stands, in one sentence."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded

_EPILOG = """\
examples:
  aegis status
  aegis status -o json | jq .level

exit codes: 0 ok, 10 degraded, 11 critical, 5 no controller
"""
_EXITS = {"ok": Exit.OK, "degraded": Exit.DEGRADED, "critical": Exit.CRITICAL}


def configure(parser: argparse.ArgumentParser) -> None:
    """Say in one sentence how nodes and jobs stand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run))


def run(arguments: argparse.Namespace) -> int:
    """Print it; the exit code is the level."""
    summary = Client.of(arguments).get("/summary")
    if arguments.output == "json":
        show.as_json(summary)
    else:
        _print(summary)
    return _EXITS[summary["level"]]


def _print(summary: dict[str, Any]) -> None:
    policy = summary["policy"]
    print(f"{summary['level'].upper()}: {summary['verdict']}\n")
    show.pairs(
        [
            ("nodes", _counts(summary["nodes"]) + f" · spares {summary['spares']}"),
            ("jobs", _counts(summary["jobs"])),
            ("open incidents", summary["open_incidents"]),
            ("mode", f"{policy['mode']} for nodes, {policy['job_mode']} for jobs"),
            ("paused", _paused(summary["paused"])),
            ("approvals", _approvals(summary["approvals_waiting"])),
            ("rules", _rules(summary)),
            ("controller", f"{summary['version']}, epoch {summary['epoch']}"),
            ("hardware", "simulated" if summary["simulated"] else ""),
        ]
    )
    if summary["open_incidents"]:
        print("\nnext: aegis incidents --state open")


def _rules(summary: dict[str, Any]) -> str:
    refused = summary.get("reload_error", "")
    why = f"; the last reload was refused: {refused}" if refused else ""
    return f"{summary['rules_digest']}{why}"


def _paused(paused: dict[str, Any] | None) -> str:
    if paused is None:
        return ""
    return f"by {paused['actor']}, {show.ago(paused['at'])} ago: {paused['reason']}"


def _approvals(waiting: int) -> str:
    return f"{waiting} waiting: `aegis incidents approve ID`" if waiting else ""


def _counts(counts: dict[str, int]) -> str:
    return " · ".join(f"{name} {count}" for name, count in counts.items()) or "none"
