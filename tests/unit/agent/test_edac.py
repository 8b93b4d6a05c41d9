"""Memory errors, in an EDAC tree of files."""

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import edac
from aegis_agent.probes.edac import EdacMemory
from aegis_agent.sources.edac import Edac


class EdacTree:
    """Controllers with their modules, as the kernel shows them."""

    def __init__(self, root):
        self.folder = root / "devices/system/edac/mc"

    def write(self, path, **files):
        folder = self.folder / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")

    def controller(self, name, corrected=0, uncorrected=0, driver="AMD64 EDAC"):
        self.write(name, mc_name=driver, ce_count=corrected, ue_count=uncorrected)

    def dimm(self, path, corrected=0, uncorrected=0, label=""):
        self.write(
            path, dimm_ce_count=corrected, dimm_ue_count=uncorrected, dimm_label=label,
            dimm_location="csrow 2 channel 1",
        )  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    tree = EdacTree(tmp_path)
    tree.controller("mc0")
    tree.dimm("mc0/dimm0", label="P0_DIMM_A1")
    tree.dimm("mc0/rank3")
    return tree


class Eye:
    """Reads and judges, as the sense does."""

    def __init__(self, root, subject):
        self.source, self.subject, self.memory, self.at = Edac(root), subject, EdacMemory(), 1000.0

    def look(self, seconds=10.0):
        self.at += seconds
        sample = self.source.read(self.at)
        if sample is None:
            return ()
        self.memory, faults = edac.observe(self.subject, self.memory, sample)
        return faults


@pytest.fixture
def eye(tmp_path, subject, tree):
    eye = Eye(tmp_path, subject)
    assert eye.look() == ()
    return eye


def test_a_corrected_error_names_its_module(tree, eye):
    """By its label, or by where it sits when nobody labelled it."""
    tree.controller("mc0", corrected=3)
    tree.dimm("mc0/dimm0", corrected=2, label="P0_DIMM_A1")
    tree.dimm("mc0/rank3", corrected=1)
    first, second = eye.look()
    assert (first.fault_class, first.severity, first.count) == (
        *(FaultClass.HOST_EDAC_CORRECTED, Severity.INFO, 2),
    )
    assert first.evidence[0].text == "2 corrected memory errors in module P0_DIMM_A1"
    assert first.details == (("controller", "mc0"), ("module", "P0_DIMM_A1"))
    assert second.evidence[0].text == "1 corrected memory error in module csrow 2 channel 1"


def test_an_uncorrected_error_is_told_at_once_and_each_time(tree, eye):
    """Its work is lost."""
    for count in (1, 2):
        tree.controller("mc0", uncorrected=count)
        tree.dimm("mc0/dimm0", uncorrected=count, label="P0_DIMM_A1")
        (fault,) = eye.look()
        assert (fault.fault_class, fault.severity) == (
            *(FaultClass.HOST_EDAC_UNCORRECTED, Severity.ERROR),
        )
    assert eye.memory.uncorrected == {"mc0/dimm0": 2}


def test_errors_of_no_known_module_are_the_controllers(tree, eye):
    """The driver cannot always tell."""
    tree.controller("mc0", corrected=4)
    tree.dimm("mc0/dimm0", corrected=1, label="P0_DIMM_A1")
    faults = eye.look()
    assert [fault.evidence[0].text for fault in faults] == [
        "1 corrected memory error in module P0_DIMM_A1",
        "3 corrected memory errors in mc0, at no known module",
    ]


def test_a_storm_is_folded_and_becomes_a_warning(tree, eye):
    """More than a hundred within a day, of one controller, are for people."""
    faults = []
    for count in range(1, 122):
        tree.controller("mc0", corrected=count)
        tree.dimm("mc0/dimm0", corrected=count, label="P0_DIMM_A1")
        faults += eye.look()
    faults += eye.look(400)
    assert sum(fault.count for fault in faults) == 121
    assert len(faults) < 7
    assert (faults[0].severity, faults[-1].severity) == (Severity.INFO, Severity.WARNING)
    assert "121 of controller mc0 within a day, more than 100" in faults[-1].evidence[0].text


def test_counters_that_somebody_set_back_count_anew(tree, eye):
    """`reset_counters`, or a driver that was loaded again."""
    tree.controller("mc0", corrected=9)
    tree.dimm("mc0/dimm0", corrected=9)
    eye.look()
    tree.controller("mc0", corrected=1)
    tree.dimm("mc0/dimm0", corrected=1)
    (fault,) = eye.look(400)
    assert fault.count == 1


def test_a_new_boot_begins_anew_and_keeps_the_rate(tree, eye):
    """What a module did last week is worth knowing."""
    tree.controller("mc0", corrected=9)
    tree.dimm("mc0/dimm0", corrected=9)
    eye.look()
    rate = eye.memory.trend
    eye.memory = edac.new_boot(eye.memory)
    assert eye.memory.trend == rate
    assert eye.look() == ()


def test_ghes_and_rows_are_read_as_well(tmp_path, tree, eye):
    """Firmware-first machines, and kernels before 4.11."""
    tree.controller("mc1", driver="ghes_edac")
    tree.dimm("mc1/dimm0", label="DIMM 0")
    tree.controller("mc2", corrected=0, uncorrected=0, driver="old")
    tree.write("mc2/csrow0", ch0_ce_count=0, ch0_dimm_label="A1", ue_count=0)
    eye.look()
    assert eye.source.drivers == ("AMD64 EDAC", "ghes_edac", "old")
    tree.controller("mc2", corrected=2, uncorrected=1, driver="old")
    tree.write("mc2/csrow0", ch0_ce_count=2, ue_count=1)
    assert [fault.evidence[0].text for fault in eye.look()] == [
        "2 corrected memory errors in module A1",
        "1 uncorrected memory error in module mc2/csrow0",
    ]


def test_what_cannot_be_read_is_no_error(tmp_path, tree, eye):
    """No driver, a controller without counters, garbage."""
    tree.write("mc0", ce_count="many")
    assert eye.look() == ()
    assert Edac(tmp_path / "nothing").read(1.0) is None
