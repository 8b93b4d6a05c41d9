"""Pages of incidents: the last active first, and none is missed while they are turned."""

import pytest

from aegis.controller.api.paging import page_by_activity
from aegis.controller.problems import ProblemError
from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Incident, IncidentState, Phases


def incident(number: int, active_at: float) -> Incident:
    """One that was opened `number`th, and was last active then."""
    return Incident(
        id=f"inc-{number:06d}",
        state=IncidentState.OPEN,
        fault_class=FaultClass.NIC_LINK_DOWN,
        severity=Severity.ERROR,
        node="n1",
        device="fab0",
        headline="",
        phases=Phases(observed_at=0.0, opened_at=0.0),
        active_at=active_at,
    )


def kept(**active_at: float) -> dict[int, Incident]:
    """Incidents by number: `_1=10.0` was last active at 10."""
    return {int(name[1:]): incident(int(name[1:]), at) for name, at in active_at.items()}


def numbers(found: tuple[Incident, ...]) -> list[int]:
    return [int(one.id[4:]) for one in found]


def test_what_went_on_last_comes_first() -> None:
    """However long ago it began; of two at the same moment the newer one."""
    incidents = kept(_1=30.5, _2=20.0, _3=20.0, _4=10.0)
    first, cursor = page_by_activity(incidents.values(), 2, "")
    assert numbers(first) == [1, 3]
    second, cursor = page_by_activity(incidents.values(), 2, cursor or "")
    assert numbers(second) == [2, 4]
    assert cursor is None


def test_an_incident_that_moves_while_pages_are_turned_is_not_missed() -> None:
    """It has left its place further down for one that has been read: the next page brings it."""
    incidents = kept(_1=1.0, _2=2.0, _3=3.0, _4=4.0, _5=5.0)
    first, cursor = page_by_activity(incidents.values(), 2, "")
    incidents[1] = incident(1, 6.0)
    incidents[6] = incident(6, 7.0)
    second, cursor = page_by_activity(incidents.values(), 2, cursor or "")
    third, cursor = page_by_activity(incidents.values(), 2, cursor or "")
    assert (numbers(first), numbers(second), numbers(third)) == ([5, 4], [1, 6], [3, 2])
    assert cursor is None


def test_more_move_than_a_page_holds() -> None:
    """Nothing is lost either when every incident is active between two pages."""
    incidents = kept(_1=1.0, _2=2.0, _3=3.0, _4=4.0, _5=5.0)
    first, cursor = page_by_activity(incidents.values(), 2, "")
    incidents = {number: incident(number, 10.0 + number) for number in incidents}
    seen, turned = set(numbers(first)), 1
    while cursor:
        found, cursor = page_by_activity(incidents.values(), 2, cursor)
        seen |= set(numbers(found))
        turned += 1
    assert seen == {1, 2, 3, 4, 5}
    assert turned == 4


@pytest.mark.parametrize("cursor", ["inc-000001", "a:b:c:d", "1.0:inc-000001", "1:2:3:4:5"])
def test_what_is_no_cursor_is_refused(cursor) -> None:
    """With a sentence, and not with a page that leaves something out."""
    with pytest.raises(ProblemError, match="is not the `next` of a page"):
        page_by_activity([], 2, cursor)
