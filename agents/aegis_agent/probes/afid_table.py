"""AMD's field ids as data: what each number means, what AMD does about it, and what we call it.

An AFID stands beside a fault class, never instead of it. Numbers, categories, types and severities
are AMD's (the error map of amdsmi's ACA decoder). `condition` and the service actions are those of
AMD's default service actions per node condition; the link from a number to a condition is by its
name and no map that AMD published, so it is advice.

Why a number has its class:

    1–12   the GPU did not come up                       gpu.init.failed
    13 14  PCIe, as its own counters name it             pcie.aer.corrected, pcie.aer.fatal
    15–18  links between GPUs; WAFL is counted with XGMI gpu.xgmi.error
    19     the maker's own limit for bad pages           gpu.memory.bad_page_threshold
    20–25  memory: what could not be corrected is lost   gpu.ecc.uncorrectable, gpu.ecc.correctable
    26 27  the device stopped itself                     gpu.ras.fatal
    28     data was lost and the device goes on          gpu.ecc.uncorrectable; deferred or poisoned
                                                         where the record says so
    29 30  the rest inside the device                    gpu.ecc.correctable, gpu.ras.fatal
    31–34  the record could not be read: nothing is known of the GPU, collection needs a look
                                                         gpu.ras.record
"""

from dataclasses import dataclass

from aegis.model.fault import FaultClass, Severity

ANY = "any"  # AMD's "ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Afid:
    """What one field id means."""

    number: int
    category: str
    kind: str
    afid_severity: str  # AMD's word: "corrected", "uncorrected, non-fatal", "fatal", …
    fault_class: FaultClass
    severity: Severity
    meaning: str  # one sentence
    action: str = "log it and watch its rate"  # what to do, in plain words
    condition: str = ""  # the node condition of AMD's default service actions
    physical_action_first: bool = False  # never answered by a reset or a reboot


@dataclass(frozen=True, slots=True)
class _Service:
    """One of AMD's default service actions."""

    action: str
    physical_action_first: bool


_REBOOT = _Service(
    "reboot, validate, then run the work again; if validation fails, replace the GPU module (OAM)",
    physical_action_first=False,
)
_PCIE = _Service(
    "run the PCIe link check (AGFHC pcie_link_status) and compare link speed and width; "
    "if it fails, replace the baseboard (UBB)",
    physical_action_first=True,
)
_RESEAT = _Service(
    "pull the GPU tray, check the torque of the OAM's screws, reseat it, validate; "
    "if validation fails, replace the baseboard (UBB); do not reboot in the hope of a cure",
    physical_action_first=True,
)
_REPLACE = _Service(
    "replace the GPU module (OAM), then read the test logs",
    physical_action_first=True,
)

_CORRECTED, _FATAL, _NONFATAL = "corrected", "fatal", "uncorrected, non-fatal"


def _boot(number: int, kind: str, meaning: str) -> Afid:
    return Afid(
        number=number,
        category="boot-time errors",
        kind=kind,
        afid_severity="fail to initialise",
        fault_class=FaultClass.GPU_INIT_FAILED,
        severity=Severity.FATAL,
        meaning=f"the GPU did not start: {meaning}",
        action=_REBOOT.action,
        condition="AMDGPUBootFailed",
    )


def _link(number: int, kind: str, *, fatal: bool) -> Afid:
    fault_class = FaultClass.GPU_XGMI_ERROR
    service, condition = _RESEAT, f"AMDGPU{kind.capitalize()}"
    if kind == "PCIe AER":
        fault_class = FaultClass.PCIE_AER_FATAL if fatal else FaultClass.PCIE_AER_CORRECTED
        service, condition = _PCIE, "AMDGPUPcieAer"
    place = "the PCIe link" if kind == "PCIe AER" else f"the {kind} links between GPUs"
    return Afid(
        number=number,
        category="off-package link errors",
        kind=kind,
        afid_severity=_FATAL if fatal else _CORRECTED,
        fault_class=fault_class,
        severity=Severity.FATAL if fatal else Severity.WARNING,
        meaning=f"{place} had {'an error that could not be' if fatal else 'an error that was'} "
        "corrected",
        action=service.action,
        condition=condition,
        physical_action_first=service.physical_action_first,
    )


def _memory(
    number: int,
    kind: str,
    condition: str,
    meaning: str,
    *,
    fatal: bool = True,
    service: _Service = _REPLACE,
) -> Afid:
    threshold = FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD
    return Afid(
        number=number,
        category="HBM errors",
        kind=kind,
        afid_severity=_FATAL if fatal else _NONFATAL,
        fault_class=threshold if number == 19 else FaultClass.GPU_ECC_UNCORRECTABLE,
        severity=Severity.FATAL if fatal else Severity.ERROR,
        meaning=meaning,
        action=service.action,
        condition=condition,
        physical_action_first=service.physical_action_first,
    )


def _fatal_inside(number: int, kind: str, condition: str, meaning: str, service: _Service) -> Afid:
    return Afid(
        number=number,
        category="device internal errors",
        kind=kind,
        afid_severity=_FATAL,
        fault_class=FaultClass.GPU_RAS_FATAL,
        severity=Severity.FATAL,
        meaning=meaning,
        action=service.action,
        condition=condition,
        physical_action_first=service.physical_action_first,
    )


