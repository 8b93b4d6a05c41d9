"""Faults on their way to the controller, and what is remembered of each device, on disk."""

from aegis_agent.spool.disk import SpoolBusyError
from aegis_agent.spool.spool import Spool

__all__ = ["Spool", "SpoolBusyError"]
