"""The node's clock: what it shows, and whether a service is known to keep it right."""

import ctypes
import time
from pathlib import Path

from aegis_agent.probes.clock import ClockSample, ControllerTime

_UNSYNCHRONISED = 0x40  # STA_UNSYNC in the status of adjtimex
_BYTES = 512  # more than any kernel's struct timex
_TIMESYNCD = Path("run/systemd/timesync/synchronized")


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximum_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * _BYTES),
    )


def read(controller: ControllerTime | None, root: Path = Path("/")) -> ClockSample:
    """The clock now."""
    return ClockSample(
        at=time.time(),
        boottime=time.clock_gettime(time.CLOCK_BOOTTIME),
        synchronised=is_synchronised(root),
        controller=controller,
    )


def is_synchronised(root: Path) -> bool | None:
    """As the kernel has it; by systemd-timesyncd's word where asking the kernel is forbidden."""
    timex = _Timex(modes=0)  # asks, and sets nothing
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):  # another C library
        state = -1
    if state >= 0:
        return not timex.status & _UNSYNCHRONISED
    return True if (root / _TIMESYNCD).exists() else None