def _collection(number: int, kind: str, meaning: str, category: str = "CPER format") -> Afid:
    return Afid(
        number=number,
        category=category,
        kind=kind,
        afid_severity=ANY,
        fault_class=FaultClass.GPU_RAS_RECORD,
        severity=Severity.WARNING,
        meaning=meaning,
        action="an alarm about collection, not about the GPU: keep the record, compare driver, "
        "firmware and library versions, look at the error counters and the kernel log",
    )


_ON_DIE = "an error of the memory's own ECC could not be corrected"
_END_TO_END = "data between GPU and memory failed its end-to-end checksum"
_THRESHOLD = "as many memory pages are retired as the GPU's maker allows"

_ROWS = (
    _boot(1, "firmware load", "its firmware could not be loaded"),
    _boot(2, "HBM BIST test", "the memory failed its built-in self-test"),
    _boot(3, "HBM memory test", "the memory failed its test"),
    _boot(4, "HBM training", "the memory could not be trained"),
    _boot(5, "unhandled", "it stopped with a state that it does not explain"),
    _boot(6, "unknown", "it stopped with an error of unknown kind"),
    _boot(7, "USR CP link training", "a link inside the package (USR CP) could not be trained"),
    _boot(8, "USR DP link training", "a link inside the package (USR DP) could not be trained"),
    _boot(9, "WAFL link training", "a WAFL link could not be trained"),
    _boot(10, "XGMI link training", "a link to another GPU (XGMI) could not be trained"),
    _boot(11, "boot controller data abort", "its boot controller aborted on data"),
    _boot(12, "boot controller generic", "its boot controller failed"),
    _link(13, "PCIe AER", fatal=False),
    _link(14, "PCIe AER", fatal=True),
    _link(15, "WAFL", fatal=False),
    _link(16, "WAFL", fatal=True),
    _link(17, "XGMI", fatal=False),
    _link(18, "XGMI", fatal=True),
    _memory(19, "bad page retirement threshold", "AMDGPUBadPageRetirementThreshold", _THRESHOLD),
    _memory(20, "on-die ECC", "AMDGPUOnDieEcc", _ON_DIE),
    _memory(21, "end-to-end CRC", "AMDGPUEndToEndCrc", _END_TO_END),
    _memory(22, "on-die ECC", "AMDGPUOnDieEcc", _ON_DIE, fatal=False),
    _memory(23, "end-to-end CRC", "AMDGPUEndToEndCrc", _END_TO_END, fatal=False),
    Afid(
        number=24,
        category="HBM errors",
        kind="all",
        afid_severity=_CORRECTED,
        fault_class=FaultClass.GPU_ECC_CORRECTABLE,
        severity=Severity.INFO,
        meaning="an error of the memory was corrected",
    ),
    _memory(25, "all others", "AMDGPUHBMError",
            "the memory had an error that could not be corrected", service=_REBOOT),
    _fatal_inside(26, "hardware assertion (HWA)", "AMDGPUHardwareAssertionHwa",
                  "a check inside the GPU found a state that must not be", _REBOOT),
    _fatal_inside(27, "watchdog timeout (WDT)", "AMDGPUWatchdogTimeoutWdt",
                  "a watchdog inside the GPU ran out", _REBOOT),
    Afid(
        number=28,
        category="device internal errors",
        kind="all others",
        afid_severity=_NONFATAL,
        fault_class=FaultClass.GPU_ECC_UNCORRECTABLE,
        severity=Severity.ERROR,
        meaning="an error inside the GPU was not corrected: data was lost, the GPU goes on",
        action="AMD publishes no service action: stop the work that used the data, validate the "
        "GPU, and replace it if it happens again",
    ),
    Afid(
        number=29,
        category="device internal errors",
        kind="all others",
        afid_severity=_CORRECTED,
        fault_class=FaultClass.GPU_ECC_CORRECTABLE,
        severity=Severity.INFO,
        meaning="an error inside the GPU was corrected",
    ),
    _fatal_inside(30, "all others", "AMDGPUDeviceInternalError",
                  "the GPU had a fatal error inside", _REPLACE),
    _collection(31, "malformed CPER", "the error record is malformed"),
    _collection(32, "incomplete ACA data", "the error record lacks registers that it should have"),
    _collection(33, "invalid ACA data", "the registers in the error record make no sense"),
    _collection(34, "unidentified error", "the error record is of no known kind",
                "unidentified errors"),
)  # fmt: skip

AFIDS = {row.number: row for row in _ROWS}

UNCLASSIFIED = 16999
_UNCLASSIFIED = _collection(
    UNCLASSIFIED, "unclassified", "the decoder of the library cannot classify the error",
    "unidentified errors",
)  # fmt: skip


def of_the_bmc(number: int) -> Afid:
    """A number between 10000 and 10999: the baseboard's controller raised it, through Redfish."""
    return Afid(
        number=number,
        category="baseboard (BMC)",
        kind="Redfish event",
        afid_severity=ANY,
        fault_class=FaultClass.GPU_RAS_RECORD,
        severity=Severity.WARNING,
        meaning="the baseboard's controller (BMC) raised this number; AMD publishes no table of it",
        action="read the BMC's event log (Redfish) for the time of the record",
    )


def unclassified() -> Afid:
    """16999."""
    return _UNCLASSIFIED
