"""NVIDIA's Xid numbers: what each means, its class, and the action that NVIDIA recommends.

Facts from NVIDIA's public Xid catalogue (docs.nvidia.com/deploy/xid-errors); for Volta and older
from the listing before it. An action is the name of the catalogue's resolution bucket.

The vocabulary has no word for NVLink: its errors are `gpu.xgmi.error`, the class of links between
GPUs. The microcontrollers' (PMU, GSP, SEC2) are `gpu.firmware.smu`. What is only context of another
Xid, or asks for nothing, is `gpu.ras.record`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aegis.model.fault import FaultClass, Severity

_INFO, _WARNING, _ERROR, _FATAL = (
    Severity.INFO,
    Severity.WARNING,
    Severity.ERROR,
    Severity.FATAL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """What one number means."""

    meaning: str
    fault_class: FaultClass
    severity: Severity
    action: str  # NVIDIA's: RESTART_APP, RESET_GPU, RESTART_BM, …
    by_application: bool = False  # mostly the application's own doing: no fault of the node


UNKNOWN = Xid(
    meaning="a number that is not in the catalogue",
    fault_class=FaultClass.GPU_RAS_RECORD,
    severity=_WARNING,
    action="CONTACT_SUPPORT",
)
# What number 154 says the driver wants, by the words it uses.
RECOVERY_ACTIONS: Mapping[str, str] = {
    "none": "IGNORE",
    "gpu reset required": "RESET_GPU",
    "drain and reset": "RESET_GPU",
    "pf flr": "RESET_GPU",
    "drain p2p": "RESTART_APP",
    "node reboot required": "RESTART_BM",
    "os reboot": "RESTART_BM",
    "system reboot required": "RESTART_BM",
}
NVLINK_NUMBERS = frozenset({74, *range(144, 151)})  # their text says "fatal" or "Nonfatal"

_Row = tuple[Iterable[int], str, FaultClass, Severity, str]
_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))  # copy engines
_DECODERS = (65, 68, 73, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)  # video, JPEG, optical flow

_APPLICATION: tuple[_Row, ...] = (
    ((11,), "invalid or corrupted push buffer", FaultClass.GPU_SHADER_ILLEGAL_OPCODE, _WARNING,
     "RESTART_APP"),
    ((13,), "graphics engine exception", FaultClass.GPU_SHADER_ILLEGAL_OPCODE, _WARNING,
     "RESTART_APP"),
    ((25,), "invalid or illegal push buffer", FaultClass.GPU_SHADER_ILLEGAL_OPCODE, _WARNING,
     "RESTART_APP"),
    ((31,), "memory page fault", FaultClass.GPU_VM_FAULT, _WARNING, "RESTART_APP"),
    ((32,), "invalid or corrupted push buffer stream", FaultClass.GPU_SHADER_ILLEGAL_OPCODE,
     _WARNING, "RESTART_APP"),
    ((43,), "a channel of the application was stopped", FaultClass.GPU_QUEUE_RESET, _WARNING,
     "IGNORE"),
    ((45,), "channels were removed, mostly after another Xid", FaultClass.GPU_QUEUE_RESET,
     _WARNING, "WORKFLOW_XID_45"),
    ((66, 67), "illegal register access in the graphics firmware",
     FaultClass.GPU_SHADER_ILLEGAL_OPCODE, _WARNING, "IGNORE"),
    ((69,), "graphics engine class error", FaultClass.GPU_SHADER_ILLEGAL_OPCODE, _WARNING,
     "RESTART_APP"),
    ((108, 137), "a peer's access over NVLink was refused, mostly the application's",
     FaultClass.GPU_VM_FAULT, _WARNING, "IGNORE"),
)  # fmt: skip

_ENGINE: tuple[_Row, ...] = (
    ((8,), "the GPU stopped processing a channel", FaultClass.GPU_RING_TIMEOUT, _ERROR,
     "RESTART_APP"),
    ((38,), "watchdog of the graphics firmware", FaultClass.GPU_SCHEDULER_HANG, _WARNING,
     "IGNORE"),
    (_ENGINES, "copy engine error", FaultClass.GPU_RING_TIMEOUT, _ERROR, "RESTART_APP"),
    (_DECODERS, "video, image or optical-flow engine error", FaultClass.GPU_RING_TIMEOUT, _ERROR,
     "RESTART_APP"),
    ((44,), "fault during a context switch", FaultClass.GPU_SCHEDULER_HANG, _WARNING, "IGNORE"),
    ((46,), "the GPU stopped processing", FaultClass.GPU_SCHEDULER_HANG, _ERROR, "RESET_GPU"),
    ((60,), "security engine error", FaultClass.GPU_RING_TIMEOUT, _ERROR, "RESTART_APP"),
    ((80,), "push buffer checksum mismatch", FaultClass.GPU_RING_TIMEOUT, _ERROR, "RESTART_APP"),
    ((109,), "context switch time-out", FaultClass.GPU_SCHEDULER_HANG, _ERROR, "RESET_GPU"),
    ((142,), "video encoder error", FaultClass.GPU_RING_TIMEOUT, _ERROR, "CONTACT_SUPPORT"),
    ((158,), "fatal time-out in the GPU", FaultClass.GPU_SCHEDULER_HANG, _ERROR, "RESET_GPU"),
)  # fmt: skip

_FIRMWARE: tuple[_Row, ...] = (
    ((61,), "breakpoint in the power controller", FaultClass.GPU_FIRMWARE_SMU, _WARNING,
     "RESET_GPU"),
    ((62,), "the power controller halted", FaultClass.GPU_FIRMWARE_SMU, _ERROR, "RESET_GPU"),
    ((110,), "security fault", FaultClass.GPU_FIRMWARE_SMU, _ERROR, "RESET_GPU"),
    ((119,), "the GPU's system processor did not answer", FaultClass.GPU_FIRMWARE_SMU, _ERROR,
     "RESET_GPU"),
    ((120,), "error in the GPU's system processor", FaultClass.GPU_FIRMWARE_SMU, _ERROR,
     "RESET_GPU"),
    ((122, 123, 124), "the GPU's flash memory could not be used", FaultClass.GPU_FIRMWARE_SMU,
     _WARNING, "CONTACT_SUPPORT"),
    ((125,), "the GPU's own records are damaged", FaultClass.GPU_FIRMWARE_SMU, _WARNING,
     "CONTACT_SUPPORT"),
    ((151,), "key rotation failed", FaultClass.GPU_FIRMWARE_SMU, _ERROR, "RESTART_VM"),
    ((169,), "the security processor halted", FaultClass.GPU_FIRMWARE_SMU, _ERROR,
     "CONTACT_SUPPORT"),
)  # fmt: skip

_MEMORY: tuple[_Row, ...] = (
    ((48,), "uncorrectable memory error", FaultClass.GPU_ECC_UNCORRECTABLE, _ERROR,
     "WORKFLOW_XID_48"),
    ((63,), "a memory row or page will be replaced at the next reset",
     FaultClass.GPU_MEMORY_BAD_PAGE, _WARNING, "IGNORE"),
    ((64,), "a memory row or page could not be replaced", FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD,
     _FATAL, "RESET_GPU"),
    ((92,), "many correctable memory errors", FaultClass.GPU_ECC_CORRECTABLE, _WARNING, "IGNORE"),
    ((94,), "contained memory error: only the application that met it ends",
     FaultClass.GPU_ECC_UNCORRECTABLE, _ERROR, "RESTART_APP"),
    ((95,), "uncontained memory error: every application on the GPU is at risk",
     FaultClass.GPU_ECC_UNCORRECTABLE, _FATAL, "RESET_GPU"),
    ((140,), "unrecovered memory error", FaultClass.GPU_ECC_UNCORRECTABLE, _ERROR, "RESET_GPU"),
    ((156,), "a defective part was retired; a reset activates it", FaultClass.GPU_MEMORY_BAD_PAGE,
     _WARNING, "RESET_GPU"),
    ((157,), "a defective part could not be retired", FaultClass.GPU_MEMORY_BAD_PAGE, _WARNING,
     "CONTACT_SUPPORT"),
    ((168,), "the GPU has less memory than it should", FaultClass.GPU_MEMORY_BAD_PAGE, _WARNING,
     "CONTACT_SUPPORT"),
    ((171, 172), "where an uncorrectable memory error was", FaultClass.GPU_ECC_UNCORRECTABLE,
     _ERROR, "WORKFLOW_XID_48"),
)  # fmt: skip

_DEVICE: tuple[_Row, ...] = (
    ((54,), "auxiliary power is not connected", FaultClass.GPU_THERMAL_THROTTLE, _WARNING,
     "CHECK_MECHANICALS"),
    ((74,), "NVLink error", FaultClass.GPU_XGMI_ERROR, _WARNING, "WORKFLOW_NVLINK_ERR"),
    ((78,), "the virtual GPU could not be started", FaultClass.GPU_INIT_FAILED, _FATAL,
     "UPDATE_SWFW"),
    ((79,), "the GPU has fallen off the bus", FaultClass.GPU_LOST, _FATAL, "RESTART_BM"),
    ((121,), "error of the link to the CPU", FaultClass.GPU_XGMI_ERROR, _WARNING,
     "CONTACT_SUPPORT"),
    ((136,), "NVLink training failed", FaultClass.GPU_XGMI_ERROR, _ERROR, "RESET_GPU"),
    ((143,), "the GPU could not be initialised", FaultClass.GPU_INIT_FAILED, _FATAL, "RESET_GPU"),
    (range(144, 151), "NVLink error", FaultClass.GPU_XGMI_ERROR, _WARNING,
     "WORKFLOW_NVLINK5_ERR"),
    ((155,), "NVLink error found by software", FaultClass.GPU_XGMI_ERROR, _ERROR, "RESET_GPU"),
    ((159,), "error of the link to the CPU", FaultClass.GPU_XGMI_ERROR, _ERROR, "CHECK_UVM"),
    ((166, 170), "NVLink encryption error", FaultClass.GPU_XGMI_ERROR, _WARNING,
     "CONTACT_SUPPORT"),
    ((167,), "fatal time-out on the PCIe bus", FaultClass.PCIE_AER_FATAL, _ERROR,
     "CONTACT_SUPPORT"),
)  # fmt: skip

_RECORDS: tuple[_Row, ...] = (
    ((14, 37, 106, 107, 141, 152, 153, 160, 161), "a record that asks for nothing",
     FaultClass.GPU_RAS_RECORD, _INFO, "IGNORE"),
    ((93,), "the GPU's own records are written too often", FaultClass.GPU_RAS_RECORD, _INFO,
     "IGNORE"),
    ((154,), "what the driver wants done after another Xid", FaultClass.GPU_RAS_RECORD, _INFO,
     "XID_154"),
    (range(162, 166), "power smoothing changed", FaultClass.GPU_RAS_RECORD, _INFO, "IGNORE"),
)  # fmt: skip


def _table() -> Iterator[tuple[int, Xid]]:
    application = {number for row in _APPLICATION for number in row[0]}
    for numbers, meaning, fault_class, severity, action in (
        *_APPLICATION, *_ENGINE, *_FIRMWARE, *_MEMORY, *_DEVICE, *_RECORDS,
    ):  # fmt: skip
        for number in numbers:
            yield (
                number,
                Xid(
                    meaning=meaning,
                    fault_class=fault_class,
                    severity=severity,
                    action=action,
                    by_application=number in application,
                ),
            )


XIDS: Mapping[int, Xid] = dict(_table())

# NVSwitch, its SXid numbers: those with an action of their own in the Fabric Manager's guide. All
# others are a fatal or a non-fatal error of the link that their text names.
SXID_REBOOT = frozenset({12020, 22003, 22011, *range(23001, 23018)})  # fatal whatever the text says
SXID_RESET_ALL = frozenset({10003, 19084})
SXID_RESTART_VM = frozenset({11004, 12028})
SXID_MECHANICALS = frozenset({20012})
SXID_THERMAL = frozenset({10004, 10005, 28000, 28001, 28002})
# Corrected memory errors and the like of the switch: counted by it, and asking for nothing.
SXID_IGNORE = frozenset({
    10001, 10002, 11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057,
    19059, 19062, 19065, 19068, 19071, 20001, 22013, 24001, 24002, 24003,
})  # fmt: skip
