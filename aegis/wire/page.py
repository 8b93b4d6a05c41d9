"""A rank's progress page: one mapped file that the rank writes and its launcher reads.

A step must cost next to nothing, so it is a few stores into shared memory. Two slots take turns:
the writer fills the idle one and then flips the counter, so that a reader, who looks at the counter
before and after, never takes half a record for a whole one.

    0    magic "AEGISPG1"
    8    u64  count of records written; the newest is in slot count % 2
    16   u64  not 0: the launcher announces a stop that saves; SIGTERM follows, on every node
    64   slot 0
    192  slot 1
         u32 phase · u16 rejected checkpoints · u16 1 where a loss was given · i64 step
         · i64 resumed step (-1: not yet) · i64 newest verified checkpoint · f64 loss
         · f64 loaded_at · first_step_at · last_step_at · checkpoint_at
         · f64 moved_at on the monotonic clock · f64 own_seconds · i64 first step whose loss was
         no finite number (-1: none) · f64 that loss · f64 checkpoint_stall_seconds
         · f64 checkpoint_durable_seconds · u32 where the resumed step was found (0: not said)

The clock for "how long has nothing moved" is the monotonic one, which rank and launcher share.
"""

import math
import struct
from dataclasses import dataclass

from aegis.model.job import RankPhase, Tier

PAGE_BYTES = 4096
MAGIC = b"AEGISPG1"
_COUNT = struct.Struct("<Q")
_COUNT_AT = 8
_STOP_AT = 16
_RECORD = struct.Struct("<IHHqqqdddddddqdddI")
_SLOTS_AT = (64, 192)
_PHASES = tuple(RankPhase)
_TIERS = (None, *Tier)
_NUMBERS = {phase: number for number, phase in enumerate(_PHASES)}
_REJECTED_MAX = 0xFFFF
_READS_MAX = 8  # a writer would have to write twice within each of as many reads


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a rank says of itself. Times are the node's clock, 0.0 for not yet."""

    phase: RankPhase = RankPhase.STARTING
    rejected: int = 0  # checkpoints passed over; they are described in a file beside the page
    step: int = 0
    resumed_step: int | None = None
    resumed_from: Tier | None = None  # where that was found; None: nowhere, or it does not say
    checkpoint_step: int = 0
    loss: float | None = None  # as it was given: it may be NaN
    loaded_at: float = 0.0
    first_step_at: float = 0.0
    last_step_at: float = 0.0
    checkpoint_at: float = 0.0
    moved_at: float = 0.0  # the monotonic clock, when a step was completed or a phase entered
    own_seconds: float = 0.0  # all the time so far that the script has timed as its own
    bad_loss_step: int | None = None  # the first whose loss was no finite number
    bad_loss: float = 0.0
    checkpoint_stall_seconds: float = 0.0  # for which the newest one kept the loop waiting
    checkpoint_durable_seconds: float = 0.0  # and from then until it was complete on disk


def blank() -> bytes:
    """A page on which nothing has been written."""
    return MAGIC + bytes(PAGE_BYTES - len(MAGIC))


def write(page: bytearray | memoryview, count: int, progress: Progress) -> None:
    """Put the record with this number on the page; numbers grow by one from 1."""
    resumed, loss, bad = progress.resumed_step, progress.loss, progress.bad_loss_step
    _RECORD.pack_into(
        page,
        _SLOTS_AT[count % 2],
        _NUMBERS[progress.phase],
        min(progress.rejected, _REJECTED_MAX),
        loss is not None,
        progress.step,
        -1 if resumed is None else resumed,
        progress.checkpoint_step,
        0.0 if loss is None else loss,
        progress.loaded_at,
        progress.first_step_at,
        progress.last_step_at,
        progress.checkpoint_at,
        progress.moved_at,
        progress.own_seconds,
        -1 if bad is None else bad,
        progress.bad_loss,
        progress.checkpoint_stall_seconds,
        progress.checkpoint_durable_seconds,
        _TIERS.index(progress.resumed_from),
    )
    _COUNT.pack_into(page, _COUNT_AT, count)


def announce_stop(page: bytearray | memoryview) -> None:
    """Tell the rank that the SIGTERM to come asks for a save, and goes to all ranks."""
    _COUNT.pack_into(page, _STOP_AT, 1)


def stop_announced(page: bytearray | memoryview) -> bool:
    """Whether the launcher has announced a stop that saves."""
    return bool(_COUNT.unpack_from(page, _STOP_AT)[0])


def read(page: bytes | bytearray | memoryview) -> Progress | None:
    """The newest whole record; None when there is none yet or the page is not one."""
    if bytes(page[: len(MAGIC)]) != MAGIC:
        return None
    for _ in range(_READS_MAX):
        (count,) = _COUNT.unpack_from(page, _COUNT_AT)
        if count == 0:
            return None
        record = _RECORD.unpack_from(page, _SLOTS_AT[count % 2])
        if _COUNT.unpack_from(page, _COUNT_AT) == (count,):
            return _progress(record)
    return None


def _progress(record: tuple[int | float, ...]) -> Progress:
    phase, rejected, has_loss, step, resumed, checkpoint_step, loss, *rest = record
    *times, own_seconds, bad_step, bad_loss, stall, durable, tier = rest
    return Progress(
        phase=_PHASES[int(phase)],
        rejected=int(rejected),
        step=int(step),
        resumed_step=None if resumed < 0 else int(resumed),
        resumed_from=_TIERS[int(tier)],
        checkpoint_step=int(checkpoint_step),
        loss=float(loss) if has_loss else None,
        loaded_at=times[0],
        first_step_at=times[1],
        last_step_at=times[2],
        checkpoint_at=times[3],
        moved_at=times[4],
        own_seconds=float(own_seconds),
        bad_loss_step=None if bad_step < 0 else int(bad_step),
        bad_loss=float(bad_loss),
        checkpoint_stall_seconds=float(stall),
        checkpoint_durable_seconds=float(durable),
    )


def in_words(loss: float) -> str:
    """A loss that is no finite number, as people write it; nothing for one that is."""
    if math.isnan(loss):
        return "NaN"
    return "" if math.isfinite(loss) else str(loss)
