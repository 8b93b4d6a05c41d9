"""What the API's handlers and the metrics are given: the parts of one running controller."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request, WebSocket

from aegis.controller.changes import Changes
from aegis.controller.files import Reloads
from aegis.controller.loop import Loop
from aegis.controller.notify import Notifier
from aegis.controller.store import Store
from aegis.controller.streams import Streams
from aegis.controller.tokens import Tokens
from aegis.core.cluster import Cluster

STUCK_SECONDS = 15.0  # a loop that has not gone round for so long is not ready


@dataclass(slots=True, kw_only=True)
class Services:
    """One running controller."""

    loop: Loop
    store: Store
    tokens: Tokens
    changes: Changes
    streams: Streams
    notifier: Notifier
    version: str
    static: Path
    reloads: Reloads = field(default_factory=Reloads)
    event_clients: int = 0

    @property
    def cluster(self) -> Cluster:
        """What the controller believes. Its leaves are frozen: handlers may hand them out."""
        return self.loop.state.cluster

    def checks(self) -> dict[str, str]:
        """What readiness depends on: a name, and what is wrong with it or nothing."""
        stuck = time.monotonic() - self.loop.beat_at
        return {
            "loop": "" if stuck < STUCK_SECONDS else f"has not gone round for {stuck:.0f} s",
            "event log": self.loop.full,
            "rules": "" if self.loop.state.rules.rules else "none are loaded",
        }


def of(connection: Request | WebSocket) -> Services:
    """The services of the application that serves this request."""
    services = connection.app.state.services
    assert isinstance(services, Services)  # noqa: S101  set once by `app.build`
    return services
