"""How fast the core is, as JSON: events, decisions, one step, ticks, and a simulated day.

    python bench/core.py                       about two minutes
    python bench/core.py --only ticks day      some parts
    python bench/core.py --days 0.1            a tenth of the day, scaled up

One process on one core, only `step`: no disk, no network. Events are made before the clock runs,
so what is measured is the core alone. Nothing is judged here: it prints what it found beside what
was aimed for, and ends with 0.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent))

from fleet import TAKEN, TOLD, UNRULED, Fleet

from aegis.core import invariants
from aegis.model.event import Event
from aegis.model.policy import Mode

T = TypeVar("T")
NODES, RULES = 10_000, 300
_AIMS = {
    "events": "20,000 events a second that match no rule",
    "decisions": "5,000 decisions a second with their records",
    "steps": "one step of a busy fleet: 1 ms p99",
    "ticks": "no figure: four of them a second while something is under way",
    "day": "a day of 100 nodes with a report each every 10 s: 60 s",
}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=tuple(_PARTS), default=list(_PARTS))
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rules", type=int, default=RULES)
    parser.add_argument("--days", type=float, default=1.0, help="how much of the day is simulated")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"load_before": [round(one, 2) for one in os.getloadavg()]}
    for name in arguments.only:
        _progress(f"{name} ...")
        gc.collect()
        found[name] = {"aim": _AIMS[name], **_PARTS[name](arguments)}
    found["load_after"] = [round(one, 2) for one in os.getloadavg()]
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def _progress(text: str) -> None:
    sys.stderr.write(text + "\n")


def _events(arguments: argparse.Namespace) -> dict[str, Any]:
    """Faults of which no rule speaks, and reports that bring only other temperatures."""
    fleet = Fleet(arguments.nodes, arguments.rules)
    names = fleet.names
    first = [fleet.fault(name, UNRULED) for name in names]
    again = [fleet.fault(name, UNRULED) for name in names[-200:] * 50]
    matching = _rate([event.fault for event in first], fleet.rules.first_match)
    return {
        "asking_the_rules_only": matching,
        "faults_that_come_again": _after(fleet, first, again),
        "reports": _rate([fleet.report(name) for name in names], fleet.apply),
        "faults_that_open_an_incident": _rate(
            [fleet.fault(name, UNRULED, "gpu5") for name in names], fleet.apply
        ),
    }


def _after(fleet: Fleet, first: Sequence[Event], then: Sequence[Event]) -> int:
    for event in first:
        fleet.apply(event)
    return _rate(then, fleet.apply)


def _decisions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Each fault opens an incident, is decided about by every rail, and is recorded."""
    found: dict[str, Any] = {}
    kinds = {
        "acted": (Mode.ENFORCE, TAKEN, {"nodes_out_fraction": 1.0, "breaker_fraction": 1.0}),
        "held_by_a_rail": (Mode.ENFORCE, TAKEN, {"nodes_out_fraction": 0.0, "nodes_out_max": 0}),
        "observed": (Mode.OBSERVE, TAKEN, {}),
        "told": (Mode.ENFORCE, TOLD, {}),
    }
    for kind, (mode, fault_class, limits) in kinds.items():
        fleet = Fleet(
            arguments.nodes, arguments.rules, mode=mode, nodes_out_per_domain_max=99, **limits
        )
        # One every three seconds: the default budget lets 200 of 10,000 nodes go in ten minutes.
        events = []
        for name in fleet.names[: arguments.nodes // 10]:
            fleet.at += 3.0
            events.append(fleet.fault(name, fault_class))
        found[kind] = _rate(events, fleet.apply)
        made = sum(bool(one.decisions) for one in fleet.cluster.incidents.values())
        assert made >= len(events), f"{kind}: only {made} decisions were made"
        invariants.check(fleet.cluster)
    found["mean"] = round(len(kinds) / sum(1 / found[kind] for kind in kinds))
    return found


def _steps(arguments: argparse.Namespace) -> dict[str, Any]:
    """A busy fleet: a job on 1,000 nodes, reports of all, a fault with each hundredth, ticks."""
    fleet = Fleet(arguments.nodes, arguments.rules)
    trained = fleet.names[: arguments.nodes // 10]
    fleet.train(trained)
    took: list[float] = []
    ticks: list[float] = []
    kinds = (UNRULED, TOLD, TAKEN)
    for second in range(3):
        for number, name in enumerate(fleet.names):
            is_training = number < len(trained)
            event = fleet.progress(name, second + 1) if is_training else fleet.report(name)
            took.append(_timed(fleet, event))
            if number % 100 == 0:
                took.append(_timed(fleet, fleet.fault(name, kinds[number // 100 % 3])))
            if number % (arguments.nodes // 4) == 0:
                ticks.append(_timed(fleet, fleet.tick(0.25, ())))
    invariants.check(fleet.cluster)
    return {
        "steps": len(took) + len(ticks),
        "all_milliseconds": _spread([*took, *ticks]),
        "ticks_milliseconds": _spread(ticks),
    }


def _ticks(_arguments: argparse.Namespace) -> dict[str, Any]:
    """One tick, with nobody heard since the last, and with a quarter of the fleet heard."""
    found: dict[str, Any] = {}
    for nodes in (1_000, 10_000):
        fleet = Fleet(nodes)
        found[f"{nodes}_nodes_milliseconds"] = {
            "at_rest": _tick(fleet, nodes, 0),
            "a_quarter_heard": _tick(fleet, nodes, nodes // 4),
        }
        reports = [fleet.report(name) for name in fleet.names]
        each = 1e6 / _rate(reports, fleet.apply)
        found[f"{nodes}_nodes_report_microseconds"] = round(each, 1)
        fleet.train(fleet.names[: nodes // 10])
        found[f"{nodes}_nodes_milliseconds"]["with_a_job_on_a_tenth"] = _tick(fleet, nodes, 0)
    return found


def _tick(fleet: Fleet, nodes: int, heard: int) -> float:
    for name in fleet.names:  # so that nobody falls silent meanwhile
        fleet.apply(fleet.report(name))
    took = []
    for number in range(20):
        begin = number * heard % nodes
        names = tuple(fleet.names[begin : begin + heard])
        took.append(_timed(fleet, fleet.tick(0.25, names)))
    return round(1000 * median(took), 3)


def _day(arguments: argparse.Namespace) -> dict[str, Any]:
    """Reports spread over their ten seconds, a tick a second, some faults; idle and training."""
    found: dict[str, Any] = {}
    for name in ("idle", "training"):
        fleet = Fleet(100, arguments.rules)
        if name == "training":
            fleet.train(fleet.names[:96])
        found[name] = _live(fleet, round(86_400 * arguments.days), training=name == "training")
        found[name]["day_seconds"] = round(found[name]["seconds"] / arguments.days, 1)
    return found


def _live(fleet: Fleet, seconds: int, *, training: bool) -> dict[str, Any]:
    """So many seconds. Making the events is not counted; all steps are."""
    took, reports = 0.0, 0
    for second in range(seconds):
        events: list[Event] = []
        for number in range(second % 10, len(fleet.names), 10):
            name = fleet.names[number]
            is_training = training and number < 96
            events.append(fleet.progress(name, second) if is_training else fleet.report(name))
            reports += 1
        if second % 120 == 0:
            kind = TOLD if second % 240 else UNRULED
            events.append(fleet.fault(fleet.names[second // 120 % 100], kind))
        events.append(fleet.tick(1.0, ()))
        begun = time.process_time()
        for event in events:
            fleet.apply(event)
        took += time.process_time() - begun
    invariants.check(fleet.cluster)
    return {"reports": reports, "seconds": round(took, 1)}


def _rate(things: Sequence[T], do: Callable[[T], object]) -> int:
    """How many a second."""
    begun = time.process_time()
    for one in things:
        do(one)
    return round(len(things) / (time.process_time() - begun))


def _timed(fleet: Fleet, event: Event) -> float:
    begun = time.process_time()
    fleet.apply(event)
    return time.process_time() - begun


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=1000)
    kept = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "max": max(seconds)}
    return {name: round(1000 * value, 3) for name, value in kept.items()}


_PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "events": _events,
    "decisions": _decisions,
    "steps": _steps,
    "ticks": _ticks,
    "day": _day,
}

if __name__ == "__main__":
    sys.exit(main())
