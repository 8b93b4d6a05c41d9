"""`aegis rules simulate`: recorded events against changed rules."""

import argparse
import gc
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, CommandError, Exit
from aegis.cli.rules.folders import folders_of, load
from aegis.cli.rules.replay import Compared, Replay, replay
from aegis.core.words import duration
from aegis.model.policy import Mode
from aegis.rules.form import seconds

TELL_SECONDS = 5.0
HEAD_BYTES = 200  # of a line; the time stands in them
_AT = re.compile(rb'"at":([0-9.]+)')
CANNOT_KNOW = (
    "Each decision is compared on the fleet as it really was at that moment. How things would have "
    "gone on after the first act that differs is not known: budgets, cooldowns, spares and ladders "
    "count what was really done."
)


def run(arguments: argparse.Namespace) -> int:
    """Replay, and tell what would have been otherwise."""
    # A report is a tree of ten thousand objects, and none of them leads back to itself.
    gc.disable()
    changed = load(folders_of(arguments))
    since = _since(arguments.since)
    mode = Mode(arguments.as_mode) if arguments.as_mode else None
    file: Path | None = arguments.events
    lines = _of_file(file) if file else _of_controller(arguments, since)
    found = replay(_counted(lines), changed, since=since, mode=mode)
    if not found.events:
        raise CommandError("there is no event to replay", "export some, or name a longer --since")
    if arguments.output == "json":
        show.as_json(_jsonable(found))
    else:
        _print(found, everything=arguments.all)
    return Exit.OK


def _since(text: str) -> float:
    if not text:
        return 0.0
    try:
        return time.time() - seconds(text)
    except ValueError as error:
        raise CommandError(f"--since: {error}", code=Exit.USAGE) from error


def _of_file(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            yield from opened
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {(error.strerror or '').lower()}") from error


def _of_controller(arguments: argparse.Namespace, since: float) -> Iterator[bytes]:
    yield from Client.of(arguments).lines(f"/events/export?since={since}")


def _counted(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines; whoever waits at a terminal is told how far it is."""
    told_at = time.monotonic()
    for number, line in enumerate(lines):
        if sys.stderr.isatty() and time.monotonic() - told_at > TELL_SECONDS:
            told_at = time.monotonic()
            moment = _AT.search(line, 0, HEAD_BYTES)
            upto = f", up to {show.moment(float(moment[1]))}" if moment else ""
            print(f"{number} events replayed{upto} …", file=sys.stderr)
        yield line


def _print(found: Replay, *, everything: bool) -> None:
    all_of_them = list(found.incidents.values())
    shown = all_of_them if everything else [one for one in all_of_them if one.differs]
    show.table(
        ("OPENED", "NODE", "DEVICE", "CLASS", "JOB", "OLD RULES", "NEW RULES"),
        [
            (
                show.moment(one.at),
                one.node or "-",
                one.device,
                one.fault_class,
                one.job or "-",
                _answer(one, "old"),
                _answer(one, "new"),
            )
            for one in shown
        ],
        "no decision would have been another",
    )
    print()
    show.pairs(_summary(found))
    print(f"\n{CANNOT_KNOW}")


def _answer(one: Compared, which: str) -> str:
    answer = one.old if which == "old" else one.new
    if not answer.result:
        return "only watched"
    return f"{answer.remedy}: {answer.result} ({answer.rule or 'no rule'})"


def _summary(found: Replay) -> list[tuple[str, object]]:
    of = found.incidents.values()
    old_nodes, new_nodes = _nodes(of, "old"), _nodes(of, "new")
    old_jobs, new_jobs = _jobs(of, "old"), _jobs(of, "new")
    seconds_ = found.ends_at - found.begins_at
    lasted = f"{seconds_ / 86400:.1f} days" if seconds_ >= 2 * 86400 else duration(seconds_)
    begins = "" if found.is_whole else "; how things stood at their beginning is not known"
    if 0 < found.since < found.begins_at:
        begins = f"; the log reaches back no further{begins}"
    return [
        ("replayed", f"{found.events} events of {lasted}{begins}"),
        ("incidents", f"{len(of)}, {sum(one.differs for one in of)} answered otherwise"),
        ("nodes touched", f"{len(old_nodes)} by the old rules, {len(new_nodes)} by the new"),
        ("only by the new", _names(new_nodes - old_nodes)),
        ("only by the old", _names(old_nodes - new_nodes)),
        ("jobs touched", f"{len(old_jobs)} by the old rules, {len(new_jobs)} by the new"),
        ("not replayed", f"{found.unreadable} events" if found.unreadable else ""),
    ]


def _nodes(of: Iterable[Compared], which: str) -> set[str]:
    return {one.node for one in of if (one.old if which == "old" else one.new).takes_node}


def _jobs(of: Iterable[Compared], which: str) -> set[str]:
    touched = {one.job for one in of if (one.old if which == "old" else one.new).touches}
    return touched - {""}


def _names(names: set[str]) -> str:
    few = sorted(names)
    more = f" and {len(few) - 20} more" if len(few) > 20 else ""
    return ", ".join(few[:20]) + more


def _jsonable(found: Replay) -> dict[str, Any]:
    of = found.incidents.values()
    return {
        "events": found.events,
        "begins_at": found.begins_at,
        "ends_at": found.ends_at,
        "is_whole": found.is_whole,
        "unreadable": found.unreadable,
        "nodes": {which: sorted(_nodes(of, which)) for which in ("old", "new")},
        "jobs": {which: sorted(_jobs(of, which)) for which in ("old", "new")},
        "incidents": [
            {"id": name, **asdict(one), "differs": one.differs}
            for name, one in found.incidents.items()
        ],
        "cannot_know": CANNOT_KNOW,
    }
