"""The ranks of one generation on this node, from the order to start them to the last exit.

    STARTING -> RUNNING -> DONE                    every rank exited with 0
        |          |-----> STOPPING -> FAILED      one failed and the others were killed
        |----------|-----> STOPPING -> IDLE        they were told to stop

No processes here: it is told what the ranks' parent says, and reads the ranks' pages.
"""

import logging
import mmap
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from aegis.model.job import (
    Assignment,
    Hang,
    LauncherPhase,
    LauncherState,
    RankFailure,
    RankPhase,
    RankState,
    RejectedCheckpoint,
    World,
    tiers,
)
from aegis.wire import stacks
from aegis.wire.page import PAGE_BYTES, Progress, announce_stop, blank, in_words, read
from aegis_agent.launcher import failure as failures
from aegis_agent.launcher import process
from aegis_agent.launcher.folders import read_rejected
from aegis_agent.launcher.signals import Signals

_log = logging.getLogger(__name__)

_LEFT = -int(signal.SIGKILL)  # for a rank whose process goes on: it is as if it were gone


@dataclass
class Rank:
    """One rank: its place, its process, its files and what it says of itself."""

    rank: int
    local_rank: int
    folder: Path  # of its output
    page_path: Path
    page: memoryview
    pid: int = 0
    started_at: float = 0.0
    status: int | None = None  # of its exit; negative for a signal
    progress: Progress = field(default_factory=Progress)
    rejected: tuple[RejectedCheckpoint, ...] = ()
    left_at: float = 0.0  # when it left the generation and kept its process
    own_seconds: float = 0.0  # of a step, lately
    was_ending: bool = False  # by itself, when another had failed and nobody was killed yet

    @property
    def stdout(self) -> Path:
        """Where its standard output goes."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Where its standard error goes."""
        return self.folder / "stderr.log"

    @property
    def error_file(self) -> Path:
        """Where torch or our own parent writes the traceback."""
        return self.folder / "error.json"

    def look(self) -> None:
        """Read its page."""
        self.progress = read(self.page) or self.progress
        if self.progress.rejected > len(self.rejected):
            self.rejected = read_rejected(self.page_path)

    def state(self) -> RankState:
        """The rank as the launcher reports it."""
        progress = self.progress
        status = None if self.left_at else self.status
        not_finite = "" if progress.loss is None else in_words(progress.loss)
        return RankState(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.pid,
            phase=progress.phase if self.status is None else RankPhase.EXITED,
            step=progress.step,
            loss=None if not_finite else progress.loss,
            loss_not_finite=not_finite,
            own_seconds=self.own_seconds,
            started_at=self.started_at,
            loaded_at=progress.loaded_at,
            first_step_at=progress.first_step_at,
            last_step_at=progress.last_step_at,
            exit_code=status if status is not None and status >= 0 else None,
            signal=-status if status is not None and status < 0 else None,
        )


