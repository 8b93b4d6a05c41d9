"""Copying a state beside the forward and backward pass that follow: the optimizer's step waits.

Parameters and optimizer states change in the optimizer's step and nowhere else, so until then they
can be read while the loop goes on; on a device by a stream of their own. Whatever else there is is
copied before `save` returns. Should a script change a parameter elsewhere, its tensor's version
tells, and the save fails instead of holding half of one step and half of the next; only what is
changed through `.data` has no version.
"""

import errno
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_CHANGED = (
    "parameters or optimizer states were changed outside of the optimizer's step while they were "
    "copied; make the Checkpointer without overlap=True"
)
# A stage may have its memory where the one before had it: none is taken while that is written to.
copying = threading.Lock()


class Rest:
    """What of one save is still to be copied: pairs of a place and its source."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.waited_seconds = 0.0  # by the optimizer's step
        self._pairs = list(pairs)
        self._versions = [_version(source) for _, source in pairs]
        self._lock = threading.Lock()
        self._error: OSError | None = None
        self._device = next((source.device for _, source in pairs if source.is_cuda), None)
        # From this moment on there is on the device all that the sources are to hold.
        self._reached = self._device and torch.cuda.current_stream(self._device).record_event()

    def copy(self) -> None:
        """Copy it; raises OSError where that fails, or where a source was changed meanwhile."""
        self._finish()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Until it is copied, by whoever comes first; what that takes is told with the save."""
        if self._pairs:
            begun = time.monotonic()
            self._finish()
            self.waited_seconds += time.monotonic() - begun

    def _finish(self) -> None:
        with self._lock:
            if not self._pairs:
                return
            try:
                with copying:
                    self._copy_all()
                if [_version(source) for _, source in self._pairs] != self._versions:
                    self._error = OSError(errno.EBUSY, _CHANGED)
            except RuntimeError as error:
                self._error = OSError(errno.EIO, f"the state could not be copied: {error}")
            self._pairs.clear()

    def _copy_all(self) -> None:
        if self._device is None:
            for place, source in self._pairs:
                place.copy_(source)
            return
        stream = torch.cuda.Stream(self._device)
        stream.wait_event(self._reached)
        with torch.cuda.stream(stream):
            for place, source in self._pairs:
                place.copy_(source, non_blocking=True)
        stream.synchronize()


class Overlap:
    """Optimizers whose step waits for the copy under way."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        """Raises ValueError for optimizers whose step cannot be relied on to wait."""
        self.rest = Rest([])
        self._optimizers = optimizers
        mine = weakref.ref(self)
        for one in optimizers:
            if not isinstance(one, torch.optim.Optimizer):
                raise ValueError(  # noqa: TRY004  the value of overlap is what is wrong
                    f"overlap=True needs optimizers of torch.optim, whose step can wait for the "
                    f"copy; {type(one).__name__} is none"
                )
            if any(group.get("capturable") for group in one.param_groups):
                raise ValueError(
                    "overlap=True cannot be with capturable=True: a step that is replayed from a "
                    "CUDA graph waits for no copy"
                )
            handle = one.register_step_pre_hook(lambda *_: _wait(mine()))
            weakref.finalize(self, handle.remove)

    def storages(self) -> frozenset[int]:
        """Where the numbers lie that only an optimizer's step changes."""
        return frozenset(
            tensor.untyped_storage().data_ptr()
            for held in self._held()
            if (tensor := getattr(held, "_local_tensor", held)).numel()
        )

    def _held(self) -> Iterator[torch.Tensor]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
            for state in optimizer.state.values():
                yield from (one for one in state.values() if isinstance(one, torch.Tensor))


def _wait(overlap: Overlap | None) -> None:
    if overlap is not None:
        overlap.rest.wait()


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  there is no other way
