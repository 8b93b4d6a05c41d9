"""What the demo prints: the acts' stories, a table, the loss curve, and the report."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aegis.cli.demo.acts import Act

PHASES = ["detect", "decide", "stop", "provision", "load", "first_step"]
WIDTH, HEIGHT = 72, 12


class Progress:
    """One line that follows the training, on a terminal only; elsewhere now and then a line."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._last = ""

    def show(self, text: str) -> None:
        """Put this text in the line."""
        if text != self._last and self._live:
            print(f"\r\x1b[K  {text}", end="", flush=True)
        self._last = text

    def clear(self) -> None:
        """Take the line away."""
        if self._live:
            print("\r\x1b[K", end="", flush=True)


def say(text: str) -> None:
    """A line, at once: the reader follows along."""
    print(text, flush=True)


def story(act: Act) -> None:
    """What happened in one act, and where its seconds went."""
    say("")
    for line in act.incident["story"]:
        say(f"  {line}")
    say("")
    for name, seconds in phases(act).items():
        bar = "█" * min(40, round((seconds or 0.0) * 10))
        say(f"  {name.replace('_', ' '):>11} {_seconds(seconds):>7}  {bar}")
    say(f"  {'total':>11} {_seconds(total(act)):>7}  from the fault to the first new step")


def phases(act: Act) -> dict[str, float | None]:
    """Seconds of each phase; detecting counts from the injection, which only the demo knows."""
    seconds: dict[str, float | None] = dict(act.incident["seconds"])
    seconds["detect"] = act.incident["phases"]["opened_at"] - act.injected_at
    return {name: seconds.get(name) for name in PHASES}


def total(act: Act) -> float | None:
    """Seconds from the injection to the first new step on every rank."""
    end = act.incident["phases"]["first_step_at"]
    return None if end is None else end - act.injected_at


def table(acts: Sequence[Act]) -> None:
    """The acts side by side."""
    head = ["act", "class", *(name.replace("_", " ") for name in PHASES), "total", "steps lost"]
    rows = [
        [
            act.name,
            act.fault_class,
            *(_seconds(seconds) for seconds in phases(act).values()),
            _seconds(total(act)),
            str(act.incident["steps_lost"]),
        ]
        for act in acts
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, ["─" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  " + "  ".join(cells))


def curve(losses: dict[int, float], restarts: dict[int, str]) -> None:
    """The loss over the steps, with the restarts marked under it."""
    if len(losses) < 2:
        return
    first, last = min(losses), max(losses)
    low, high = min(losses.values()), max(losses.values())
    span, height = max(1, last - first), max(1e-9, high - low)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    marks = {round((step - first) / span * (WIDTH - 1)): name for step, name in restarts.items()}
    for row in rows:
        for column in marks:
            row[column] = "┊"
    for step, loss in losses.items():
        column = round((step - first) / span * (WIDTH - 1))
        rows[round((high - loss) / height * (HEIGHT - 1))][column] = "•"
    for number, row in enumerate(rows):
        scale = high - height * number / (HEIGHT - 1)
        say(f"  {scale:6.3f} ┤{''.join(row)}")
    say(f"         └{'─' * WIDTH}")
    under = [" "] * (WIDTH + 12)
    for column, name in sorted(marks.items()):
        for offset, letter in enumerate(f"▲{name}"):
            under[column + offset] = letter
    say(f"          {''.join(under).rstrip()}")
    say(f"          step {first} … {last}; ▲ a restart, at the step it resumed from")


def report(
    path: Path, acts: Sequence[Act], started_at: float, network: str, difference: float | None
) -> None:
    """Write report.json; times in seconds since the demo's start."""
    body = {
        "acts": [_act(act, started_at) for act in acts],
        "losses_equal": difference == 0.0,
        "max_loss_difference": difference,
        "simulated": True,
        "network": network,
    }
    path.write_text(json.dumps(body, indent=2) + "\n")


def _act(act: Act, started_at: float) -> dict[str, Any]:
    incident, times = act.incident, act.incident["phases"]

    def since(at: float | None) -> float | None:
        return None if at is None else round(at - started_at, 3)

    return {
        "name": act.name,
        "class": act.fault_class,
        "injected_at": since(act.injected_at),
        "detected_at": since(times["opened_at"]),
        "decided_at": since(times["decided_at"]),
        "stopped_at": since(times["stopped_at"]),
        "started_at": since(times["started_at"]),
        "loaded_at": since(times["loaded_at"]),
        "first_step_at": since(times["first_step_at"]),
        "nodes_before": incident["nodes_before"],
        "nodes_after": incident["nodes_after"],
        "resumed_from_step": incident["resumed_step"],
        "last_step_before": incident["last_step_before"],
        "steps_lost": incident["steps_lost"],
        "incident": incident["id"],
    }


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f} s"
