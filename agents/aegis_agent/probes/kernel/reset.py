"""Resets of GPUs: each begins, and then succeeds, fails, or is not heard of again.

    (nothing)  begin -> under way  progress -> under way  succeeded | failed -> (nothing)
                                   silence -> failed

- The GPUs of an XGMI hive are reset together. The driver says "begin" of the one that asked for it
  and names the others only while it works on them, or at the end. So while one reset is under way,
  every GPU that is named in a step of it is under way too; only the one that was said to begin
  owes us an end.
- A begin owes nothing either when the driver leaves it to a reset that is already in progress, or
  when lines were lost: the end may have been among them.
- "MODE1 reset" alone, without a begin, is part of loading the driver and owes nothing.
"""

from dataclasses import dataclass, field

from aegis.model.fault import FaultClass

# A reset of eight MI300X takes 10 to 30 seconds, and the driver says something at every step, also
# when it tries once more. A minute without a word is twice the longest step: the thread that resets
# is stuck. To call it failed early would take away a node that comes back; its ranks are dead
# either way, so that waiting costs little.
SILENCE_SECONDS = 60.0
SILENCE = "silence"  # how such a reset ended, as a detail
RESETS_MAX = 64  # more GPUs than a node has; a log that names more is not believed

BEGIN, PROGRESS = FaultClass.GPU_RESET_BEGIN, FaultClass.GPU_RESET_PROGRESS
ENDS = (FaultClass.GPU_RESET_SUCCEEDED, FaultClass.GPU_RESET_FAILED)
CLASSES = frozenset((BEGIN, PROGRESS, *ENDS))


@dataclass(slots=True, kw_only=True)
class Reset:
    """One GPU's reset that is under way."""

    begun: float  # seconds since boot
    heard: float  # the last word of it
    announced: bool  # it was said to begin, so that its end must come
    text: str = ""


@dataclass(slots=True)
class Resets:
    """Those of one node, by the GPU's address."""

    under_way: dict[str, Reset] = field(default_factory=dict)

    def take(
        self, fault_class: FaultClass, device: str, happened: float, text: str
    ) -> float | None:
        """A line of a reset; how long it took, where this is its end and its begin was seen."""
        if fault_class is BEGIN:
            if len(self.under_way) < RESETS_MAX:
                self.under_way[device] = Reset(
                    begun=happened, heard=happened, announced=True, text=text
                )
        elif fault_class is PROGRESS:
            self._go_on(device, happened)
        else:
            ended = self.under_way.pop(device, None)
            self._forget_companions()
            if ended is not None:
                return max(0.0, happened - ended.begun)
        return None

    def excuse(self, device: str | None = None) -> None:
        """This GPU, or every one, no longer owes us an end."""
        for address, reset in self.under_way.items():
            if device in (None, address):
                reset.announced = False

    def overdue(self, now: float) -> list[tuple[str, Reset]]:
        """Those that began and were not heard of again. They are no longer under way."""
        silent = {
            device: reset
            for device, reset in self.under_way.items()
            if now >= reset.heard + SILENCE_SECONDS
        }
        for device in silent:
            del self.under_way[device]
        self._forget_companions()
        return [(device, reset) for device, reset in silent.items() if reset.announced]

    def due(self) -> float | None:
        """When the next of them will have been silent for too long."""
        heard = [reset.heard for reset in self.under_way.values()]
        return min(heard) + SILENCE_SECONDS if heard else None

    def _go_on(self, device: str, happened: float) -> None:
        if not self.under_way:
            return
        # One thread resets them all, one after the other: a word of one is a sign of life of all.
        for reset in self.under_way.values():
            reset.heard = max(reset.heard, happened)
        if device not in self.under_way and len(self.under_way) < RESETS_MAX:
            self.under_way[device] = Reset(begun=happened, heard=happened, announced=False)

    def _forget_companions(self) -> None:
        if not any(reset.announced for reset in self.under_way.values()):
            self.under_way.clear()
