"""Which ports training needs, from where they sit."""

from dataclasses import replace

import pytest

from aegis_agent.probes.roles import Place, Port, Role, assign

GPUS = [
    Place(
        address=f"0000:{bus:02x}:00.0",
        root=f"pci0000:{bus & 0xF0:02x}",
        bridges=(f"0000:{bus & 0xF0:02x}:01.1", f"0000:{(bus & 0xF0) + 1:02x}:00.0"),
        numa_node=number // 4,
    )
    for number, bus in enumerate((0x05, 0x15, 0x65, 0x75, 0x85, 0x95, 0xE5, 0xF5))
]


def beside(gpu, number, **options):
    """An RDMA port behind the switch of this GPU."""
    place = replace(gpu, address=gpu.address.replace("5:00.0", "6:00.0"))
    options = {"driver": "ionic", "model": "0x1dd8:0x1002", "speed": 400_000} | options
    return Port(
        interface=f"fab{number}", rdma=f"ionic_{number}", link_layer="Ethernet", place=place,
        **options,
    )  # fmt: skip


FABRIC = [beside(gpu, number) for number, gpu in enumerate(GPUS)]
MANAGEMENT = Port(
    interface="eth0", driver="igb", default_route=True, speed=1000,
    place=Place(address="0000:01:00.0", root="pci0000:00", numa_node=0),
)  # fmt: skip
STORAGE = Port(
    interface="ens1", rdma="mlx5_0", driver="mlx5_core", model="0x15b3:0x1021", speed=200_000,
    link_layer="Ethernet", place=Place(address="0000:c1:00.0", root="pci0000:c0", numa_node=1),
)  # fmt: skip


def roles(ports, gpus=GPUS, named=()):
    return {assigned.name: assigned.role for assigned in assign(ports, gpus, named)}


def test_rdma_beside_gpus_is_fabric_rdma_elsewhere_storage_the_default_route_management():
    """The node that nobody described: eight rails, a storage card, and the way out."""
    found = assign([*FABRIC, MANAGEMENT, STORAGE], GPUS, ())
    assert [one.role for one in found] == [Role.FABRIC] * 8 + [Role.MANAGEMENT, Role.STORAGE]
    assert found[0].why == "behind one PCIe bridge with the GPU at 0000:05:00.0"
    assert found[8].why == "the default route goes through it"
    assert found[3].gpu == "0000:75:00.0"


@pytest.mark.parametrize("driver", ["ionic", "mlx5_core", "bnxt_en", "next_years"])
def test_no_driver_and_no_model_is_known_by_name(driver):
    """A card that does not exist yet is judged by the same rules."""
    ports = [beside(gpu, number, driver=driver, model="?") for number, gpu in enumerate(GPUS)]
    assert set(roles(ports).values()) == {Role.FABRIC}


def test_where_all_are_equally_far_the_socket_counts():
    """A virtual machine has no switches; the nearest that there is must do."""
    gpus = [replace(gpu, root=f"pci000{n}:00", bridges=()) for n, gpu in enumerate(GPUS)]
    ports = [
        replace(port, place=replace(port.place, root=f"pci001{n}:00", bridges=()))
        for n, port in enumerate(FABRIC)
    ]
    assert set(roles(ports, gpus).values()) == {Role.FABRIC}
    assert assign(ports, gpus, ())[0].why == "on one NUMA node with the GPU at 0000:05:00.0"


def test_a_port_that_came_up_at_half_speed_is_still_fabric():
    """That is a finding, and no other purpose."""
    slow = replace(FABRIC[0], speed=100_000)
    assert roles([slow, *FABRIC[1:], STORAGE])["fab0"] is Role.FABRIC


def test_a_slower_card_of_another_make_beside_a_gpu_is_storage():
    """On a machine with one PCIe root everything is near."""
    other = replace(FABRIC[0], interface="ens1", model="0x15b3:0x1017", speed=100_000)
    assert roles([*FABRIC, other])["ens1"] is Role.STORAGE


def test_infiniband_without_a_gpu_in_sight_is_fabric_and_ethernet_is_unsure():
    """Nobody lays InfiniBand for anything else; RoCE may be storage."""
    infiniband = Port(rdma="mlx5_0", link_layer="InfiniBand", speed=400_000, model="MT4129")
    roce = Port(interface="ens1", rdma="mlx5_1", link_layer="Ethernet", speed=400_000)
    found = assign([infiniband, roce], [], ())
    assert [one.role for one in found] == [Role.FABRIC, Role.MANAGEMENT]
    assert "unsure" in found[1].why


def test_a_port_without_rdma_is_management_and_says_how_to_change_that():
    """Training over TCP is possible, and nothing in the tree tells of it."""
    (found,) = assign([replace(FABRIC[0], rdma="")], GPUS, ())
    assert (found.role, "name it under fabric" in found.why) == (Role.MANAGEMENT, True)


def test_virtual_functions_are_for_others():
    """They are handed to virtual machines and containers."""
    virtual = replace(FABRIC[0], interface="fab0v1", physical_function="0000:06:00.0")
    assert roles([*FABRIC, virtual])["fab0v1"] is Role.MANAGEMENT


def test_the_second_leg_of_a_bond_speaks_rdma_through_the_first():
    """A bond has one RDMA device, at its first leg."""
    legs = [
        replace(FABRIC[0], master="bond0"),
        replace(FABRIC[1], rdma="", master="bond0"),
    ]
    assert set(roles(legs).values()) == {Role.FABRIC}


def test_what_the_settings_name_is_fabric_and_nothing_else_is():
    """By interface or by RDMA device."""
    found = roles([*FABRIC, MANAGEMENT], named=("eth0", "ionic_3"))
    assert [name for name, role in found.items() if role is Role.FABRIC] == ["ionic_3", "eth0"]


def test_infiniband_is_called_by_its_rdma_device():
    """Its interface may come and go with the IP over InfiniBand module."""
    assert Port(interface="ib0", rdma="mlx5_0", link_layer="InfiniBand").name == "mlx5_0"
    assert Port(interface="fab0", rdma="mlx5_0", link_layer="Ethernet").name == "fab0"
