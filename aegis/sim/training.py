"""What the ranks of a job do together: rendezvous, load, step, save, fail or finish.

A generation's ranks go forward together or not at all. Their checkpoints lie in a folder that all
nodes share. It bears the fence: a commit of an older generation than the fence is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from aegis.model.job import RejectedCheckpoint, World
from aegis.sim.scene import Scene
from aegis.sim.setting import JobPlan

RETRY_SECONDS = 7.0  # collectives wait so long for a link


@dataclass(slots=True)
class Commit:
    """A checkpoint that was committed."""

    generation: int
    step: int
    is_corrupt: bool = False


@dataclass(slots=True)
class Folder:
    """The shared checkpoint folder of a job."""

    fence: int = 0
    commits: list[Commit] = field(default_factory=list)

    def raise_fence(self, generation: int) -> None:
        """From now on older generations commit nothing."""
        self.fence = max(self.fence, generation)

    def commit(self, generation: int, step: int) -> bool:
        """Keep a checkpoint; False: refused, the generation is fenced."""
        if generation < self.fence:
            return False
        assert not self.commits or generation >= self.commits[-1].generation, (
            f"generation {generation} committed after generation {self.commits[-1].generation}"
        )
        self.commits.append(Commit(generation, step))
        return True

    def newest_good(self) -> tuple[int, tuple[RejectedCheckpoint, ...]]:
        """The step to resume from, and what had to be passed over."""
        rejected: list[RejectedCheckpoint] = []
        for one in reversed(self.commits):
            if not one.is_corrupt:
                return one.step, tuple(rejected)
            path, reason = f"step{one.step}", "shard 0 of rank 0: hash differs"
            rejected.append(RejectedCheckpoint(step=one.step, path=path, reason=reason))
        return 0, tuple(rejected)


class Ranks(Protocol):
    """One launcher's ranks, as the generation sees them."""

    launcher: str
    node: str

    def restoring(self, step: int, rejected: tuple[RejectedCheckpoint, ...]) -> None:
        """The ranks begin to read a checkpoint."""

    def loaded(self) -> None:
        """The ranks have their state."""

    def stepped(self, step: int) -> None:
        """The ranks have completed a step."""

    def saved(self, step: int) -> None:
        """A checkpoint is committed."""

    def saved_for_stop(self) -> None:
        """The checkpoint that a stop asked for is there, or cannot be."""

    def fail(self, text: str) -> None:
        """One of the ranks ends in error."""

    def finish(self) -> None:
        """All ranks have done their work."""


@dataclass(slots=True, eq=False)
class Generation:
    """The ranks of one generation of a job, on all its nodes."""

    scene: Scene
    plan: JobPlan
    folder: Folder
    number: int
    world: World
    link_is_up: Callable[[str], bool]
    store_is_open: Callable[[World], bool]
    members: dict[str, Ranks] = field(default_factory=dict)  # whose ranks are alive, by launcher
    step: int = 0
    is_broken: bool = False
    is_finished: bool = False
    _loaded: set[str] = field(default_factory=set)
    _asked_to_save: bool = False
    _stalled_seconds: float = 0.0
    _is_hung: bool = False

    def join(self, ranks: Ranks) -> None:
        """A launcher's ranks are alive and look for the others."""
        self.members[ranks.launcher] = ranks
        if self.is_broken:
            self._hurt(ranks, "a peer has gone")
        elif len(self.members) == len(self.world.members):
            self.scene.soon(0.3, self._meet)
        else:
            limit = self.scene.setting.temper.rendezvous_seconds
            self.scene.later(limit, lambda: self._missed(ranks))

    def _missed(self, ranks: Ranks) -> None:
        if ranks.launcher in self.members and len(self.members) < len(self.world.members):
            ranks.fail("rendezvous timed out")

    def leave(self, launcher: str) -> None:
        """A launcher's ranks are gone: the others cannot go on without them."""
        if self.members.pop(launcher, None) is not None:
            self._break("a peer has gone")

    def _break(self, text: str) -> None:
        if self.is_broken or self.is_finished:
            return
        self.is_broken = True
        for ranks in list(self.members.values()):
            self._hurt(ranks, text)

    def _hurt(self, ranks: Ranks, text: str) -> None:
        """A collective without its peer fails after a while."""

        def fail() -> None:
            if ranks.launcher in self.members:
                ranks.fail(text)

        self.scene.soon(self.scene.setting.temper.patience_seconds, fail)

    def _meet(self) -> None:
        if self.is_broken:
            return
        if not self.store_is_open(self.world):
            self._break("the store does not answer")
            return
        self.step, rejected = self.folder.newest_good()
        for ranks in self.members.values():
            ranks.restoring(self.step, rejected)
            seconds = self.scene.setting.temper.load_seconds
            self.scene.soon(seconds, lambda ranks=ranks: self._has_loaded(ranks))  # type: ignore[misc]

    def _has_loaded(self, ranks: Ranks) -> None:
        if self.is_broken or ranks.launcher not in self.members:
            return
        ranks.loaded()
        self._loaded.add(ranks.launcher)
        if len(self._loaded) == len(self.world.members):
            self._next()

    def _next(self) -> None:
        seconds = self.scene.setting.temper.step_seconds
        self.scene.later(seconds * self.scene.dice.uniform(0.9, 1.1), self._try_step)

    def hang(self, seconds: float) -> None:
        """Nothing comes on any more until the watchdog gives the generation up."""
        self._is_hung = True
        self.scene.later(seconds, lambda: self._break("the watchdog of the collectives"))

    def _try_step(self) -> None:
        if self.is_broken or self._is_hung:
            return
        if all(self.link_is_up(ranks.node) for ranks in self.members.values()):
            self._stalled_seconds = 0.0
            self._take_step()
            return
        self._stalled_seconds += self.scene.setting.temper.step_seconds
        if self._stalled_seconds > RETRY_SECONDS:
            self._break("collective timed out")
            return
        self._next()

    def _take_step(self) -> None:
        if self.plan.bug_step is not None and self.step >= self.plan.bug_step:
            first = min(self.members)
            self.members[first].fail("the script raised an error")
            return
        self.step += 1
        for ranks in list(self.members.values()):
            ranks.stepped(self.step)
        if self._asked_to_save:
            self._save_and_stop()
        elif self.plan.steps is not None and self.step >= self.plan.steps:
            self._commit(self.step)
            self.is_finished = not self.is_broken
            for ranks in list(self.members.values()) if self.is_finished else []:
                self.scene.soon(0.3, ranks.finish)
        else:
            if self.step % self.scene.setting.temper.save_every == 0:
                seconds, step = self.scene.setting.temper.save_seconds, self.step
                self.scene.soon(seconds, lambda: self._commit(step))
            self._next()

    def _commit(self, step: int) -> None:
        """All shards are written: commit, unless fenced or no longer whole."""
        if self.is_broken:
            return
        if not self.folder.commit(self.number, step):
            self.scene.log(f"{self.plan.spec.name} generation {self.number} is refused a commit")
            self._break("the checkpoint folder is fenced")
            return
        for ranks in list(self.members.values()):
            ranks.saved(step)

    def ask_to_save(self) -> None:
        """One member was told to stop after a save; all save at the next step."""
        self._asked_to_save = True

    def _save_and_stop(self) -> None:
        """Those who were told to stop do so; the others find them gone."""
        self._commit(self.step)
        for ranks in list(self.members.values()):
            ranks.saved_for_stop()
