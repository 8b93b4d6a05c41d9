"""The state as a whole: it can be written down, and it stays within bounds."""

from pydantic import TypeAdapter

from aegis.core.cluster import CLOSED_KEPT, Cluster


def test_the_state_reads_back_as_it_was_written(fleet) -> None:
    """A snapshot is the state, whole: a controller goes on from it as if nothing had been."""
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    fleet.obey("n1")
    fleet.die("n2", rank=3)
    adapter = TypeAdapter(Cluster)
    assert adapter.validate_json(adapter.dump_json(fleet.cluster)) == fleet.cluster


def test_closed_incidents_are_kept_up_to_a_number(fleet) -> None:
    """A site that counts errors for years does not fill its memory."""
    fleet.cluster.touched.clear()
    for number in range(CLOSED_KEPT + 20):
        fleet.at += 601
        fleet.fault("n1", "gpu.ecc.correctable", device=f"gpu{number % 8}")
    assert len(fleet.cluster.incidents) == CLOSED_KEPT
    assert fleet.incident.id == f"inc-{CLOSED_KEPT + 20:06d}"


def test_what_changed_is_noted_for_those_who_tell_others(fleet) -> None:
    """The loop sends just these to whoever watches."""
    fleet.cluster.touched.clear()
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    assert fleet.cluster.touched == {("node", "n1"), ("job", "llama"), ("incident", "inc-000001")}
