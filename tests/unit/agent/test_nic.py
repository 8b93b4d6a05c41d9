"""A link's edges, conditions and flaps."""

from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.probes import nic
from aegis_agent.probes.nic import REMOVED_SAMPLES, LinkMemory, LinkSample

UP = LinkSample(
    at=1.0, source="sysfs", up=True, operstate="up", carrier_changes=1, carrier_downs=0, speed=400
)
DOWN = replace(UP, at=2.0, up=False, operstate="down", carrier_changes=2, carrier_downs=1)


@pytest.fixture
def port(subject):
    return replace(subject, device="fab0", identity="")


@pytest.fixture
def known(port):
    """A port that was seen up once."""
    return nic.observe(port, LinkMemory(), UP).memory


def classes(judgement):
    return [fault.fault_class for fault in judgement.faults]


def test_down_is_an_edge_and_a_condition_up_ends_it(port, known):
    """The edge is told once; the condition carries when it began."""
    down = nic.observe(port, known, DOWN)
    assert classes(down) == [FaultClass.NIC_LINK_DOWN]
    assert (down.faults[0].evidence[0].before, down.faults[0].evidence[0].after) == ("up", "down")
    still = nic.observe(port, down.memory, replace(DOWN, at=3.0))
    assert (classes(still), still.device.health) == ([], Health.UNHEALTHY)
    assert [(c.fault_class, c.since) for c in still.conditions] == [(FaultClass.NIC_LINK_DOWN, 2.0)]
    up = nic.observe(port, still.memory, replace(UP, at=4.0, carrier_changes=3, carrier_downs=1))
    assert (classes(up), up.faults[0].severity) == ([FaultClass.NIC_LINK_UP], Severity.INFO)
    assert (up.conditions, up.device.health) == ((), Health.HEALTHY)


def test_a_flap_that_nobody_saw_is_in_the_counter(port, known):
    """The link was down and up again between two polls: state up, counter risen."""
    seen = nic.observe(port, known, replace(UP, at=2.0, carrier_changes=5, carrier_downs=2))
    assert classes(seen) == [FaultClass.NIC_LINK_FLAP]
    assert (seen.faults[0].severity, seen.faults[0].count) == (Severity.WARNING, 2)
    assert seen.conditions == ()


def test_the_loss_that_was_seen_is_no_flap_as_well(port, known):
    """Three losses counted, one of them seen: two flaps and an edge."""
    seen = nic.observe(port, known, replace(DOWN, carrier_changes=6, carrier_downs=3))
    assert classes(seen) == [FaultClass.NIC_LINK_FLAP, FaultClass.NIC_LINK_DOWN]
    assert seen.faults[0].count == 2


def test_a_counter_that_comes_late_is_counted_once(port, known):
    """State and counter are two files: the loss may be seen before it is counted."""
    early = nic.observe(port, known, replace(DOWN, carrier_changes=1, carrier_downs=0))
    assert classes(early) == [FaultClass.NIC_LINK_DOWN]
    assert classes(nic.observe(port, early.memory, replace(DOWN, at=3.0))) == []


def test_without_a_counter_of_losses_the_changes_do(port):
    """Older kernels count changes only: two of them are one loss."""
    up = replace(UP, carrier_downs=None)
    memory = nic.observe(port, LinkMemory(), up).memory
    seen = nic.observe(port, memory, replace(up, at=2.0, carrier_changes=5))
    assert (classes(seen), seen.faults[0].count) == ([FaultClass.NIC_LINK_FLAP], 2)


def test_a_port_that_is_down_at_the_first_look_is_told(port):
    """A fabric link was named because training needs it: down is down."""
    seen = nic.observe(port, LinkMemory(), DOWN)
    assert classes(seen) == [FaultClass.NIC_LINK_DOWN]
    assert seen.faults[0].evidence[0].text == "the link was down at the first look"


def test_a_port_is_removed_after_three_samples_without_it(port, known):
    """A driver reload makes it vanish for a moment."""
    absent = LinkSample(at=5.0, source="netlink", present=False)
    memory, told = known, []
    for _ in range(REMOVED_SAMPLES + 1):
        seen = nic.observe(port, memory, absent)
        memory, told = seen.memory, [*told, classes(seen)]
    assert told == [[], [], [FaultClass.NIC_REMOVED], []]
    assert [condition.fault_class for condition in seen.conditions] == [FaultClass.NIC_REMOVED]
    assert nic.observe(port, memory, replace(UP, at=9.0)).conditions == ()


def test_a_port_that_never_was_is_unknown(port):
    """A wrong name in --fabric is the operator's mistake, not the hardware's."""
    seen = nic.observe(port, LinkMemory(), LinkSample(at=1.0, source="sysfs", present=False))
    assert (seen.faults, seen.device.health) == ((), Health.UNKNOWN)
    assert seen.device.detail == "there is no such interface"


def test_a_reboot_is_a_new_first_look(port, known):
    """Counters of another boot are not compared."""
    rebooted = replace(port, boot_id="boot-2")
    seen = nic.observe(rebooted, known, replace(UP, carrier_changes=9, carrier_downs=4))
    assert seen.faults == ()
