"""This node's memory for checkpoints: its ranks' own, and what ranks of other nodes send here.

It lies in the launcher's folder and so outlives the ranks; `aegis.worker.keeper`, a process of the
launcher's, hands it out and takes it in. With one node there is nobody to send anything.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from aegis_agent.launcher.helpers import Helper
from aegis_agent.launcher.options import Options

_log = logging.getLogger(__name__)


class Memory:
    """The process that keeps it, where there is another node."""

    def __init__(self, options: Options, pages: Path) -> None:
        self._keeper = Helper(
            "aegis.worker.keeper",
            [options.address, str(pages / "memory")],  # as `aegis.worker.tiers` finds it
            os.environ,
            self._said,
            self._died,
        )
        self._wanted = options.spec.nodes > 1

    async def run(self) -> None:
        """Keep the process running until cancelled or closed."""
        if self._wanted:
            await self._keeper.run()
        else:
            await asyncio.Event().wait()

    async def close(self) -> None:
        """End it."""
        await self._keeper.close()

    def _said(self, message: dict[str, Any]) -> None:
        if message["event"] == "failed":
            _log.warning("Checkpoints have no copy on another node: %s.", message["reason"])

    def _died(self, status: int) -> None:
        _log.warning("The keeper of peers' shards ended with %d; it is started again.", status)
