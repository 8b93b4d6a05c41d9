"""What a node had when it last trained, against what it has now."""

from dataclasses import replace

from aegis.model.node import Device, Health
from aegis_agent.probes.baseline import compare, learn

FACTS = {"model": "MI300X", "partition": "SPX/NPS1", "driver": "6.16.6", "vbios": "022.040"}
GAUGES = {"pcie_width": 16, "pcie_speed_mts": 32000, "xgmi_links_up": 7, "ecc_correctable": 3}


def gpu(number, health=Health.HEALTHY, facts=(), gauges=(), serial="S"):
    return Device(
        name=f"gpu{number}",
        kind="gpu",
        health=health,
        identity=f"0000:{number}5:00.0 uuid{number} {serial}{number}",
        facts=tuple((FACTS | dict(facts)).items()),
        counters=tuple((GAUGES | dict(gauges)).items()),
    )


NIC = Device(
    name="fab0",
    kind="nic",
    health=Health.HEALTHY,
    counters=(("speed_mbps", 400000),),
    facts=(("rdma", "mlx5_0"),),
)
HOST = Device(name="host", kind="host", health=Health.UNKNOWN, counters=(("memory_gb", 2048),))
WHOLE = (gpu(0), gpu(1), NIC, HOST)
BASELINE = learn(WHOLE, 100.0, trained=True)


def states(devices):
    return [str(one.state) for one in compare(BASELINE, devices)]


def test_a_node_that_is_as_it_was_passes():
    """The same devices, the same modes, the same links; counters are no part of it."""
    devices, configuration = compare(BASELINE, (gpu(0, gauges={"ecc_correctable": 9}), *WHOLE[1:]))
    assert (devices.state, configuration.state) == ("pass", "pass")
    assert (devices.value, devices.gate) == ("2 gpu, 1 nic", "2 gpu, 1 nic")


def test_a_gpu_that_did_not_come_back_is_named():
    """With what it was, and the count against the one before."""
    devices, _ = compare(BASELINE, (gpu(0), NIC, HOST))
    assert devices.state == "fail"
    assert devices.text == "gpu1 is gone (0000:15:00.0 uuid1 S1)"
    assert (devices.value, devices.gate) == ("1 gpu, 1 nic", "2 gpu, 1 nic")


def test_a_gpu_that_is_not_read_is_not_back():
    """No data is never healthy."""
    lost = replace(gpu(1), health=Health.UNKNOWN, detail="it does not answer")
    devices, _ = compare(BASELINE, (gpu(0), lost, NIC, HOST))
    assert (devices.state, devices.text) == ("fail", "gpu1 is unknown: it does not answer")


def test_another_module_in_its_place_is_a_warning():
    """It may well have been exchanged; that it only sits elsewhere is nothing."""
    devices, _ = compare(BASELINE, (gpu(0), gpu(1, serial="T"), NIC, HOST))
    assert devices.state == "warning"
    assert "gpu1 is another one" in devices.text
    moved = replace(gpu(1), identity="0000:25:00.0 uuid1 S1")
    assert states((gpu(0), moved, NIC, HOST)) == ["pass", "pass"]


def test_a_partition_mode_that_fell_back_fails():
    """A job that wants eight GPUs does not run on sixty-four."""
    cpx = {"partition": "CPX/NPS4"}
    _, configuration = compare(BASELINE, (gpu(0, facts=cpx), gpu(1, facts=cpx), NIC, HOST))
    assert configuration.state == "fail"
    assert configuration.text == "gpu0, gpu1: partition is CPX/NPS4, it was SPX/NPS1"


def test_another_driver_or_firmware_is_a_warning():
    """An upgrade is a common reason for a repair."""
    new = {"driver": "6.17.0", "vbios": "022.041"}
    _, configuration = compare(BASELINE, (gpu(0, facts=new), gpu(1), NIC, HOST))
    assert configuration.state == "warning"
    assert "gpu0: driver is 6.17.0, it was 6.16.6" in configuration.text
    assert "gpu0: vbios is 022.041, it was 022.040" in configuration.text


def test_a_link_that_trains_narrower_or_slower_than_before_fails():
    """A narrow slot, a lost XGMI link, a port at half its speed, less memory."""
    for changed in (
        (gpu(0, gauges={"pcie_width": 8}), *WHOLE[1:]),
        (gpu(0, gauges={"xgmi_links_up": 6}), *WHOLE[1:]),
        (gpu(0), gpu(1), replace(NIC, counters=(("speed_mbps", 200000),)), HOST),
        (gpu(0), gpu(1), NIC, replace(HOST, counters=(("memory_gb", 1984),))),
    ):
        assert states(changed) == ["pass", "fail"]
    assert states((gpu(0, gauges={"pcie_speed_mts": 2500}), *WHOLE[1:])) == ["pass", "warning"]
    more = replace(HOST, counters=(("memory_gb", 2047),))
    assert states((gpu(0), gpu(1), NIC, more)) == ["pass", "pass"]


def test_without_a_baseline_it_could_not_be_told():
    """A pass would say what nobody knows."""
    devices, configuration = compare(None, WHOLE)
    assert (devices.state, configuration.state) == ("unknown", "unknown")
    assert devices.value == "2 gpu, 1 nic"


def test_a_sick_node_is_no_baseline():
    """What is broken is not what should be here; devices that training does not use are no part."""
    assert learn((gpu(0), gpu(1, Health.UNHEALTHY)), 1.0, trained=True) is None
    assert learn((HOST,), 1.0, trained=True) is None
    unused = replace(NIC, name="mgmt0", health=Health.UNHEALTHY, used=False)
    found = learn((*WHOLE, unused), 1.0, trained=False)
    assert [one.name for one in found.devices] == ["gpu0", "gpu1", "fab0", "host"]
