"""Errors in a GPU's memory and its caches."""

from aegis.model.catalogue.entry import Entry
from aegis.model.catalogue.sources import (
    AMDGPU_RAS,
    AMDSMI,
    INSTINCT,
    LLAMA,
    NVIDIA_MEMORY,
    XID,
    amdgpu,
)
from aegis.model.fault import FaultClass, Severity

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.GPU_ECC_CORRECTABLE: Entry(
        title="Correctable memory error",
        description=(
            "The GPU found a wrong bit in its memory or a cache and put it right. That happens to "
            "healthy devices; many of them, or more each day, announce a part that wears out."
        ),
        effect="None: the data that the work got is good.",
        severity=Severity.INFO,
        raised="warning when one GPU counts more in a day than the agent's threshold",
        scope="one block of one GPU",
        seen=("amdsmi ecc_count per block", "NVML ECC counters", "kernel log", "CPER records"),
        answer="Count it and watch its rate; plan a swap when bad pages follow.",
        check=(
            "`aegis nodes show NODE`: the count, its rate, and the forecast",
            "`amd-smi metric --gpu N --ecc-blocks` (NVIDIA: `nvidia-smi -q -d ECC`)",
            "Whether retired pages grow too: `amd-smi bad-pages --gpu N`",
        ),
        afids=(24, 29),
        xids=(92,),
        references=(AMDGPU_RAS, AMDSMI, NVIDIA_MEMORY, amdgpu("amdgpu/amdgpu_ras.c")),
    ),
    FaultClass.GPU_ECC_DEFERRED: Entry(
        title="Deferred memory error",
        description=(
            "The GPU found data it cannot put right, in a place that nobody has read yet. The data "
            "is marked, and whoever reads it gets a poison error instead of a wrong number."
        ),
        effect="The work so far is good, and will be lost as soon as the marked data is read.",
        severity=Severity.ERROR,
        scope="one GPU; the job that has ranks on it",
        seen=("amdsmi ecc_count per block", "kernel log", "CPER records"),
        answer="Save at the next step boundary, then move the ranks to a spare.",
        check=(
            "`amd-smi metric --gpu N --ecc-blocks`: which block counted",
            "`amd-smi bad-pages --gpu N`: a retired page for it",
            '`dmesg -T | grep -i "deferred hardware errors"`',
        ),
        afids=(28,),
        references=(AMDGPU_RAS, amdgpu("amdgpu/amdgpu_ras.c"), amdgpu("amdgpu/amdgpu_umc.c")),
    ),
    FaultClass.GPU_ECC_UNCORRECTABLE: Entry(
        title="Uncorrectable memory error",
        description=(
            "The GPU read data that it knows to be wrong and cannot put right. What was computed "
            "from it since cannot be trusted."
        ),
        effect=(
            "Tensors on this GPU may be wrong. A checkpoint saved now would keep them, with "
            "perfect hashes."
        ),
        severity=Severity.ERROR,
        scope="one GPU; a reset takes all GPUs of its XGMI hive",
        seen=("amdsmi ecc_count per block", "NVML ECC counters", "kernel log", "CPER records"),
        answer=(
            "Move the ranks off at once, without saving; reset the domain or reboot, validate, "
            "return. On-die ECC and end-to-end CRC (AFID 20 to 23) mean a new module, not a reset."
        ),
        check=(
            "`aegis incidents show ID`: which block, before and after",
            "`amd-smi metric --gpu N --ecc-blocks` and `amd-smi bad-pages --gpu N`",
            '`dmesg -T | grep -iE "amdgpu.*(uncorrectable|ras)|NVRM: Xid"`',
            "Whether it is the same GPU as last time: twice in 24 hours is hardware",
        ),
        afids=(20, 21, 22, 23, 25, 28),
        xids=(48, 94, 95),
        references=(AMDGPU_RAS, INSTINCT, NVIDIA_MEMORY, XID, LLAMA),
    ),
    FaultClass.GPU_ECC_POISON_CREATED: Entry(
        title="Poisoned memory",
        description=(
            "Data that could not be put right was marked as poison. Nobody has used it yet; the "
            "first one who does makes the driver reset the GPU."
        ),
        effect="A reset is coming, and with it the end of every rank of the hive.",
        severity=Severity.ERROR,
        scope="one GPU",
        seen=("kernel log",),
        answer="Move the ranks off at once.",
        check=(
            "`dmesg -T | grep -i poison`: whether it was consumed meanwhile",
            "`amd-smi bad-pages --gpu N`: the page that is to be retired",
        ),
        references=(AMDGPU_RAS, amdgpu("amdgpu/amdgpu_umc.c")),
    ),
    FaultClass.GPU_ECC_POISON_CONSUMED: Entry(
        title="Poisoned memory was read",
        description=(
            "A program read data that was marked as poison. The driver ends that program and "
            "resets the GPU."
        ),
        effect="The ranks on this GPU are lost, and after the reset those of the whole hive.",
        severity=Severity.FATAL,
        scope="one GPU; the reset takes all GPUs of its XGMI hive",
        seen=("kernel log",),
        answer="Move the ranks off at once; let the reset end, validate, return.",
        check=(
            '`dmesg -T | grep -iE "poison|GPU reset"`: the client that read it, and the reset',
            "`amd-smi list`: every GPU answers again",
            "`aegis nodes show NODE`: the incident of the reset that follows",
        ),
        references=(AMDGPU_RAS, amdgpu("amdgpu/amdgpu_umc.c"), amdgpu("amdkfd/kfd_events.c")),
    ),
    FaultClass.GPU_RAS_FATAL: Entry(
        title="Fatal hardware error",
        description=(
            "A part of the GPU outside its memory gave an error that nothing can contain: its "
            "fabric, its link to the host, an assertion of its own hardware."
        ),
        effect="The GPU is unusable and its ranks are lost.",
        severity=Severity.FATAL,
        scope="one GPU, mostly all GPUs of its XGMI hive",
        seen=("kernel log", "CPER records"),
        answer="Move the ranks off at once, reboot, validate.",
        check=(
            '`dmesg -T | grep -iE "ERREVENT_ATHUB|RAS controller|Hardware Error"`',
            "`aegis cper FILE` on the record, where there is one: its AFID and service action",
            "`amd-smi list` after the reboot: every GPU is there",
        ),
        afids=(26, 27, 30),
        references=(AMDGPU_RAS, INSTINCT, amdgpu("amdgpu/amdgpu_ras.c")),
    ),
    FaultClass.GPU_RAS_RECORD: Entry(
        title="Hardware error record",
        description=(
            "Registers and addresses that the driver prints with another error. They tell an "
            "expert where it was."
        ),
        effect="None by itself.",
        severity=Severity.INFO,
        scope="one GPU",
        seen=("kernel log", "CPER records"),
        answer="Read it with the fault before it.",
        check=(
            "`aegis afid STATUS IPID`: the registers in words, with the service action",
            "`aegis nodes show NODE`: the fault that it belongs to",
        ),
        afids=(31, 32, 33, 34),
        references=(AMDGPU_RAS, amdgpu("amdgpu/amdgpu_aca.c")),
    ),
    FaultClass.GPU_MEMORY_BAD_PAGE: Entry(
        title="Memory page retired",
        description=(
            "The GPU stopped using a page of its memory that failed before. That is how it is "
            "meant to age; how fast the number grows says how long it will last."
        ),
        effect="None now: a little less memory after the next reset.",
        severity=Severity.WARNING,
        scope="one GPU",
        seen=("amdsmi bad_page_info", "NVML retired pages and remapped rows", "kernel log"),
        answer="Watch the trend; swap the node at a convenient checkpoint.",
        check=(
            "`aegis nodes show NODE`: the number, the threshold, and the forecast",
            "`amd-smi bad-pages --gpu N` (NVIDIA: `nvidia-smi -q -d ROW_REMAPPER`)",
            "Pages that wait for a reset (pending) go only with one",
        ),
        xids=(63,),
        references=(AMDGPU_RAS, AMDSMI, NVIDIA_MEMORY, amdgpu("amdgpu/amdgpu_ras_eeprom.c")),
    ),
    FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD: Entry(
        title="Too many retired memory pages",
        description=(
            "The GPU has retired as many pages as its maker allows, or could not retire one more. "
            "The threshold is the device's own and is printed in the line."
        ),
        effect="The GPU may refuse to start after the next reboot.",
        severity=Severity.FATAL,
        scope="one GPU module",
        seen=("amdsmi bad_page_info against its threshold", "kernel log", "CPER records"),
        answer="Take the node out and have the module replaced; a reset mends nothing.",
        check=(
            "`amd-smi bad-pages --gpu N`: how many, and of which kind",
            "The serial number for the return: `aegis nodes show NODE`",
        ),
        afids=(19,),
        xids=(64,),
        references=(INSTINCT, NVIDIA_MEMORY, amdgpu("amdgpu/amdgpu_ras_eeprom.c")),
    ),
    FaultClass.GPU_MEMORY_VRAM_LOST: Entry(
        title="GPU memory contents lost",
        description="A reset went so deep that nothing of what the GPU's memory held is left.",
        effect="Every rank on the GPU must start again from a checkpoint; the GPU works.",
        severity=Severity.ERROR,
        scope="one GPU, after a deep reset all GPUs of its hive",
        seen=("kernel log",),
        answer="Restart the ranks.",
        check=(
            '`dmesg -T | grep -iE "VRAM is lost|GPU reset"`: what the reset was for',
            "`aegis incidents --node NODE`: the fault that came before",
        ),
        references=(amdgpu("amdgpu/amdgpu_device.c"),),
    ),
}
