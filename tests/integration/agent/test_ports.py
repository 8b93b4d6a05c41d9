"""A whole node's network cards, simulated: nobody tells the agent which ports training uses."""

import time

import pytest

from aegis_agent.simulated import fabric, network

MAKES = ["ionic", "bnxt_re", "mlx5"]


@pytest.fixture(params=MAKES)
def make(request):
    return request.param


@pytest.fixture
def tree(tmp_path, make):
    """A node of four GPUs and four cards of one make."""
    fabric.init(tmp_path / "sys", make, 4)
    return tmp_path / "sys"


@pytest.fixture
def started(start_agent, controller, tree):
    def start(*flags):
        return start_agent("--sys-root", str(tree), *flags)

    return start


def rdma_device(make, number):
    return f"{fabric.CARDS[make].rdma}{number}"


def test_the_ports_of_each_make_are_found_with_their_role_and_why(started, controller):
    """Fabric beside the GPUs, storage apart, management where the default route goes."""
    started()
    for name in ("fab0", "fab1", "fab2", "fab3", "ens1", "eth0"):
        controller.wait_device(name, "healthy")
    facts = dict(controller.device("fab0").facts)
    assert facts["why"] == "behind one PCIe bridge with the GPU at 0000:05:00.0"
    used = {device.name: device.used for device in controller.last.devices if device.kind == "nic"}
    assert used == dict.fromkeys(("fab0", "fab1", "fab2", "fab3"), True) | {
        "ens1": False, "eth0": False,
    }  # fmt: skip
    controller.wait(lambda: "counters of" in controller.source("nic"), "counters")
    source = controller.source("nic")
    assert "4 fabric ports by sysfs (fab0, fab1, fab2, fab3): behind one PCIe bridge with" in source
    assert "management: eth0, the default route goes through it" in source
    assert controller.classes() == []


def test_an_rdma_error_of_any_make_is_told_of_its_port(started, controller, tree, make):
    """One counter is unreadable, one holds garbage: neither hides the third."""
    device = rdma_device(make, 2)
    names = {"ionic": ("req_rx_rmt_req_err", "tx_rdma_ack_timeout", "req_tx_loc_oper_err"),
             "bnxt_re": ("bad_resp_err", "res_oos_drop_count", "res_mem_err"),
             "mlx5": ("out_of_buffer", "symbol_error", "rnr_nak_retry_err")}[make]  # fmt: skip
    if make == "bnxt_re":
        names = ("bad_resp_err", "res_cmp_err", "res_mem_err")
    fabric.make_unreadable(tree, device, names[0])
    fabric.set_counter(tree, device, names[1], "garbage")
    started()
    controller.wait(lambda: "unreadable" in controller.source("nic"), "a reading")
    fabric.set_counter(tree, device, names[2], "3")
    fault = controller.wait_fault("nic.rdma.error")
    assert (fault.device, fault.severity, fault.count) == ("fab2", "error", 3)
    assert dict(fault.details) == {"rdma_device": device, "counters": names[2]}
    assert (fault.evidence[0].before, fault.evidence[0].after) == ("0", "3")


