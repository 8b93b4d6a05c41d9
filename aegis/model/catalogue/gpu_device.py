"""A GPU as a part of the machine: firmware, bus, heat, and the links between GPUs."""

from aegis.model.catalogue.entry import Entry
from aegis.model.catalogue.sources import AMDSMI, INSTINCT, LLAMA, XID, amdgpu
from aegis.model.fault import FaultClass, Severity

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.GPU_FIRMWARE_SMU: Entry(
        title="GPU power firmware error",
        description=(
            "The processor inside the GPU that runs clocks, power and resets (SMU, on NVIDIA "
            "GSP or PMU) does not answer or refuses a command."
        ),
        effect="Clocks may stay low, readings may be missing, and a later reset may fail.",
        severity=Severity.ERROR,
        scope="one GPU",
        seen=("kernel log",),
        answer="Tell people; when it persists save, move off, reboot and validate.",
        check=(
            '`dmesg -T | grep -i "SMU"`: whether it goes on',
            "`amd-smi metric --gpu N --clock --power`: readings that make sense",
            "`amd-smi firmware --gpu N`: the same versions as on its neighbours",
        ),
        xids=(62, 119, 120),
        references=(amdgpu("pm/swsmu/smu_cmn.c"), XID),
    ),
    FaultClass.GPU_INIT_FAILED: Entry(
        title="GPU did not initialise",
        description=(
            "The driver could not bring the GPU up: firmware that does not load, memory that does "
            "not train, a first test that fails."
        ),
        effect="The node has one GPU less; jobs that need all of them do not start.",
        severity=Severity.FATAL,
        scope="one GPU",
        seen=("kernel log", "fewer GPUs than expected", "CPER boot records"),
        answer="Keep jobs away, reboot, validate; the module is replaced when that fails.",
        check=(
            '`dmesg -T | grep -iE "amdgpu.*(failed|error)" | head -20`: the first line counts',
            "`lspci -d 1002: | grep -i accelerator`: whether the bus sees it",
            "A cold start (power off, wait, power on) before anything is replaced",
        ),
        afids=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        xids=(143,),
        references=(INSTINCT, amdgpu("amdgpu/amdgpu_device.c"), amdgpu("amdgpu/amdgpu_psp.c")),
    ),
    FaultClass.GPU_LOST: Entry(
        title="GPU lost from the bus",
        description=(
            "The GPU was there and is not any more: the bus answers with ones, or every question "
            "fails. Its name and number still come from a cache."
        ),
        effect="Its ranks are lost.",
        severity=Severity.FATAL,
        scope="one GPU; all ranks that talk to it over XGMI",
        seen=("kernel log", "amdsmi: every call that worked fails", "NVML: GPU is lost"),
        answer="Move the ranks off at once, reboot, validate.",
        check=(
            "`lspci -vv -s ADDRESS`: `rev ff` means that it does not answer",
            "PCIe errors at the same time: `aegis incidents --node NODE`; then it is the path",
            "Power and temperature of the module in the BMC's log",
        ),
        xids=(79,),
        references=(amdgpu("amdgpu/amdgpu_device.c"), XID, LLAMA),
    ),
    FaultClass.GPU_THERMAL_THROTTLE: Entry(
        title="GPU slowed by heat",
        description=(
            "The GPU lowers its clocks because it, or its memory, is too hot. Slowing at the power "
            "cap is normal and no fault."
        ),
        effect="This rank is slow, and with it the whole job.",
        severity=Severity.WARNING,
        scope="one GPU, or a whole rack when the site is too warm",
        seen=("amdsmi violation status", "NVML throttle reasons", "kernel log"),
        answer="None by itself: fans, filters, or the site's cooling.",
        check=(
            "`amd-smi metric --gpu N --temperature --clock`",
            "Neighbours in the rack: `aegis incidents` for the same class",
            "Fans in the BMC: `ipmitool sdr type fan`",
        ),
        references=(AMDSMI, INSTINCT),
    ),
    FaultClass.GPU_XGMI_ERROR: Entry(
        title="XGMI link error",
        description=(
            "Data between two GPUs of the node was damaged on its way (XGMI, WAFL; NVLink on "
            "NVIDIA). Corrected errors are sent again; others are not."
        ),
        effect="Corrected: a little slower. Not corrected: collectives hang or ranks end.",
        severity=Severity.WARNING,
        raised="fatal when it was not corrected (AFID 16 and 18)",
        scope="the link between two GPUs; both of them",
        seen=("amdsmi ecc_count(XGMI_WAFL)", "NVML NVLink counters", "kernel log", "CPER records"),
        answer=(
            "Hands, not reboots: pull the tray, check the torque of the module's screws, seat it "
            "anew."
        ),
        check=(
            "`amd-smi xgmi --link-status` (NVIDIA: `nvidia-smi nvlink --errorcounters`)",
            "Which two GPUs: the other end counts too",
            "Compare counters with those from before the last reset, not with zero",
        ),
        afids=(15, 16, 17, 18),
        xids=(74,),
        references=(INSTINCT, amdgpu("amdgpu/amdgpu_xgmi.c"), XID),
    ),
}
