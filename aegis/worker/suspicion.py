"""Which checkpoints may hold what a broken device has computed: they are passed over at restore.

After an uncorrectable error nothing is known of what was computed since the device's last good
reading. The launcher passes on what it was told:

    AEGIS_SUSPECT=1733150000.5:7     taken at that time or later, by generation 7 or an older one

A checkpoint that is passed over for it is marked with `suspect.json` beside its marker. The file
alone has the same effect; who is sure that the checkpoint is good deletes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aegis.worker.folder import Candidate
from aegis.worker.tiers import Whole

VARIABLE = "AEGIS_SUSPECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """From when on, and up to which generation; none by default."""

    since: float = 0.0
    generation: int = 0

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> "Suspicion":
        """As the launcher passes it on. What cannot be read is none: the launcher writes it."""
        since, _, generation = environment.get(VARIABLE, "").partition(":")
        try:
            return cls(since=float(since), generation=int(generation))
        except ValueError:
            return cls()

    def of(self, one: Candidate | Whole) -> str:
        """Why it is suspect; nothing when it is not."""
        if isinstance(one, Candidate):
            generation, taken_at = one.marker.generation, one.marker.taken_at or one.marker.at
        else:
            generation, taken_at = one.generation, one.taken_at
        if not self.since or generation > self.generation or taken_at < self.since:
            return ""
        return (
            f"suspect: taken {taken_at - self.since:.0f} s after the last good reading of a device "
            "that failed"
        )