class TestOfOneMake:
    """What does not depend on the make."""

    @pytest.fixture
    def make(self):
        return "ionic"

    def test_one_port_that_is_down_at_boot_among_others_that_are_up_is_a_fault(
        self, started, controller, tree
    ):
        """Nobody named it; its three peers did."""
        network.down(tree, "fab1")
        started()
        fault = controller.wait_fault("nic.link.down")
        assert (fault.device, fault.severity) == ("fab1", "error")
        assert "while 3 of 4 ports of its kind are up (fab0, fab2, fab3)" in fault.evidence[0].text
        assert controller.wait_device("fab1", "unhealthy").used
        assert [one.device for one in controller.last.conditions] == ["fab1"]

    def test_one_port_at_half_speed_among_others_is_degraded(self, started, controller, tree):
        """The link is up and every byte takes twice as long."""
        network.set_speed(tree, "fab3", 200_000)
        started()
        fault = controller.wait_fault("nic.rdma.degraded")
        assert (fault.device, fault.severity) == ("fab3", "warning")
        assert "runs at 200 Gb/s while 3 of 4 ports of its kind run at 400 Gb/s" in (
            fault.evidence[0].text
        )

    def test_a_port_that_is_switched_off_at_boot_is_nobodys_fault(self, started, controller, tree):
        """An administrator did it: it is no device of training until it is on."""
        network.switch_off(tree, "fab1")
        started()
        controller.wait_device("fab0", "healthy")
        controller.wait(lambda: "without a link" in controller.source("nic"), "fab1")
        assert controller.device("fab1") is None
        network.switch_on(tree, "fab1")
        controller.wait_device("fab1", "healthy")
        network.switch_off(tree, "fab1")
        fault = controller.wait_fault("nic.link.down")
        assert fault.evidence[0].text == "the port was switched off"

    def test_where_most_of_a_kind_are_down_nothing_is_odd(self, started, controller, tree):
        """Nodes are built with ports that have no cable."""
        for name in ("fab1", "fab2"):
            network.down(tree, name)
        started()
        controller.wait_device("fab0", "healthy")
        controller.wait(lambda: "without a link" in controller.source("nic"), "both")
        assert (controller.classes(), controller.device("fab1")) == ([], None)
        network.up(tree, "fab1")
        controller.wait_device("fab1", "healthy")

    def test_a_storage_link_that_goes_down_is_a_warning(self, started, controller, tree):
        """It takes no node away."""
        started()
        controller.wait_device("ens1", "healthy")
        network.down(tree, "ens1")
        fault = controller.wait_fault("nic.link.down")
        assert (fault.device, fault.severity) == ("ens1", "warning")
        assert [one.severity for one in controller.last.conditions] == ["warning"]

    def test_a_card_that_falls_off_the_bus_is_lost_and_not_only_removed(
        self, started, controller, tree
    ):
        """Interface, RDMA device and PCI function are gone together."""
        started()
        controller.wait_device("fab2", "healthy")
        fabric.remove_function(tree, "0000:66:00.0")
        fault = controller.wait_fault("nic.pcie.lost")
        assert (fault.device, fault.severity) == ("fab2", "fatal")
        assert "nic.removed" not in controller.classes()

    def test_an_rdma_device_whose_driver_is_gone_is_removed(self, started, controller, tree):
        """The interface is still up, and no rank can use it."""
        started()
        controller.wait_device("fab2", "healthy")
        controller.wait(lambda: "counters of" in controller.source("nic"), "counters")
        fabric.remove_rdma(tree, "ionic_2")
        fault = controller.wait_fault("nic.removed")
        assert (fault.device, fault.severity) == ("fab2", "fatal")
        assert "the RDMA device ionic_2 is gone" in fault.evidence[0].text

    def test_an_interface_that_is_renamed_is_the_same_port(self, started, controller, tree):
        """The rules of udev give names late; nothing was removed."""
        started()
        controller.wait_device("fab2", "healthy")
        folder = tree / "class" / "net"
        (folder / "fab2").rename(folder / "rail2")
        controller.wait_device("rail2", "healthy")
        controller.wait(lambda: controller.device("fab2") is None, "the old name's end")
        assert controller.classes() == []

    def test_an_rdma_device_that_is_renamed_is_the_same_device(self, started, controller, tree):
        """Its rules name it after its place, some time after the driver was loaded."""
        started()
        controller.wait(lambda: "counters of" in controller.source("nic"), "counters")
        folder = tree / "class" / "infiniband"
        (folder / "ionic_2").rename(folder / "rocep102s0")
        controller.wait(
            lambda: dict(controller.device("fab2").facts).get("rdma") == "rocep102s0", "its name"
        )
        fabric.set_counter(tree, "rocep102s0", "req_rx_oper_err", "1")
        fault = controller.wait_fault("nic.rdma.error")
        assert dict(fault.details)["rdma_device"] == "rocep102s0"
        assert controller.classes() == ["nic.rdma.error"]

    def test_what_settings_name_is_all_that_is_watched(self, started, controller):
        """As before there were roles."""
        started("--fabric", "fab1,eth0")
        controller.wait_device("fab1", "healthy")
        controller.wait_device("eth0", "healthy")
        names = [device.name for device in controller.last.devices if device.kind == "nic"]
        assert names == ["eth0", "fab1"]
        assert dict(controller.device("fab1").facts)["why"] == "named in the settings"

    def test_a_card_that_went_while_no_agent_ran_is_missed(self, started, controller, tree):
        """What was here in this boot does not go unnoticed."""
        agent = started()
        controller.wait_device("fab2", "healthy")
        agent.end()
        fabric.remove_function(tree, "0000:66:00.0")
        started()
        assert controller.wait_fault("nic.removed").device == "fab2"

    def test_a_card_that_never_came_up_is_missed_beside_its_gpu(self, started, controller, tree):
        """Three of four GPUs have a port of their own; nobody has to know how many there were."""
        fabric.remove_function(tree, "0000:66:00.0")
        started()
        fault = controller.wait_fault("nic.removed")
        assert (fault.device, fault.severity) == ("port beside 0000:65:00.0", "warning")
        assert fault.evidence[0].text == (
            "no network port is beside the GPU at 0000:65:00.0, as 3 of 4 GPUs have"
        )

    def test_a_card_that_hangs_its_reader_is_stalled_and_the_others_are_read(
        self, started, controller, tree
    ):
        """The agent goes on; when the card answers again, that is told as well."""
        agent = started()
        controller.wait(lambda: "counters of" in controller.source("nic"), "counters")
        fabric.make_hang(tree, "ionic_1", "req_rx_oper_err")
        fault = controller.wait_fault("nic.firmware.stalled")
        assert (fault.device, fault.severity) == ("fab1", "error")
        fabric.set_counter(tree, "ionic_3", "req_rx_oper_err", "1")
        assert controller.wait_fault("nic.rdma.error").device == "fab3"
        network.down(tree, "fab1")
        assert controller.wait_fault("nic.link.down").device == "fab1"
        network.up(tree, "fab1")
        fabric.set_counter(tree, "ionic_1", "req_rx_oper_err", "0")
        assert controller.wait_fault("nic.firmware.recovered").device == "fab1"
        controller.wait(lambda: not controller.last.conditions, "the end of the condition")
        assert agent.process.poll() is None


