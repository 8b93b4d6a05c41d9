"""The open streams of agents and launchers, and which of them have news to be told.

A newer connection of the same node, sender and job replaces the older one: a node that came back
through another path must not be held up by a connection that nobody closed. But two that both live
must not take each other's place in turn, be they launchers of one job or the agents of two machines
that were given one name: the second waits until the first is silent.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aegis.model.node import Sender

# Connections are numbered within an epoch, so that the numbers grow across restarts too.
_CONNECTIONS_PER_EPOCH = 1_000_000
SILENT_SECONDS = 3.0  # all speak each second


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One connection. Its handler waits for `news` and closes when `replaced` is set."""

    node: str
    sender: Sender
    job: str
    session: int
    speaker: str = ""  # a launcher's id, the boot of an agent's machine; "" where it does not say
    heard_at: float = field(default_factory=time.monotonic)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    replaced: asyncio.Event = field(default_factory=asyncio.Event)


class Streams:
    """All open streams."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Sender, str], Stream] = {}
        self._count = 0

    def is_held(self, node: str, sender: Sender, job: str, speaker: str) -> bool:
        """Whether another than this one speaks in its place, and did just now."""
        older = self._open.get((node, sender, job))
        if older is None or not speaker or older.speaker in ("", speaker):
            return False
        return time.monotonic() - older.heard_at < SILENT_SECONDS

    def enter(self, epoch: int, node: str, sender: Sender, job: str, speaker: str = "") -> Stream:
        """A new connection takes its place."""
        self._count += 1
        session = epoch * _CONNECTIONS_PER_EPOCH + self._count
        stream = Stream(node=node, sender=sender, job=job, session=session, speaker=speaker)
        if older := self._open.get((node, sender, job)):
            older.replaced.set()
        self._open[node, sender, job] = stream
        return stream

    def leave(self, stream: Stream) -> bool:
        """A connection has ended; whether it was the last of its node."""
        key = (stream.node, stream.sender, stream.job)
        if self._open.get(key) is not stream:
            return False
        del self._open[key]
        return all(node != stream.node for node, _sender, _job in self._open)

    def tell(self, nodes: Iterable[str]) -> None:
        """What these nodes should be running has changed."""
        wanted = set(nodes)
        for stream in self._open.values():
            if stream.node in wanted:
                stream.news.set()

    def counts(self) -> dict[Sender, int]:
        """How many are open, by who speaks."""
        found = Counter(stream.sender for stream in self._open.values())
        return {sender: found[sender] for sender in Sender}
