"""A launcher: one per job and node. It starts ranks as it is told, and says all that it knows.

It follows the rules of `aegis.model.job.Assignment` to the letter and is independent of its agent's
life. Ranks do not outlive it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from aegis.model.job import (
    Assignment,
    LauncherPhase,
    LauncherState,
    RankFailure,
    RankPhase,
    RankState,
    RejectedCheckpoint,
    StopKind,
)
from aegis.sim.scene import Alive, Scene
from aegis.sim.setting import JobPlan
from aegis.sim.training import Generation


@dataclass(slots=True, kw_only=True)
class Ranks:
    """What the launcher knows of the ranks of its newest generation. Times: the node's clock."""

    phase: RankPhase = RankPhase.STARTING
    step: int = 0
    started_at: float = 0.0
    loaded_at: float = 0.0
    first_step_at: float = 0.0
    resumed_step: int | None = None
    rejected: tuple[RejectedCheckpoint, ...] = ()
    exited: dict[int, int] = field(default_factory=dict)  # local rank: exit code


@dataclass(slots=True, eq=False, kw_only=True)
class SimLauncher:
    """One life of a launcher."""

    scene: Scene
    plan: JobPlan
    node: str
    launcher: str
    skew_seconds: float
    find: Callable[[Assignment], Generation]
    new_port: Callable[[], int]
    spawned: Callable[["SimLauncher"], None]  # promises look on
    changed: Callable[[], None]
    ended: Callable[["SimLauncher"], None]
    is_over: bool = False
    exit_code: int | None = None
    phase: LauncherPhase = LauncherPhase.IDLE
    generation: int = 0
    epoch: int = 0
    obeyed: tuple[int, int] = (0, 0)
    order: Assignment | None = None
    run: Generation | None = None
    is_alive: bool = False  # a rank is
    ranks: Ranks | None = None
    failure: RankFailure | None = None
    store_port: int = 0
    stopped_at: float = 0.0
    checkpoint_step: int = 0
    checkpoint_at: float = 0.0
    stopping: StopKind | None = None
    slow_start_seconds: float = 0.0  # misfortune: the next start takes so much longer
    slow_stop_seconds: float = 0.0
    _index: int = 0
    _stores: int = 0

    # What it says

    def state(self) -> LauncherState:
        """The whole state."""
        known = self.ranks or Ranks()
        return LauncherState(
            spec=self.plan.spec,
            launcher=self.launcher,
            address=f"{self.node}.fabric",
            store_port=self.store_port,
            phase=self.phase,
            generation=self.generation,
            epoch=self.epoch,
            ranks=self._rank_states(known) if self.ranks else (),
            stopped_at=self.stopped_at,
            failure=self.failure,
            resumed_step=known.resumed_step,
            checkpoint_step=self.checkpoint_step,
            checkpoint_at=self.checkpoint_at,
            rejected=known.rejected,
        )

    def _rank_states(self, known: Ranks) -> tuple[RankState, ...]:
        count = self.plan.spec.ranks_per_node
        return tuple(
            RankState(
                rank=self._index * count + local,
                local_rank=local,
                pid=1000 * self.generation + local,
                phase=RankPhase.EXITED if local in known.exited else known.phase,
                step=known.step,
                started_at=known.started_at,
                loaded_at=known.loaded_at,
                first_step_at=known.first_step_at,
                exit_code=known.exited.get(local),
            )
            for local in range(count)
        )

    def _clock(self) -> float:
        return self.scene.now + self.skew_seconds

    # Its life

    def begin(self) -> None:
        """The process has started."""
        self._open_store(at_once=True)

    def die(self) -> None:
        """The launcher ends, and its ranks with it, at once."""
        self.is_over = True
        self._ranks_gone()
        self.ended(self)

    def _open_store(self, *, at_once: bool = False) -> None:
        """Another store. Until it is there, the launcher may still speak of the one before."""
        if at_once or self.scene.dice.random() < 0.5:
            self.store_port = 0
        self._stores += 1
        number = self._stores
        self.scene.soon(self.scene.setting.temper.store_seconds, lambda: self._opened(number))

    def _opened(self, number: int) -> None:
        if not self.is_over and number == self._stores:
            self.store_port = self.new_port()
            self.changed()

    # What it does

    def obey(self, order: Assignment) -> None:
        """Take an order, unless it is old or meant for another."""
        if self.is_over or order.launcher not in ("", self.launcher):
            return
        if (order.epoch, order.sequence) < self.obeyed:
            return
        self.obeyed, self.epoch, self.order = (order.epoch, order.sequence), order.epoch, order
        self._follow()

    def _follow(self) -> None:
        """Bring what runs nearer to what is wanted."""
        order = self.order
        if order is None or self.is_over:
            return
        wanted = order.world is not None and any(
            member.launcher == self.launcher for member in order.world.members
        )
        if self.is_alive or self.phase is LauncherPhase.STARTING:
            keeps = wanted and order.generation <= self.generation
            if order.finished or not keeps:
                self._stop(order.stop, order.stop_grace_seconds)
        elif order.finished:
            self.exit_code = order.exit_code
            self.die()
        elif order.generation > self.generation and wanted:
            self._start(order)
        elif order.generation > self.generation and order.world is None:
            self._renew(order, LauncherPhase.IDLE)
            self.changed()

    def _renew(self, order: Assignment, phase: LauncherPhase) -> None:
        """A new generation, started or refused: the store of the last one is never used again."""
        self.generation, self.phase = order.generation, phase
        self.ranks = self.failure = self.stopping = self.run = None
        self.stopped_at = 0.0
        self._open_store()

    def _start(self, order: Assignment) -> None:
        assert order.world is not None
        self._renew(order, LauncherPhase.STARTING)
        self.run = self.find(order)
        self.run.folder.raise_fence(order.generation)
        names = [member.launcher for member in order.world.members]
        self._index = names.index(self.launcher)
        seconds = self.scene.dice.uniform(0.1, 1.0) * self.scene.setting.temper.spawn_seconds
        seconds, self.slow_start_seconds = seconds + self.slow_start_seconds, 0.0
        self.scene.log(f"{self.launcher} starts generation {order.generation}")
        generation = order.generation
        self.scene.later(seconds, lambda: self._spawn(generation))
        self.changed()

    def _spawn(self, generation: int) -> None:
        starting = self.phase is LauncherPhase.STARTING and self.generation == generation
        if self.is_over or not starting or self.run is None:
            return
        self.is_alive = True
        self.phase = LauncherPhase.RUNNING
        self.ranks = Ranks(started_at=self._clock())
        self.scene.truth.ranks[self.launcher] = Alive(
            self.plan.spec.name, generation, self.node, self.launcher
        )
        self.spawned(self)
        self.changed()
        self.run.join(self)

    def _stop(self, kind: StopKind, grace_seconds: float) -> None:
        if self.stopping is StopKind.NOW or self.stopping is kind:
            return
        self.stopping = kind
        if self.phase is LauncherPhase.STARTING:
            self.phase = LauncherPhase.STOPPING
            self._kill()
            return
        self.phase = LauncherPhase.STOPPING
        if kind is StopKind.NOW:
            self._kill()
        elif self.run is not None:
            generation = self.generation
            self.run.ask_to_save()
            self.scene.later(grace_seconds, lambda: self._kill(generation))
        self.changed()

    def _kill(self, generation: int | None = None) -> None:
        """Kill what is left of the ranks; they take a moment to be gone."""
        if generation not in (None, self.generation) or self.is_over:
            return
        seconds = self.scene.dice.uniform(0.1, 1.0) * self.scene.setting.temper.kill_seconds
        seconds, self.slow_stop_seconds = seconds + self.slow_stop_seconds, 0.0
        if self.run is not None:
            self.run.leave(self.launcher)
        number = self.generation
        self.scene.later(seconds, lambda: self._killed(number))

    def _killed(self, generation: int) -> None:
        if self.is_over or generation != self.generation:
            return
        if self.phase is LauncherPhase.STOPPING:
            self._rest(LauncherPhase.FAILED if self.failure else LauncherPhase.IDLE)

    def _rest(self, phase: LauncherPhase) -> None:
        """No rank is left."""
        self._ranks_gone()
        self.phase, self.stopped_at = phase, self._clock()
        if phase is LauncherPhase.IDLE:
            self.ranks = None
        elif self.ranks is not None:
            locals_ = range(self.plan.spec.ranks_per_node)
            self.ranks.exited = {local: self.ranks.exited.get(local, -9) for local in locals_}
        self.changed()
        self._follow()

    def _ranks_gone(self) -> None:
        self.is_alive = False
        self.scene.truth.ranks.pop(self.launcher, None)
        if self.run is not None:
            self.run.leave(self.launcher)

    # What its ranks tell it

    def restoring(self, step: int, rejected: tuple[RejectedCheckpoint, ...]) -> None:
        """The ranks begin to read a checkpoint."""
        if self.ranks is not None:
            self.ranks.phase, self.ranks.rejected = RankPhase.LOADING, rejected
            self.ranks.resumed_step = self.ranks.step = step
            self.checkpoint_step = step
            self.changed()

    def loaded(self) -> None:
        """The ranks have their state."""
        if self.ranks is not None:
            self.ranks.phase, self.ranks.loaded_at = RankPhase.TRAINING, self._clock()
            self.changed()

    def stepped(self, step: int) -> None:
        """A step more. Progress travels with the heartbeat, save for the first step."""
        if self.ranks is not None:
            self.ranks.step = step
            if not self.ranks.first_step_at:
                self.ranks.first_step_at = self._clock()
                self.changed()

    def saved(self, step: int) -> None:
        """A checkpoint is committed."""
        self.checkpoint_step, self.checkpoint_at = step, self._clock()

    def saved_for_stop(self) -> None:
        """Whoever was told to stop after a save stops now."""
        if self.stopping is StopKind.SAVING:
            self._kill()

    def fail(self, text: str, *, signal: int | None = None, oom_killed: bool = False) -> None:
        """A rank ends in error; the launcher ends the others."""
        if not self.is_alive or self.ranks is None:
            return
        local = self.scene.dice.randrange(self.plan.spec.ranks_per_node)
        rank = self._index * self.plan.spec.ranks_per_node + local
        self.ranks.exited[local] = -9 if signal else 1
        if self.failure is None:
            self.failure = RankFailure(
                generation=self.generation,
                rank=rank,
                at=self._clock(),
                exit_code=None if signal else 1,
                signal=signal,
                oom_killed=oom_killed,
                last_step=self.ranks.step,
                text=f"rank {rank}: {text}",
            )
        self.phase, self.stopping = LauncherPhase.STOPPING, StopKind.NOW
        self.changed()
        self._kill()

    def finish(self) -> None:
        """All ranks have exited with 0."""
        if not self.is_alive or self.phase is not LauncherPhase.RUNNING or self.ranks is None:
            return
        self.ranks.exited = dict.fromkeys(range(self.plan.spec.ranks_per_node), 0)
        self._rest(LauncherPhase.DONE)
