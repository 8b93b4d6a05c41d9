"""A port under watch: what its name alone does not tell."""

import time

from aegis_agent.probes.nic import LinkMemory, LinkSample
from aegis_agent.probes.rdma import RdmaMemory
from aegis_agent.senses.nic_port import WatchedPort, missing, reader_of


def watched(tmp_path):
    assigned = missing("eth1")
    reader = reader_of(tmp_path, assigned.port)
    return WatchedPort(assigned=assigned, reader=reader, link=LinkMemory(), rdma=RdmaMemory())


def test_a_port_is_gone_only_once_it_was_looked_for(tmp_path) -> None:
    """It may have another name: a look that began before it went tells nothing of that."""
    port = watched(tmp_path)
    port.sample = LinkSample(at=1.0, source="netlink", up=True)
    looked_at = time.monotonic()
    assert "may have another" in port.whereabouts(looked_at)
    port.sample = LinkSample(at=2.0, source="netlink", present=False)
    assert "may have another" in port.whereabouts(looked_at)
    assert port.whereabouts(time.monotonic()) == ""
    port.moved = "it is called eth7 now"
    assert port.whereabouts(time.monotonic()) == "it is called eth7 now"


def test_a_port_that_was_never_there_is_not_looked_for(tmp_path) -> None:
    """A name in the settings under which there is nothing."""
    assert watched(tmp_path).whereabouts(0.0) == ""
