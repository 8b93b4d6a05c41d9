"""PCIe: error counters, links, and devices that are gone, in a PCI tree of files."""

import asyncio
import shutil

import pytest

from aegis.model.fault import FaultClass
from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes import burst, pcie
from aegis_agent.probes.burst import Burst
from aegis_agent.senses.pcie import PcieSense
from aegis_agent.settings import read
from aegis_agent.sources import pci
from aegis_agent.spool import Spool

COR = (
    "RxErr 0\nBadTLP {bad}\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nTOTAL_ERR_COR {bad}\n"
)
NONFATAL = "Undefined 0\nDLP 0\nPoisonTLP {bad}\nCmpltTO 0\nTOTAL_ERR_NONFATAL {bad}\n"
FATAL = "Undefined 0\nDLP {bad}\nSDES 0\nTOTAL_ERR_FATAL {bad}\n"
GPU, NIC, BRIDGE = ("0x120000", "0x1002", "0x74a1"), ("0x020000", "0x15b3", "0x1021"), (
    "0x060400", "0x1022", "0x14a4",
)  # fmt: skip


class PciTree:
    """Functions by address; writes what the kernel would show."""

    def __init__(self, root):
        self.root = root
        self.paths = {}
        (root / "bus/pci/devices").mkdir(parents=True)

    def add(self, *chain, kind, interface=""):
        """The last address of the chain, below the ports before it."""
        path = self.root / "devices" / f"pci{chain[0][:7]}"
        for address in chain:
            path /= address
        path.mkdir(parents=True)
        self.paths[chain[-1]] = path
        pci_class, vendor, device = kind
        self.write(chain[-1], **{"class": pci_class}, vendor=vendor, device=device)
        self.link(chain[-1], "32.0 GT/s PCIe", 16, of_max=True)
        self.link(chain[-1], "32.0 GT/s PCIe", 16)
        self.errors(chain[-1])
        if interface:
            (path / "net" / interface).mkdir(parents=True)
        (self.root / "bus/pci/devices" / chain[-1]).symlink_to(path)

    def write(self, address, **files):
        for name, text in files.items():
            (self.paths[address] / name).write_text(f"{text}\n")

    def link(self, address, speed, width, *, of_max=False):
        prefix = "max" if of_max else "current"
        self.write(address, **{f"{prefix}_link_speed": speed, f"{prefix}_link_width": width})

    def errors(self, address, correctable=0, nonfatal=0, fatal=0):
        self.write(
            address,
            aer_dev_correctable=COR.format(bad=correctable),
            aer_dev_nonfatal=NONFATAL.format(bad=nonfatal),
            aer_dev_fatal=FATAL.format(bad=fatal),
        )


ROOT_PORTS = ("0000:c0:01.0", "0000:d0:01.0")
GPUS = ("0000:c3:00.0", "0000:d1:00.0")


@pytest.fixture
def tree(tmp_path):
    """gpu0 and fab0 behind a switch, gpu1 at a port of its own, eno1 that nobody uses."""
    tree = PciTree(tmp_path / "sys")
    tree.add("0000:c0:01.0", kind=BRIDGE)
    tree.add("0000:c0:01.0", "0000:c1:00.0", kind=BRIDGE)
    tree.add("0000:c0:01.0", "0000:c1:00.0", "0000:c2:00.0", kind=BRIDGE)
    tree.add("0000:c0:01.0", "0000:c1:00.0", "0000:c2:00.0", GPUS[0], kind=GPU)
    tree.add("0000:c0:01.0", "0000:c1:00.0", "0000:c2:01.0", kind=BRIDGE)
    tree.add(
        *("0000:c0:01.0", "0000:c1:00.0", "0000:c2:01.0", "0000:c4:00.0"),
        kind=NIC,
        interface="fab0",
    )
    tree.add("0000:d0:01.0", kind=BRIDGE)
    tree.add("0000:d0:01.0", GPUS[1], kind=GPU)
    tree.add("0000:e0:01.0", kind=BRIDGE)
    tree.add("0000:e0:01.0", "0000:e1:00.0", kind=NIC, interface="eno1")
    return tree


