"""Stopping gracefully: SIGTERM is only noted, and all ranks save at the same step boundary.

The signal reaches the ranks at different moments, even in different steps. So the first of them
names a step a little ahead at the generation's own rendezvous store, and each saves there. This
costs nothing until a stop is asked for. It needs all ranks to be asked, so it holds only where the
launcher has announced it on the page; any other SIGTERM ends the rank as it always did.
"""

import logging
import math
import os
import signal
import threading
import time
from datetime import timedelta
from types import FrameType
from typing import Any

from torch.distributed import DistError, TCPStore

from aegis.worker.progress import Session

_KEY = "aegis/stop"
_AHEAD_SECONDS = 1.0  # by then the signal has reached every rank
_STORE_SECONDS = 5.0

_log = logging.getLogger("aegis.worker")


class StopRequest:
    """Whether the job was asked to stop. Takes SIGTERM over unless the script handles it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked = False
        self._step: int | None = None  # after which all ranks save and end
        self._boundary_at = time.monotonic()
        self._step_seconds = 0.0
        in_main = threading.current_thread() is threading.main_thread()
        if session.launched and in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)

    def due(self, step: int) -> bool:
        """Whether this is the step boundary at which all ranks save and end."""
        now = time.monotonic()
        self._step_seconds, self._boundary_at = now - self._boundary_at, now
        if not self._asked:
            return False
        if self._step is None:
            self._step = self._agree(step)
        return step == self._step

    def _agree(self, step: int) -> int:
        ahead = 1 + math.ceil(_AHEAD_SECONDS / max(self._step_seconds, 1e-3))
        try:
            agreed = int(_store().compare_set(_KEY, "", str(step + ahead)))
        except (DistError, ValueError) as error:
            _log.warning("No step to stop at could be agreed on: %s.", error)
            return -1
        if agreed < step:
            _log.warning("The stop at step %d was announced too late for this rank.", agreed)
        return agreed

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._session.stop_announced():
            self._asked = True
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _store() -> Any:
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        None,
        False,
        timedelta(seconds=_STORE_SECONDS),
    )