@dataclass
class Generation:
    """All ranks of a generation that live on this node."""

    assignment: Assignment
    world: World
    group_rank: int  # this node's place among the members
    ranks: list[Rank]
    kills_before: int  # by the kernel, for want of memory
    folder: Path = Path()  # of all its ranks' output
    count_kills: Callable[[], int] = failures.oom_kills
    resume_from: str = ""  # for a script that saves by itself
    failure: RankFailure | None = None
    ordered: bool = False  # the parent was asked to fork its ranks
    stopping: bool = False  # it was told to end
    aborted: bool = False  # it ended before a rank was started
    stopped_at: float = 0.0
    signals: Signals = field(default_factory=Signals)
    hang: Hang | None = None  # for as long as it lasts, and once it is being stopped for it

    @property
    def number(self) -> int:
        """The generation's number."""
        return self.assignment.generation

    @property
    def alive(self) -> bool:
        """Whether any rank may still be running, or may yet be started."""
        return not self.aborted and any(rank.status is None for rank in self.ranks)

    @property
    def phase(self) -> LauncherPhase:
        """What the launcher says it is doing."""
        if self.alive:
            if self.stopping or self.failure is not None:
                return LauncherPhase.STOPPING
            started = all(rank.started_at for rank in self.ranks)
            return LauncherPhase.RUNNING if started else LauncherPhase.STARTING
        if self.failure is not None:
            return LauncherPhase.FAILED
        if not self.aborted and all(rank.status == 0 for rank in self.ranks):
            return LauncherPhase.DONE
        return LauncherPhase.IDLE

    @property
    def resumed_step(self) -> int | None:
        """What all its ranks have restored; None until all have said so."""
        steps = [rank.progress.resumed_step for rank in self.ranks]
        known = [step for step in steps if step is not None]
        return min(known) if known and len(known) == len(steps) else None

    @property
    def last_step(self) -> int:
        """The newest step that all ranks here have completed."""
        return min((rank.progress.step for rank in self.ranks), default=0)

    @property
    def checkpoint(self) -> tuple[int, float]:
        """The newest verified checkpoint that a rank has spoken of, and when it was completed."""
        return max(
            ((rank.progress.checkpoint_step, rank.progress.checkpoint_at) for rank in self.ranks),
            default=(0, 0.0),
        )

    def look(self) -> None:
        """Read every page, and notice what it says of losses and pace."""
        for rank in self.ranks:
            rank.look()
        own = self.signals.look([(one.rank, one.progress) for one in self.ranks], time.time())
        for rank in self.ranks:
            rank.own_seconds = own[rank.rank]
        for text in self.signals.untold():
            _log.warning("generation %d: %s", self.number, text)

    def started(self, local_rank: int, pid: int, at: float) -> None:
        """The parent has forked a rank."""
        rank = self.ranks[local_rank]
        rank.pid, rank.started_at = pid, at

    def left(self, local_rank: int, at: float) -> None:
        """A rank has left and keeps its process, for the next generation."""
        self.ranks[local_rank].left_at = at
        self.let_go()

    def let_go(self) -> None:
        """Once the generation is being ended, those that have left hold no rank of it."""
        if self.failure is None and not self.stopping:
            return
        for rank in self.ranks:
            if rank.left_at and rank.status is None:
                rank.look()
                rank.status = _LEFT
                self._note_end(rank.left_at)

    def left_alone(self, local_rank: int, error: str) -> bool:
        """No other failed, and yet a rank could not stay: whether that is the first failure."""
        rank = self.ranks[local_rank]
        if self.failure is not None or self.stopping or not rank.left_at:
            return False
        lines = error.strip().splitlines()
        self.failure = RankFailure(
            generation=self.number,
            rank=rank.rank,
            at=rank.left_at,
            last_step=rank.progress.step,
            text=f"rank {rank.rank} lost its process group: {lines[-1] if lines else 'no reason'}",
            error=error,
        )
        return True

    def exited(self, local_rank: int, status: int, at: float) -> bool:
        """A rank has ended; whether that is the first failure here."""
        rank = self.ranks[local_rank]
        if rank.status is not None:
            return False  # it had left before
        rank.look()
        rank.status = status
        self._note_end(at)
        if status == 0:
            return False
        if self.stopping or (self.failure and status == -9 and not rank.was_ending):
            why = self.failure.text if self.failure else f"generation {self.number} was stopped"
            text = f"rank {rank.rank} was ended by its launcher because {why}"
            failures.leave_error(rank.error_file, text, "")
            return False
        found = failures.describe(
            generation=self.number,
            rank=rank.rank,
            at=failures.raised_at(rank.error_file) or at,
            status=status,
            last_step=rank.progress.step,
            oom_killed=status == -9 and self.count_kills() > self.kills_before,
            error=failures.read_error(rank.error_file, rank.stderr),
        )
        failures.leave_error(rank.error_file, found.text, found.error)
        if self.failure is not None:
            self.failure = failures.first_of(self.failure, found)
            return False
        self.failure = found
        self._look_at_the_others()
        return True

    def _look_at_the_others(self) -> None:
        """One has failed: who has raised already, or is ending, before anybody is killed."""
        for rank in self.ranks:
            if rank.status is not None or not rank.pid or self.failure is None:
                continue
            rank.was_ending = process.is_ending(rank.pid)
            raised_at = failures.raised_at(rank.error_file)
            if raised_at is not None:
                found = failures.raised(
                    generation=self.number,
                    rank=rank.rank,
                    at=raised_at,
                    last_step=rank.progress.step,
                    error=failures.read_error(rank.error_file, rank.stderr),
                )
                self.failure = failures.first_of(self.failure, found)

    def lost(self, reason: str, at: float) -> None:
        """All ranks that were alive are gone at once, with their parent."""
        self.look()
        for rank in self.ranks:
            if rank.status is None:
                rank.status = -9
        self._note_end(at)
        self._fail(reason, at)

    def refused(self, local_rank: int, reason: str, at: float) -> None:
        """A rank could not even be forked."""
        self.ranks[local_rank].status = 1
        self._fail(reason, at)
        self._note_end(at)

    def isolate(self, seconds: float, at: float) -> None:
        """Its launcher is cut off and nothing moves: the ranks are to be killed."""
        self._fail(
            "stopped by its launcher: neither controller nor agent has answered and no step has "
            f"completed for {seconds:.0f} s",
            at,
        )

    def abort(self, reason: str, at: float) -> None:
        """It ends before a rank was started: told to stop, or with a reason that is a failure."""
        self.aborted = True
        self._note_end(at)
        if reason:
            self._fail(reason, at)

    def announce_stop(self) -> None:
        """Tell the ranks that the SIGTERM to come asks for a save."""
        self.stopping = True
        for rank in self.ranks:
            announce_stop(rank.page)

    def movement(self) -> object:
        """What changes while the ranks get on: steps, phases, and the size of their output."""
        sizes = [_size(path) for rank in self.ranks for path in (rank.stdout, rank.stderr)]
        steps = [(rank.status, rank.progress.step, rank.progress.phase) for rank in self.ranks]
        return (self.number, *steps, *sizes)

    def describe(self, state: LauncherState) -> LauncherState:
        """The launcher's state with this generation in it."""
        checkpoint_step, checkpoint_at = self.checkpoint
        return replace(
            state,
            generation=self.number,
            phase=self.phase,
            ranks=() if self.aborted else tuple(rank.state() for rank in self.ranks),
            stopped_at=self.stopped_at,
            failure=self.failure,
            resumed_step=self.resumed_step,
            resumed_from=tiers(rank.progress.resumed_from for rank in self.ranks),
            checkpoint_step=checkpoint_step,
            checkpoint_at=checkpoint_at,
            checkpoint_stall_seconds=max(
                (rank.progress.checkpoint_stall_seconds for rank in self.ranks), default=0.0
            ),
            checkpoint_durable_seconds=max(
                (rank.progress.checkpoint_durable_seconds for rank in self.ranks), default=0.0
            ),
            rejected=tuple(one for rank in self.ranks for one in rank.rejected),
            hang=self.hang,
            signals=self.signals.found,
        )

    def close(self) -> None:
        """Let go of the pages."""
        for rank in self.ranks:
            rank.page.release()

    def _fail(self, reason: str, at: float) -> None:
        if not self.stopping and self.failure is None:
            self.failure = RankFailure(
                generation=self.number,
                rank=self.group_rank * self.world.ranks_per_node,
                at=at,
                last_step=self.last_step,
                text=reason,
            )

    def _note_end(self, at: float) -> None:
        if not self.alive:
            self.stopped_at = at


