"""`aegis validate`: whether this node may serve again, looked at closely, now."""

import argparse
import asyncio
import json
import logging
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from aegis.model.node import Device
from aegis.model.validation import Depth, Step, StepState, ValidationState, outcome
from aegis_agent import settings as reading
from aegis_agent.loop import look_once
from aegis_agent.probes import validation as judging
from aegis_agent.settings import Settings, SettingsError
from aegis_agent.sources import host
from aegis_agent.validation import BASELINE_KEY, read_baseline, steps

_FLAGS = ("node", "sys_root", "fabric", "state_dir")
_CODES = {ValidationState.PASSED: 0, ValidationState.FAILED: 1, ValidationState.UNKNOWN: 2}
_EPILOG = """\
examples:
  aegis validate
  aegis validate full --config /etc/aegis/agent.yaml
  aegis validate -o json | jq '.steps[] | select(.state != "pass")'

light takes up to a minute, full up to ten: it also runs the site checks with `when: return`. Run it
on a node without ranks: it uses GPUs and memory. It changes nothing, on the node or in Aegis.

exit codes: 0 passed, 1 a step failed, 2 nothing failed and something could not be told
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Look closely at this node, as is done before it serves again."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("depth", nargs="?", choices=("light", "full"), default="light")
    add("--config", type=Path, metavar="FILE", help="the agent's agent.yaml; flags win over it")
    add("--node", metavar="NAME", help="this node's name (default: the host's)")
    add("--state-dir", type=Path, metavar="DIR", help="the agent's: what was here before")
    add("--sys-root", type=Path, metavar="DIR", help="read here instead of in /sys")
    add("--fabric", type=reading.parse_fabric, metavar="IFACE[,IFACE]")
    add("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Try, judge, print."""
    logging.basicConfig(level=logging.CRITICAL)  # what went wrong stands in what is printed
    flags = {name: getattr(arguments, name) for name in _FLAGS}
    try:
        settings = reading.read(arguments.config, flags, host.hostname())
    except SettingsError as error:
        print(f"aegis validate: {error}", file=sys.stderr)
        return 2
    as_json = arguments.output == "json"
    found = asyncio.run(_all(settings, Depth(arguments.depth), aloud=not as_json))
    state, text = outcome(tuple(found))
    if as_json:
        print(json.dumps(_as_json(settings, Depth(arguments.depth), found), indent=2))
    else:
        print(f"\n{settings.node} {state}: {text}")
    sys.stdout.flush()
    os._exit(_CODES[state])  # a read that hangs would be waited for


async def _all(settings: Settings, depth: Depth, *, aloud: bool) -> list[Step]:
    """Each step, told as it ends."""
    looks = [await _look(settings)]

    def look() -> tuple[tuple[Device, ...], Step]:
        return looks[-1]

    async def look_again() -> None:
        looks.append(await _look(settings))

    found = []
    async for step in steps(settings, depth, look, _baseline(settings), look_again):
        found.append(step)
        if aloud:
            print(_line(step), flush=True)
    return found


async def _look(settings: Settings) -> tuple[tuple[Device, ...], Step]:
    report, _late = await look_once(settings)
    return report.report.devices, judging.live(report.report.conditions)


def _baseline(settings: Settings) -> Any:
    """What the agent remembers, read beside it; None where there is nothing, or no right to it."""
    path = settings.state_dir / "spool.sqlite"
    if not path.exists():
        return None
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0) as database:
            query = "SELECT body FROM memory WHERE device = ?"
            row = database.execute(query, (BASELINE_KEY,)).fetchone()
    except sqlite3.Error:
        return None
    return read_baseline(row[0]) if row else None


def _line(step: Step) -> str:
    measured = step.value + (f" (wanted {step.gate})" if step.gate else "")
    sign = {StepState.PASS: "✓", StepState.WARNING: "!", StepState.FAIL: "✗"}.get(step.state, "?")
    parts = [f"{sign} {step.name:<16} {step.seconds:6.1f} s", measured, step.text]
    return "  ".join(part for part in parts if part)


def _as_json(settings: Settings, depth: Depth, found: list[Step]) -> dict[str, Any]:
    state, text = outcome(tuple(found))
    return {
        "node": settings.node,
        "depth": depth,
        "state": state,
        "text": text,
        "steps": [
            {
                "name": one.name,
                "state": one.state,
                "text": one.text,
                "value": one.value,
                "gate": one.gate,
                "seconds": one.seconds,
            }
            for one in found
        ],
    }
