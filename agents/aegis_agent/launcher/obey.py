"""What an assignment asks of a launcher. Pure: facts in, order out.

- An assignment with a smaller (epoch, sequence) than one obeyed before is old and changes nothing;
  neither does one that is meant for another launcher of the job.
- A generation is started once, and only if it is greater than any that was started or refused.
- Ranks start only where the assignment names this very launcher; older ones are stopped first.
- One without a world asks for no ranks, and refuses its generation for ever.
"""

from dataclasses import dataclass, replace

from aegis.model.job import Assignment, StopKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a launcher has obeyed so far."""

    epoch: int = 0
    sequence: int = -1
    generation: int = 0  # the newest that was started or refused

    @property
    def order(self) -> tuple[int, int]:
        """The place of the newest assignment that was obeyed."""
        return (self.epoch, self.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """How what runs here is to end."""

    kind: StopKind
    grace_seconds: float = 0.0
    take_stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do now: end what runs, then start this, then leave."""

    stop: Stop | None = None
    start: Assignment | None = None
    exit_code: int | None = None
    reason: str = ""


NOTHING = Order()
GIVEN_UP = 93


def obey(standing: Standing, assignment: Assignment, launcher: str) -> tuple[Standing, Order]:
    """What the assignment asks of the launcher of this name, and where it then stands."""
    old = (assignment.epoch, assignment.sequence) < standing.order
    if old or assignment.launcher not in ("", launcher):
        return standing, NOTHING
    standing = replace(standing, epoch=assignment.epoch, sequence=assignment.sequence)
    stop = Stop(
        kind=assignment.stop,
        grace_seconds=assignment.stop_grace_seconds,
        take_stacks=assignment.take_stacks,
    )
    if assignment.finished:
        order = Order(stop=stop, exit_code=assignment.exit_code, reason=assignment.reason)
        return _refused(standing, assignment), order
    if assignment.world is None:
        return _refused(standing, assignment), Order(stop=stop)
    if assignment.generation <= standing.generation:
        return standing, NOTHING  # it runs, or it has ended and is not started twice
    if all(member.launcher != launcher for member in assignment.world.members):
        return standing, Order(stop=stop)  # older ranks end; this generation is others'
    return _refused(standing, assignment), Order(stop=stop, start=assignment)


def _refused(standing: Standing, assignment: Assignment) -> Standing:
    return replace(standing, generation=max(standing.generation, assignment.generation))


def last_words(order: Order, *, said: str) -> str:
    """What a launcher that leaves has still to say, when it has said one reason already."""
    reason = "" if order.reason == said or not order.exit_code else order.reason
    if order.exit_code != GIVEN_UP:
        return reason
    given_up = "the job is given up; mend what ended its ranks before you start it again"
    return f"{reason}: {given_up}" if reason else given_up
