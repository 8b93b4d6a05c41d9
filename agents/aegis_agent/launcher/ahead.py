"""What is done before a fault so that the restart is short: modules imported, the script run ahead.

The ranks' parent imports the user's modules once. Standbys run the script up to where it asks for
its rank; they are made when nothing else needs the machine: once every rank has done a step, or
while there is no generation here.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder

from aegis_agent.launcher.errors import UsageError
from aegis_agent.launcher.generation import Generation

SETTLED_SECONDS = 10.0  # ranks that tell of no step have started by then
IDLE_SECONDS = 5.0  # after a generation, the next one comes before this or not soon


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What the user allows to be done ahead."""

    preload: tuple[str, ...] = ()
    standbys: int = 0  # that run the script ahead; 0: none do


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of it."""
    group = parser.add_argument_group("shorter restarts")
    add = group.add_argument
    add(
        "--preload",
        default="",
        metavar="MODULE,…",
        help="modules of yours to import once, before any rank is forked",
    )
    add(
        "--run-ahead",
        action="store_true",
        help="keep standbys that have run the script up to where it asks for its rank",
    )
    add("--standbys", default="auto", metavar="N", help="how many (default: as many as ranks)")


def read(arguments: argparse.Namespace, ranks_per_node: int, path: Sequence[str]) -> Ahead:
    """What these flags say, or UsageError."""
    modules = tuple(name for name in arguments.preload.split(",") if name)
    for name in modules:
        # Only the top of it: to look further would run the package's own code here.
        if PathFinder.find_spec(name.partition(".")[0], list(path)) is None:
            raise UsageError(
                f"--preload {name}: no such module beside the script, in this folder or in this "
                "Python's packages"
            )
    if arguments.standbys == "auto":
        number = ranks_per_node
    elif arguments.standbys.isdecimal() and arguments.run_ahead:
        number = int(arguments.standbys)
    elif arguments.standbys.isdecimal():
        raise UsageError("--standbys says how many run the script ahead: it needs --run-ahead")
    else:
        raise UsageError(f"--standbys {arguments.standbys}: say a number, or auto")
    return Ahead(preload=modules, standbys=number if arguments.run_ahead else 0)


@dataclass(slots=True)
class Moment:
    """Whether now is the time to make standbys, once for each generation and each idle time."""

    idle_since: float | None = 0.0  # a launcher that has started just now has no ranks to come
    asked_for: object = None

    def has_come(self, generation: Generation | None, now: float) -> bool:
        """True once for each time that it comes."""
        if generation is not None and generation.alive:
            self.idle_since = None
            due, what = self._trains(generation), ("generation", generation.number)
        else:
            self.idle_since = now if self.idle_since is None else self.idle_since
            number = generation.number if generation is not None else 0
            due, what = now - self.idle_since >= IDLE_SECONDS, ("idle", number)
        if not due or self.asked_for == what:
            return False
        self.asked_for = what
        return True

    def _trains(self, generation: Generation) -> bool:
        if generation.stopping or generation.failure is not None:
            return False
        settled = time.time() - SETTLED_SECONDS
        return all(
            rank.progress.first_step_at or (rank.started_at and rank.started_at < settled)
            for rank in generation.ranks
        )