class TestInfiniBand:
    """Links without an interface: only the RDMA device knows."""

    @pytest.fixture
    def make(self):
        return "infiniband"

    def test_a_link_that_goes_down_and_up(self, started, controller, tree):
        """Told by the port's state."""
        started()
        controller.wait_device("mlx5_1", "healthy")
        fabric.set_state(tree, "mlx5_1", up=False)
        fault = controller.wait_fault("nic.link.down")
        assert (fault.device, fault.evidence[0].after) == ("mlx5_1", "down (Disabled)")
        fabric.set_state(tree, "mlx5_1", up=True)
        controller.wait_fault("nic.link.up")
        time.sleep(0.5)
        assert controller.classes() == ["nic.link.down", "nic.link.up"]

    def test_a_link_that_was_lost_between_two_polls_is_a_flap(self, started, controller, tree):
        """InfiniBand counts it, up to 255."""
        fabric.set_counter(tree, "mlx5_2", "link_downed", "255")
        started()
        controller.wait_device("mlx5_1", "healthy")
        fabric.set_counter(tree, "mlx5_2", "link_downed", "0")
        fabric.set_counter(tree, "mlx5_1", "link_downed", "1")
        fault = controller.wait_fault("nic.link.flap")
        assert (fault.device, fault.count) == ("mlx5_1", 1)

    def test_without_a_subnet_manager_the_link_is_not_usable(self, started, controller, tree):
        """Light on the fibre is not enough."""
        started()
        controller.wait_device("mlx5_0", "healthy")
        fabric.set_file(tree, "mlx5_0", "state", "2: INIT")
        fault = controller.wait_fault("nic.link.down")
        assert fault.evidence[0].after == "init (LinkUp)"

    def test_one_port_whose_state_hangs_keeps_no_other_from_being_read(
        self, started, controller, tree
    ):
        """All states are read in one thread; the next is begun without it."""
        started()
        controller.wait_device("mlx5_3", "healthy")
        fabric.make_hang(tree, "mlx5_0", "link_downed")
        controller.wait_device("mlx5_0", "unknown")
        fabric.set_state(tree, "mlx5_3", up=False)
        assert controller.wait_fault("nic.link.down").device == "mlx5_3"
        fabric.set_counter(tree, "mlx5_0", "link_downed", "0")
        controller.wait_device("mlx5_0", "healthy")

    def test_a_port_that_gets_another_name_is_the_same_port(self, started, controller, tree):
        """Nothing was removed."""
        started()
        controller.wait_device("mlx5_3", "healthy")
        folder = tree / "class" / "infiniband"
        (folder / "mlx5_3").rename(folder / "ibp118s0")
        controller.wait_device("ibp118s0", "healthy")
        controller.wait(lambda: controller.device("mlx5_3") is None, "the old name's end")
        assert controller.classes() == []
