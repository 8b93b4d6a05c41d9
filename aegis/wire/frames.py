"""What travels between a node and the controller, and between a launcher and its agent.

    agent -> controller   Report, on change and at least every heartbeat
    controller -> agent   Answer, to each report and whenever an assignment changes
    launcher -> agent     LauncherState, on change and at least every heartbeat
    agent -> launcher     Assignment, whenever it changes and once on connection

Between agent and controller each frame is one WebSocket text message; between launcher and agent
each is one line on a Unix socket. A launcher whose agent is away sends a Report itself.
"""

from dataclasses import dataclass

from aegis.model.fault import Fault
from aegis.model.job import Assignment
from aegis.model.node import NodeReport
from aegis.model.order import Order
from aegis.model.validation import ValidationOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledFault:
    """A fault with its place in the agent's spool."""

    number: int
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A node's whole state, and the faults that the controller has not yet stored."""

    sent_at: float  # the node's clock
    report: NodeReport  # `session` is 0 here; the controller stamps it
    origin: str = ""  # the spool's own id, drawn when the spool was created
    faults: tuple[SpooledFault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the node should be running, whole, and what of its spool is safe on disk."""

    epoch: int
    sent_at: float  # the controller's clock
    sequence: int = 0  # of the report it answers; 0: pushed
    stored: int = 0  # faults of the spool up to this number are stored: forget them
    assignments: tuple[Assignment, ...] = ()  # one for each job that has a launcher here
    orders: tuple[Order, ...] = ()  # to the root helper, as long as they stand
    validations: tuple[ValidationOrder, ...] = ()  # to the agent itself, the same way
