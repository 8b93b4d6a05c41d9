"""A link's edges, conditions and flaps."""

from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.probes import nic
from aegis_agent.probes.nic import REMOVED_SAMPLES, Function, LinkMemory, LinkSample, Stance

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


def test_a_port_that_nobody_named_and_that_never_was_up_makes_nothing(port):
    """It may have no cable. Once it was up it is like any other."""
    unsure = Stance(expected=False)
    first = nic.observe(port, LinkMemory(), DOWN, unsure)
    assert (first.faults, first.conditions) == ((), ())
    up = nic.observe(port, first.memory, UP, unsure)
    assert (up.faults, up.device.health) == ((), Health.HEALTHY)
    assert classes(nic.observe(port, up.memory, replace(DOWN, at=3.0), unsure)) == [
        FaultClass.NIC_LINK_DOWN
    ]


def test_its_peers_make_a_finding_of_it(port):
    """From the look at which most of its kind are up."""
    first = nic.observe(port, LinkMemory(), DOWN, Stance(expected=False))
    missed = nic.observe(port, first.memory, DOWN, Stance(peers="7 of 8 are up (fab1, …)"))
    assert classes(missed) == [FaultClass.NIC_LINK_DOWN]
    assert missed.faults[0].evidence[0].text == "the link is down while 7 of 8 are up (fab1, …)"
    assert [one.fault_class for one in missed.conditions] == [FaultClass.NIC_LINK_DOWN]


def test_a_port_that_was_up_before_the_reboot_is_missed_after_it(port, known):
    """The cable fell out while the node was being serviced."""
    seen = nic.observe(replace(port, boot_id="boot-2"), known, DOWN)
    assert seen.faults[0].evidence[0].text == (
        "the link was down at the first look; it was up before the node was started"
    )


def test_a_port_that_an_administrator_switches_off_is_told_as_such(port, known):
    """It is down all the same."""
    seen = nic.observe(port, known, replace(DOWN, switched_on=False))
    assert seen.faults[0].evidence[0].text == "the port was switched off"
    assert seen.device.detail == "the link is switched off"


def test_a_slow_port_is_degraded_as_long_as_it_is(port, known):
    """Told once, with the condition, and ended without a word."""
    stance = Stance(slow="it runs at 200 Gb/s")
    slow = nic.observe(port, known, replace(UP, at=2.0), stance)
    assert classes(slow) == [FaultClass.NIC_RDMA_DEGRADED]
    assert [one.severity for one in slow.conditions] == [Severity.WARNING]
    again = nic.observe(port, slow.memory, replace(UP, at=3.0), stance)
    assert (classes(again), again.device.health) == ([], Health.UNHEALTHY)
    ended = nic.observe(port, again.memory, replace(UP, at=4.0))
    assert (ended.faults, ended.conditions, ended.device.health) == ((), (), Health.HEALTHY)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (Function.GONE, FaultClass.NIC_PCIE_LOST),
        (Function.SILENT, FaultClass.NIC_PCIE_LOST),
        (Function.PRESENT, FaultClass.NIC_REMOVED),
        (Function.UNKNOWN, FaultClass.NIC_REMOVED),
    ],
)
def test_what_has_become_of_its_pci_function_tells_lost_from_removed(port, known, function, kind):
    """A driver that was unloaded leaves the function there."""
    memory = known
    for _ in range(REMOVED_SAMPLES):
        absent = LinkSample(at=5.0, source="netlink", present=False, function=function)
        seen = nic.observe(port, memory, absent)
        memory = seen.memory
    assert classes(seen) == [kind]
    assert [condition.fault_class for condition in seen.conditions] == [kind]


def test_a_port_that_has_moved_is_unknown_and_not_removed(port, known):
    """Renamed, or handed to a container."""
    memory = known
    for _ in range(5):
        absent = LinkSample(at=5.0, source="netlink", present=False, moved="it is called x now")
        seen = nic.observe(port, memory, absent)
        memory = seen.memory
    assert (seen.faults, seen.device.health) == ((), Health.UNKNOWN)
    assert seen.device.detail == "it is called x now"


def test_a_long_outage_is_a_drop_and_three_of_them_a_flap(port, known):
    """Verdicts come after the edges, and the condition stays from the first."""
    memory, told, at = known, [], 10.0
    for _ in range(3):
        for up in (False, True):
            for _ in range(300):
                at += 1.0
                sample = replace(
                    UP if up else DOWN, at=at, carrier_changes=None, carrier_downs=None
                )
                seen = nic.observe(port, memory, sample)
                memory = seen.memory
                told += [(fault.fault_class, dict(fault.details)) for fault in seen.faults]
    verdicts = [(kind, details["verdict"]) for kind, details in told if details]
    assert verdicts == [
        (FaultClass.NIC_LINK_DOWN, "drop"),
        (FaultClass.NIC_LINK_DOWN, "drop"),
        (FaultClass.NIC_LINK_DOWN, "drop"),
        (FaultClass.NIC_LINK_FLAP, "flap"),
    ]
    counters = dict(seen.device.counters)
    assert (counters["down_seconds_1h"], counters["recoveries_12h"]) == (900, 3)
