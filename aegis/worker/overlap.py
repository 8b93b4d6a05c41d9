"""Copying a state beside the forward and backward pass that follow: the optimizer's step waits.

Parameters and optimizer states change in the optimizer's step and nowhere else, so until then they
can be read while the loop goes on; on a device by a stream of their own. Whatever else there is is
copied before `save` returns. Should a script change a parameter elsewhere, its tensor's version
tells, and the save fails instead of holding half of one step and half of the next. Only what is
changed through `.data` has no version, nor what some fused optimizers change.
"""

import errno
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Key = tuple[int, int, tuple[int, ...]]  # where a tensor's numbers lie: storage, offset, shape

# A stage may have its memory where the one before had it: none is taken while that is written to.
copying = threading.Lock()
_under_way: weakref.WeakSet["Rest"] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor that is still to be copied."""

    name: str
    place: torch.Tensor
    source: torch.Tensor


class Rest:
    """What of one save is still to be copied, by the thread that sees to the save."""

    def __init__(self, pairs: Sequence[Pair], owner: object = None) -> None:
        """`owner` makes the optimizers wait, and lives until all is copied."""
        self.waited_seconds = 0.0  # by the optimizer's step
        self._pairs, self._owner = list(pairs), owner
        self._versions = [_version(one.source) for one in pairs]
        self._over = threading.Event()
        # From these moments on there is on the devices all that the sources are to hold.
        self._reached = {
            device: torch.cuda.current_stream(device).record_event() for device in self.devices
        }
        _under_way.add(self)
        if not pairs:
            self.give_up()

    @property
    def devices(self) -> set[torch.device]:
        """Those whose streams are waited for before the copy counts."""
        return {one.source.device for one in self._pairs if one.source.is_cuda}

    def copy(self) -> None:
        """Copy it; raises OSError where that fails, or where a source was changed meanwhile."""
        pairs = self._pairs
        if len(pairs) != len(self._versions):
            raise OSError(errno.ECANCELED, "the save was interrupted before it was copied")
        try:
            with copying:
                self._copy_all(pairs)
            for one, version in zip(pairs, self._versions, strict=True):
                if _version(one.source) != version:
                    raise OSError(errno.EBUSY, _changed(one.name))
        except RuntimeError as error:
            raise OSError(errno.EIO, f"the state could not be copied: {error}") from error
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._pairs, self._owner = [], None
        self._over.set()

    def wait(self) -> None:
        """Until it is copied; what that takes is told with the save."""
        if not self._over.is_set():
            begun = time.monotonic()
            self._over.wait()
            self.waited_seconds += time.monotonic() - begun

    def _copy_all(self, pairs: Sequence[Pair]) -> None:
        by_device: defaultdict[torch.device, list[Pair]] = defaultdict(list)
        for one in pairs:
            by_device[one.source.device].append(one)
        for device, there in by_device.items():
            if device not in self._reached:
                _copy(there)
                continue
            stream = torch.cuda.Stream(device)
            stream.wait_event(self._reached[device])
            with torch.cuda.stream(stream):
                _copy(there)
            stream.synchronize()


class Overlap:
    """Optimizers whose step waits for the copy under way."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        """Raises ValueError for optimizers whose step cannot be relied on to wait."""
        self.rest = Rest([])
        self._optimizers = optimizers
        self._stepping = 0
        mine = weakref.ref(self)
        for one in optimizers:
            _check(one)
            before = one.register_step_pre_hook(lambda *_: _enter(mine()))
            # A script's own hooks may change parameters: they come after the copy, too.
            one._optimizer_step_pre_hooks.move_to_end(before.id, last=False)  # noqa: SLF001
            after = one.register_step_post_hook(lambda *_: _leave(mine()))
            weakref.finalize(self, before.remove)
            weakref.finalize(self, after.remove)

    def later(self) -> frozenset[Key]:
        """What only an optimizer's step changes; nothing within one, for a closure that saves."""
        if self._stepping:
            return frozenset()
        keys = (key_of(getattr(held, "_local_tensor", held)) for held in self._held())
        return frozenset(key for key in keys if key is not None)

    def _held(self) -> Iterator[torch.Tensor]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
            for state in optimizer.state.values():
                yield from (one for one in state.values() if isinstance(one, torch.Tensor))

    def enter(self) -> None:
        """An optimizer's step begins."""
        self._stepping += 1
        self.rest.wait()

    def leave(self) -> None:
        """It has ended; one that failed never does, and then all is copied at once."""
        self._stepping -= 1


def key_of(tensor: torch.Tensor) -> Key | None:
    """None for what has no memory of its own, and so is copied at once."""
    try:
        pointer = tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return None
    return (pointer, int(tensor.storage_offset()), tuple(tensor.shape)) if pointer else None


def _check(optimizer: Any) -> None:
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise ValueError(
            "overlap=True needs optimizers of torch.optim, whose step can wait for the copy; "
            f"{type(optimizer).__name__} is none. Give the one inside of a wrapper"
        )
    if any(group.get("capturable") for group in optimizer.param_groups):
        raise ValueError(
            "overlap=True cannot be with capturable=True: a step that is replayed from a CUDA "
            "graph waits for no copy"
        )


def _enter(overlap: Overlap | None) -> None:
    if overlap is not None:
        overlap.enter()


def _leave(overlap: Overlap | None) -> None:
    if overlap is not None:
        overlap.leave()


def _copy(pairs: Sequence[Pair]) -> None:
    for one in pairs:
        one.place.copy_(one.source, non_blocking=True)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  there is no other way


def _changed(name: str) -> str:
    return (
        f"{name} was changed while it was copied, outside of the optimizer's step; make the "
        "Checkpointer without overlap=True"
    )


def _forked() -> None:
    """The thread that copies is the parent's: here nobody waits for it."""
    copying._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001
    for rest in list(_under_way):
        rest.give_up()


os.register_at_fork(after_in_child=_forked)