class Node:
    """A PCIe sense with a book, in which the GPUs and fab0 are known already."""

    def __init__(self, root, boot_id="boot-1", spool=None):
        self.spool = Spool(None) if spool is None else spool
        self.book = Book(node="n1", boot_id=boot_id, spool=self.spool, urge=lambda: None)
        for name, address in (("gpu0", GPUS[0]), ("gpu1", GPUS[1]), ("fab0", "fab0")):
            self.book.place(address, name)
            self.book.put(Device(name=name, kind=name[:3], health=Health.HEALTHY))
        settings = read(None, {"sys_root": root, "state_dir": root.parent}, "n1")
        self.sense = PcieSense(settings, self.book)

    def poll(self, times=1):
        """The faults that these readings show."""
        told = len(self.spool.pending(100))
        for _ in range(times):
            asyncio.run(self.sense._poll(discover=True))
        return [spooled.fault for spooled in self.spool.pending(100)][told:]

    def conditions(self):
        return [(one.fault_class, one.device) for one in self.book.conditions()]


@pytest.fixture
def node(tree):
    node = Node(tree.root)
    assert node.poll() == []
    return node


def told(faults):
    return [(fault.fault_class.value, fault.severity.value, fault.device) for fault in faults]


def test_the_path_of_a_device_says_its_ports_and_links(tree):
    """Inside a switch there is no link; each end of a link is named once."""
    found = pci.discover(tree.root)
    assert [one.address for one in found.endpoints] == [
        *(GPUS[0], "0000:c4:00.0", GPUS[1], "0000:e1:00.0")
    ]
    assert {(link.upper.address, link.lower.address) for link in found.links} == {
        ("0000:c0:01.0", "0000:c1:00.0"),
        ("0000:c2:00.0", GPUS[0]),
        ("0000:c2:01.0", "0000:c4:00.0"),
        ("0000:d0:01.0", GPUS[1]),
        ("0000:e0:01.0", "0000:e1:00.0"),
    }


def test_virtual_functions_come_and_go(tree):
    """They share their card's link and errors."""
    tree.add("0000:e0:01.0", "0000:e1:00.1", kind=NIC)
    (tree.paths["0000:e1:00.1"] / "physfn").symlink_to(tree.paths["0000:e1:00.0"])
    assert "0000:e1:00.1" not in {one.address for one in pci.discover(tree.root).endpoints}


def test_old_kernels_write_the_errors_in_words():
    """A name may have spaces, and a file may hold garbage."""
    text = "Receiver Error 2\nBad TLP 0\nx\n\nTOTAL_ERR_COR 2\n"
    assert pci.parse_counts(text) == {"Receiver Error": 2, "Bad TLP": 0, "TOTAL_ERR_COR": 2}


def test_each_kind_of_error_is_a_fault_of_its_device(tree, node):
    """With the kinds of error, before and after."""
    tree.errors(GPUS[0], correctable=3, nonfatal=1, fatal=2)
    faults = node.poll()
    assert told(faults) == [
        ("pcie.aer.fatal", "fatal", "gpu0"),
        ("pcie.aer.nonfatal", "error", "gpu0"),
        ("pcie.aer.corrected", "warning", "gpu0"),
    ]
    assert [fault.count for fault in faults] == [2, 1, 3]
    (evidence,) = faults[2].evidence
    assert evidence.text == "3 corrected PCIe errors at 0000:c3:00.0: BadTLP 3"
    assert (evidence.before, evidence.after) == ("0", "3")
    assert node.poll() == []


def test_what_a_port_counts_is_told_of_the_device_behind_it(tree, node):
    """What an endpoint sends badly is seen above it; above a switch it may be any of several."""
    tree.errors("0000:d0:01.0", fatal=1)
    tree.errors("0000:c0:01.0", nonfatal=1)
    faults = node.poll()
    assert told(faults) == [
        ("pcie.aer.nonfatal", "error", "0000:c0:01.0"),
        ("pcie.aer.fatal", "fatal", "gpu1"),
    ]
    assert "port 0000:c0:01.0 above gpu0, fab0" in faults[0].evidence[0].text


def test_a_device_that_training_does_not_use_is_at_most_a_warning(tree, node):
    """A management card takes no node away."""
    tree.errors("0000:e1:00.0", fatal=1)
    tree.errors("0000:e0:01.0", nonfatal=1)
    assert told(node.poll()) == [
        ("pcie.aer.fatal", "warning", "eno1"),
        ("pcie.aer.nonfatal", "warning", "eno1"),
    ]


