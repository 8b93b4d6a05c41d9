"""What has changed since when, for the event stream.

Objects are levels: a client that missed ten changes of a node needs only the newest. So this keeps
names, not objects, with the number of the event that last touched each; whoever is too far behind
is told to fetch everything anew.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

KEPT = 20_000  # names of changed objects

Name = tuple[str, str]  # ("node" | "job" | "incident", its name)


class Changes:
    """The newest change of each object, oldest first."""

    def __init__(self, number: int) -> None:
        self.number = number  # of the last event
        self._forgotten = number  # changes up to here are not known any more
        self._newest: OrderedDict[Name, int] = OrderedDict()
        self._news = asyncio.Event()
        self.closed = False

    def note(self, number: int, touched: Iterable[Name]) -> None:
        """These were touched by the event of this number."""
        self.number = max(self.number, number)
        for name in sorted(touched):
            self._newest[name] = number
            self._newest.move_to_end(name)
        while len(self._newest) > KEPT:
            _name, self._forgotten = self._newest.popitem(last=False)

    def begin(self, number: int) -> None:
        """Nothing before this event is known."""
        self.number = self._forgotten = number

    def tell(self) -> None:
        """Wake those who wait."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        """End every stream."""
        self.closed = True
        self.tell()

    def knows(self, number: int) -> bool:
        """Whether all that changed since then can be told."""
        return self._forgotten <= number <= self.number

    def since(self, number: int) -> list[tuple[int, Name]]:
        """What changed after the event of this number, oldest first."""
        found: list[tuple[int, Name]] = []
        for name in reversed(self._newest):
            if self._newest[name] <= number:
                break
            found.append((self._newest[name], name))
        return found[::-1]

    async def wait(self, number: int) -> None:
        """Until something happened after the event of this number, or all ends."""
        while not self.closed and not self._has_since(number):
            await self._news.wait()

    def _has_since(self, number: int) -> bool:
        newest = next(reversed(self._newest), None)
        return newest is not None and self._newest[newest] > number