def prepare(
    assignment: Assignment, world: World, launcher: str, pages: Path, logs: Path
) -> Generation:
    """Lay out pages and folders for the ranks of this node. Raises OSError where it cannot."""
    names = [member.launcher for member in world.members]
    group_rank = names.index(launcher)
    first = group_rank * world.ranks_per_node
    ranks = [
        _prepare_rank(assignment.generation, first + local_rank, local_rank, pages, logs)
        for local_rank in range(world.ranks_per_node)
    ]
    return Generation(
        assignment=assignment,
        world=world,
        group_rank=group_rank,
        ranks=ranks,
        kills_before=failures.oom_kills(),
        folder=_folder(logs, assignment.generation),
    )


def without_ranks(assignment: Assignment, world: World, launcher: str) -> Generation:
    """A generation whose ranks could not even be laid out."""
    group_rank = [member.launcher for member in world.members].index(launcher)
    return Generation(
        assignment=assignment, world=world, group_rank=group_rank, ranks=[], kills_before=0
    )


def _prepare_rank(generation: int, rank: int, local_rank: int, pages: Path, logs: Path) -> Rank:
    folder = _folder(logs, generation) / f"rank-{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    recording = f"{stacks.FLIGHT_PREFIX}{rank}"
    for name in ("stdout.log", "stderr.log", "error.json", stacks.FILE, recording):
        (folder / name).unlink(missing_ok=True)  # an earlier run's, in the same folder
    path = pages / f"generation-{generation}-rank-{rank}.page"
    path.write_bytes(blank())
    with path.open("r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), PAGE_BYTES))
    return Rank(rank=rank, local_rank=local_rank, folder=folder, page_path=path, page=page)


def _folder(logs: Path, generation: int) -> Path:
    return logs / f"generation-{generation}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