def test_errors_of_before_the_first_look_are_not_new(tree):
    """The counters count since the boot; they stand beside the device."""
    tree.errors(GPUS[0], correctable=7, fatal=1)
    node = Node(tree.root)
    assert node.poll() == []
    assert dict(node.book.device("gpu0").counters) == {"aer_corrected": 7, "aer_fatal": 1}


def test_errors_while_the_agent_was_away_are_told(tree, node):
    """The counters are remembered, for the boot in which they were read."""
    tree.errors(GPUS[1], nonfatal=2)
    assert told(Node(tree.root, spool=node.spool).poll()) == [
        ("pcie.aer.nonfatal", "error", "gpu1")
    ]
    tree.errors(GPUS[1], nonfatal=9)
    assert Node(tree.root, boot_id="boot-2", spool=node.spool).poll() == []


def test_a_counter_that_fell_tells_of_a_removal(tree, node):
    """Not of a repair: what is counted since is new."""
    tree.errors(GPUS[0], correctable=5)
    node.poll()
    tree.errors(GPUS[0], nonfatal=1)
    assert told(node.poll()) == [
        ("pcie.link.reset", "warning", "gpu0"),
        ("pcie.aer.nonfatal", "error", "gpu0"),
    ]


def test_missing_and_unreadable_counters_change_nothing(tree, node):
    """No AER in a virtual machine, a file that only root may read, garbage."""
    for name in ("aer_dev_fatal", "aer_dev_correctable"):
        (tree.paths[GPUS[0]] / name).unlink()
    (tree.paths[GPUS[1]] / "aer_dev_fatal").write_text("what?")
    (tree.paths[GPUS[1]] / "current_link_width").unlink()
    assert node.poll(4) == []
    assert node.conditions() == []
    assert "AER counters of" in node.sense.source()


def test_a_device_that_is_gone_for_three_readings_is_lost(tree, node):
    """It lasts until it is back, and is not forgotten by a new agent."""
    path = tree.paths[GPUS[1]]
    shutil.move(path, tree.root / "away")
    assert node.poll(2) == []
    assert told(node.poll()) == [("pcie.link.down", "fatal", "gpu1")]
    assert node.conditions() == [(FaultClass.PCIE_LINK_DOWN, "gpu1")]
    again = Node(tree.root, spool=node.spool)
    assert again.poll(2) == []
    assert again.conditions() == [(FaultClass.PCIE_LINK_DOWN, "gpu1")]
    shutil.move(tree.root / "away", path)
    assert told(again.poll()) == [("pcie.link.reset", "warning", "gpu1")]
    assert again.conditions() == []


def test_a_gpu_that_is_being_reset_may_be_away(tree, node):
    """The reset is told by whoever sees it."""
    node.book.resetting["gpu1"] = 1.0
    shutil.move(tree.paths[GPUS[1]], tree.root / "away")
    assert node.poll(5) == []


def test_a_narrow_link_is_degraded_once_it_has_lasted(tree, node):
    """Width never drops to save power."""
    tree.link(GPUS[0], "32.0 GT/s PCIe", 8)
    assert node.poll(2) == []
    (fault,) = node.poll()
    assert told([fault]) == [("pcie.link.degraded", "warning", "gpu0")]
    assert "runs at 32 GT/s x8 and both its ends can do 32 GT/s x16" in fault.evidence[0].text
    assert "3 readings; 1 of 1 links like it run at what they can" in fault.evidence[0].text
    assert node.conditions() == [(FaultClass.PCIE_LINK_DEGRADED, "gpu0")]
    tree.link(GPUS[0], "32.0 GT/s PCIe", 16)
    assert (node.poll(), node.conditions() != []) == ([], True)
    assert (node.poll(), node.conditions()) == ([], [])


def test_what_one_end_cannot_do_is_not_missed(tree, node):
    """A card in a slot of an older generation runs as it should."""
    tree.link("0000:c2:01.0", "16.0 GT/s PCIe", 8, of_max=True)
    tree.link("0000:c4:00.0", "16.0 GT/s PCIe", 8)
    assert node.poll(6) == []


def test_an_idle_gpu_may_slow_its_link(tree, node):
    """All of them are slow because none works; a network card never is."""
    for address in GPUS:
        tree.link(address, "2.5 GT/s PCIe", 16)
    assert node.poll(9) == []
    tree.link("0000:c4:00.0", "8.0 GT/s PCIe", 16)
    assert told(node.poll(3)) == [("pcie.link.degraded", "warning", "fab0")]


