"""What every sense can do."""

from typing import Protocol


class Sense(Protocol):
    """One way of looking at this node: a source, its probe, and what is remembered."""

    name: str

    def source(self) -> str:
        """What reads, with its version, or why nothing does; empty while it is not known."""

    async def watch(self) -> None:
        """Tell the book what there is and what changes, until cancelled. Outlives all trouble."""

    async def look(self) -> None:
        """Tell the book once what there is."""

    def tick(self, now: float) -> None:
        """About once a second: what time alone changes."""
