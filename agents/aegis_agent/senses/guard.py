"""A sense that fails costs the others nothing."""

import asyncio
import logging

from aegis_agent.senses.sense import Sense

_log = logging.getLogger(__name__)
FAILED = "failed"  # so begins what a source says then
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 1.0, 60.0


class Guard:
    """Runs a sense, and again when it fails in a way that it did not expect itself.

    The agent has many sources and no one to ask: what one of them cannot read must not keep the
    others from being read. The failure is said where the source is named, and logged whole.
    """

    def __init__(self, sense: Sense) -> None:
        self.name = sense.name
        self._sense = sense
        self._failure = ""

    def source(self) -> str:
        """What the sense says, or that it failed."""
        return self._failure or self._sense.source()

    async def watch(self) -> None:
        """Until cancelled."""
        pause = _PAUSE_SECONDS_MIN
        loop = asyncio.get_running_loop()
        while True:
            started_at = loop.time()
            try:
                await self._sense.watch()
            except Exception as error:  # noqa: BLE001  the last resort: see above
                self._failed(error)
            else:
                return  # it has nothing to watch
            if loop.time() - started_at > _PAUSE_SECONDS_MAX:
                pause = _PAUSE_SECONDS_MIN
            await asyncio.sleep(pause)
            self._failure = ""
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def look(self) -> None:
        """Once."""
        try:
            await self._sense.look()
        except Exception as error:  # noqa: BLE001  the last resort: see above
            self._failed(error)

    def tick(self, now: float) -> None:
        """About once a second."""
        try:
            self._sense.tick(now)
        except Exception as error:  # noqa: BLE001  the last resort: see above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        failure = f"{FAILED} ({type(error).__name__}: {error}); it is tried again"
        if failure != self._failure:
            self._failure = failure
            _log.error("A sense failed.", extra={"sense": self.name}, exc_info=error)