def test_a_gpu_that_is_slow_while_ranks_train_is_degraded(tree, node):
    """Or while the others like it are fast, for a minute."""
    node.book.training = True
    tree.link(GPUS[0], "2.5 GT/s PCIe", 16)
    assert node.poll(5) == []
    assert told(node.poll()) == [("pcie.link.degraded", "warning", "gpu0")]
    node.book.training = False
    for address in GPUS:
        tree.link(address, "2.5 GT/s PCIe", 16)
    node.poll(3)
    assert node.conditions() == [(FaultClass.PCIE_LINK_DEGRADED, "gpu0")], "idleness proves nothing"


def test_links_that_never_did_better_are_the_platforms(tree):
    """Eight cards behind risers of eight lanes are a choice, and said where the source is named."""
    for address in GPUS:
        tree.link(address, "32.0 GT/s PCIe", 8)
    node = Node(tree.root)
    assert node.poll(5) == []
    assert node.conditions() == []
    assert "by the platform: 0000:c2:00.0 32 GT/s x8, 0000:d0:01.0 32 GT/s x8" in (
        node.sense.source()
    )
    tree.link(GPUS[0], "32.0 GT/s PCIe", 4)
    assert told(node.poll(3)) == [("pcie.link.degraded", "warning", "gpu0")]


def test_a_device_that_reads_as_all_ones_is_as_good_as_gone(tree, node):
    """It fell off the bus, and nobody took it out of the tree."""
    tree.link(GPUS[1], "Unknown", 63)
    assert node.poll(2) == []
    (fault,) = node.poll()
    assert told([fault]) == [("pcie.link.down", "fatal", "gpu1")]
    assert fault.evidence[0].text == (
        "0000:d1:00.0 does not answer: it reads as all ones for 3 readings"
    )
    tree.link(GPUS[1], "32.0 GT/s PCIe", 16)
    assert told(node.poll()) == [("pcie.link.reset", "warning", "gpu1")]
    assert node.conditions() == []


@pytest.mark.parametrize(("speed", "width"), [("Unknown", 16), ("Unknown speed", 255), ("", 0)])
def test_what_is_not_known_of_a_link_is_no_reading(tree, node, speed, width):
    """A form that the kernel has for "I cannot tell"."""
    tree.link(GPUS[0], speed, width)
    tree.link("0000:c2:00.0", speed, width)
    assert node.poll(6) == []


def test_a_sleeping_device_is_not_woken(tree, node):
    """Asking for its link would; the port above it still knows."""
    (tree.paths[GPUS[0]] / "power").mkdir()
    (tree.paths[GPUS[0]] / "power/runtime_status").write_text("suspended\n")
    tree.link(GPUS[0], "2.5 GT/s PCIe", 1)
    assert node.poll(6) == []


def test_a_node_without_pci_says_so(tmp_path):
    """A virtual machine, a controller node."""
    node = Node(tmp_path / "sys")
    assert node.poll() == []
    assert node.sense.source().startswith("no GPU and no network card on a PCI bus")


def test_a_burst_is_folded(subject):
    """The first at once, then what came within five minutes."""
    seat, memory, faults = pcie.Seat(used=True, words="0000:c1:00.0"), pcie.FunctionMemory(), []
    for second in range(0, 310, 10):
        counts = {"correctable": {"BadTLP": second, "TOTAL_ERR_COR": second}}
        sample = pcie.FunctionSample(at=1000.0 + second, address="0000:c1:00.0", counts=counts)
        judgement = pcie.observe(subject, memory, sample, seat)
        memory, faults = judgement.memory, [*faults, *judgement.faults]
    assert [fault.count for fault in faults] == [10]
    counts = {"correctable": {"BadTLP": 300, "TOTAL_ERR_COR": 300}}
    sample = pcie.FunctionSample(at=1310.0, address="0000:c1:00.0", counts=counts)
    (fault,) = pcie.observe(subject, memory, sample, seat).faults
    assert (fault.count, fault.evidence[0].before) == (290, "10")
    assert fault.evidence[0].text == "290 corrected PCIe errors at 0000:c1:00.0"


def test_a_burst_survives_a_clock_that_goes_back():
    """What is held is told at once, not in an hour."""
    told, _ = burst.add(Burst(), 5000.0, 1)
    told, due = burst.add(told, 5010.0, 2)
    assert due == 0
    assert burst.add(told, 1000.0, 1)[1] == 3
