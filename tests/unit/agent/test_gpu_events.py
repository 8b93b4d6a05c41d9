"""amdsmi's events over time."""

from aegis.model.fault import FaultClass
from aegis_agent.probes import gpu_events
from aegis_agent.probes.burst import FOLD_SECONDS, Burst
from aegis_agent.probes.gpu_events import GpuEvent


def test_a_storm_is_told_at_once_and_then_counted(subject):
    """The first within the moment, the others together."""
    event = GpuEvent(at=1000.0, name="VMFAULT", message="pid 7")
    memory, fault = gpu_events.observe(subject, Burst(), event)
    assert (fault.fault_class, fault.count) == (FaultClass.GPU_VM_FAULT, 1)
    assert fault.evidence[0].text == "a process accessed memory that is not its own: pid 7"
    for number in range(40):
        event = GpuEvent(at=1001.0 + number, name="VMFAULT")
        memory, fault = gpu_events.observe(subject, memory, event)
        assert fault is None
    late = GpuEvent(at=1000.0 + FOLD_SECONDS, name="VMFAULT", count=0)
    memory, fault = gpu_events.observe(subject, memory, late)
    assert fault.count == 40
    later = GpuEvent(at=9000.0, name="VMFAULT", count=0)
    assert gpu_events.observe(subject, memory, later)[1] is None
