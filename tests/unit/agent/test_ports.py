"""Network ports as sysfs has them."""

import pytest

from aegis_agent.probes.nic import Function
from aegis_agent.probes.roles import Role, assign
from aegis_agent.simulated import fabric
from aegis_agent.simulated.network import point
from aegis_agent.sources import ports


@pytest.fixture
def tree(tmp_path):
    fabric.init(tmp_path, "ionic", 2)
    return tmp_path


def found(tree):
    return ports.find(tree, tree / "proc")


def port(tree, name):
    return next(one for one in found(tree).ports if one.interface == name)


def test_a_port_knows_its_place_its_driver_and_its_rdma_device(tree):
    """All that a role is told from."""
    fab = port(tree, "fab1")
    assert (fab.rdma, fab.driver, fab.model) == ("ionic_1", "ionic", "0x1dd8:0x1002")
    assert (fab.place.address, fab.place.root, fab.place.numa_node) == (
        "0000:16:00.0", "pci0000:10", 1,
    )  # fmt: skip
    assert (fab.link_layer, fab.speed) == ("Ethernet", 400_000)
    assert [gpu.address for gpu in found(tree).gpus] == ["0000:05:00.0", "0000:15:00.0"]


def test_interfaces_without_a_device_are_no_ports(tree):
    """Bridges, bonds, VLANs, pairs of virtual Ethernet."""
    (tree / "class" / "net" / "docker0").mkdir()
    assert [one.interface for one in found(tree).ports] == ["ens1", "eth0", "fab0", "fab1"]


def test_the_default_route_is_followed_down_through_bond_and_vlan(tree):
    """The node's way out is a VLAN on a bond of two ports of the fabric's make."""
    net = tree / "class" / "net"
    for upper, lower in (("bond0.7", "bond0"), ("bond0", "fab0"), ("bond0", "fab1")):
        (net / upper).mkdir(exist_ok=True)
        (net / upper / f"lower_{lower}").touch()
    route = tree / "proc" / "net" / "route"
    route.write_text(route.read_text().replace("eth0", "bond0.7"))
    assert [one.interface for one in found(tree).ports if one.default_route] == ["fab0", "fab1"]


def test_only_the_best_default_route_counts(tree):
    """Each rail may have one of its own, at a price."""
    route = tree / "proc" / "net" / "route"
    with route.open("a") as file:
        file.write("fab0\t00000000\t0100000A\t0003\t0\t0\t500\t00000000\t0\t0\t0\n")
    assert not port(tree, "fab0").default_route


def test_ipv6_is_asked_where_ipv4_has_no_default_route(tree):
    """Switches of the fabric advertise themselves to IPv6: that alone makes no management port."""
    zeros = "0" * 32
    (tree / "proc" / "net" / "ipv6_route").write_text(
        f"{zeros} 00 {zeros} 00 fe80 00000400 00000001 00000000 00000003 fab0\n"
        f"{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 lo\n"
    )
    assert not port(tree, "fab0").default_route
    (tree / "proc" / "net" / "route").unlink()
    assert port(tree, "fab0").default_route
    assert not port(tree, "eth0").default_route


def test_virtual_functions_subfunctions_and_stand_ins_say_whose_they_are(tree):
    """They are for virtual machines, and no rails."""
    functions = tree / "bus" / "pci" / "devices"
    point((functions / "0000:06:00.0").resolve() / "physfn", (functions / "0000:16:00.0").resolve())
    assert port(tree, "fab0").physical_function == "0000:16:00.0"
    folder = (tree / "class" / "net" / "fab1").resolve()
    (folder / "phys_port_name").write_text("pf0vf3\n")
    assert port(tree, "fab1").physical_function == "0000:16:00.0"
    (folder / "phys_port_name").write_text("p0\n")
    assert port(tree, "fab1").physical_function == ""


def test_what_has_become_of_a_function(tree):
    """All ones are what the bus says when nobody answers."""
    assert ports.function_at(tree, "0000:06:00.0") is Function.PRESENT
    (tree / "bus/pci/devices/0000:06:00.0/config").write_bytes(b"\xff" * 64)
    assert ports.function_at(tree, "0000:06:00.0") is Function.SILENT
    fabric.remove_function(tree, "0000:06:00.0")
    assert ports.function_at(tree, "0000:06:00.0") is Function.GONE
    assert ports.function_at(tree, "") is Function.UNKNOWN


def test_a_tree_with_nothing_in_it_has_no_ports(tmp_path):
    """A machine without PCI, or a container that sees none."""
    assert found(tmp_path) == ports.Found()


def test_this_machine_is_read_without_trouble():
    """Whatever it has."""
    here = ports.find(ports.Path("/sys"), ports.Path("/proc"))
    assert not here.simulated
    for one in assign(here.ports, here.gpus, ()):
        assert one.name
        assert one.why
        assert one.role in Role
