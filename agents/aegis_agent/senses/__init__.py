"""The senses of the agent. Each joins a source, its probe and what is remembered of its devices."""

from aegis_agent.book import Book
from aegis_agent.senses.checks import CheckSense
from aegis_agent.senses.gpu import GpuSense
from aegis_agent.senses.gpu_events import GpuEventsSense
from aegis_agent.senses.guard import Guard
from aegis_agent.senses.host import HostSense
from aegis_agent.senses.kernel import KernelSense
from aegis_agent.senses.nic import NicSense
from aegis_agent.senses.nvidia import NvidiaSense
from aegis_agent.senses.pcie import PcieSense
from aegis_agent.senses.sense import Sense
from aegis_agent.settings import Settings


def all_senses(settings: Settings, book: Book) -> list[Sense]:
    """Every sense; those that find devices come before those that only know addresses."""
    senses: list[Sense] = [
        GpuSense(settings, book),
        NvidiaSense(settings, book),
        NicSense(settings, book),
        PcieSense(settings, book),
        HostSense(settings, book),
        CheckSense(settings, book),
        KernelSense(settings, book),
        GpuEventsSense(settings, book),
    ]
    return [Guard(sense) for sense in senses]
