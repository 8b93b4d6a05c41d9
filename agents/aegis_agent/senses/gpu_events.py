"""amdsmi's events: pushed where a site asks for them with `gpu_events: true`."""

import logging
from collections import defaultdict
from typing import Any

from aegis_agent.book import Book
from aegis_agent.probes import gpu_events
from aegis_agent.probes.burst import Burst
from aegis_agent.probes.gpu_events import MEANING, GpuEvent
from aegis_agent.settings import Settings
from aegis_agent.sources.prober import Prober

_log = logging.getLogger(__name__)
_MODULE = "aegis_agent.sources.gpu_events"


class GpuEventsSense:
    """A second way to hear of AMD's GPUs, beside reading them."""

    name = "gpu-events"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._asked_for = settings.gpu_events
        self._book = book
        self._source = ""
        self._simulated = False
        self._bursts: defaultdict[tuple[str, str], Burst] = defaultdict(Burst)  # device and event
        self._prober = Prober(settings.poll_seconds, self, _MODULE)

    def source(self) -> str:
        """What listens, or why nothing does; empty where nobody asked for it."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        if self._asked_for:
            await self._prober.run()

    async def look(self) -> None:
        """An event is not there to be looked at."""

    def tick(self, now: float) -> None:
        """Events that were held back are due now and then."""
        for device, name in list(self._bursts):
            self._take(device, GpuEvent(at=now, name=name, count=0))

    def __call__(self, line: dict[str, Any]) -> None:
        """Take one line of the listener."""
        match line["type"]:
            case "library":
                self._simulated = line["simulated"]
            case "listening":
                self._say(f"amdsmi's events of {line['gpus']} GPUs are listened to")
            case "unavailable":
                self._say(f"no events: {line['reason']}")
            case "event" if line["event"] in MEANING:
                device = self._book.device_at(line["address"])
                if device is not None:
                    event = GpuEvent(at=line["at"], name=line["event"], message=line["message"])
                    self._take(device, event)

    def ended(self, reason: str) -> bool:
        """A reset has killed it, say: it will listen again."""
        if not self._source.startswith("no events"):
            self._say(f"no events for now: the listener ended ({reason})")
            return False
        return True

    def _say(self, text: str) -> None:
        if text != self._source:
            self._source = text
            _log.info("The listener to GPU events changed.", extra={"source": text})

    def _take(self, device: str, event: GpuEvent) -> None:
        known = self._book.device(device)
        subject = self._book.subject(
            device, known.identity if known else "", simulated=self._simulated
        )
        key = device, event.name
        self._bursts[key], fault = gpu_events.observe(subject, self._bursts[key], event)
        if fault is not None:
            self._book.append([fault])
