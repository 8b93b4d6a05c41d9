"""What a GPU does with its work: queues, resets, and the application's own mistakes."""

from aegis.model.catalogue.entry import Entry
from aegis.model.catalogue.sources import AMDSMI, LLAMA, XID, amdgpu, kernel_page
from aegis.model.fault import FaultClass, Severity

_DEVICE_FILE = amdgpu("amdgpu/amdgpu_device.c")
_WEDGED = kernel_page("Device wedging", "gpu/drm-uapi.html")

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.GPU_RING_TIMEOUT: Entry(
        title="GPU ring time-out",
        description=(
            "Work that was given to one engine of the GPU did not end in time. Mostly a kernel of "
            "the application that never ends; on one GPU again and again it is the GPU."
        ),
        effect="The driver resets the queue or the GPU, and the rank ends.",
        severity=Severity.ERROR,
        scope="one engine of one GPU",
        seen=("kernel log",),
        answer="Restart the ranks; reset the domain if it repeats on the same GPU.",
        check=(
            '`dmesg -T | grep -iE "ring .* timeout"`: which ring, and which process',
            "Whether other GPUs of the job show it in turn: then it is the application",
            "`aegis incidents --node NODE`: whether this GPU had it within 24 hours",
        ),
        xids=(8,),
        references=(amdgpu("amdgpu/amdgpu_job.c"), XID),
    ),
    FaultClass.GPU_SCHEDULER_HANG: Entry(
        title="GPU scheduler hang",
        description=(
            "The part of the GPU that shares it among queues (HWS, MES, KIQ) does not answer its "
            "driver any more, or a queue cannot be taken off."
        ),
        effect="New work does not start; a reset of the GPU follows.",
        severity=Severity.ERROR,
        scope="one GPU; a reset takes all GPUs of its hive",
        seen=("kernel log",),
        answer="Restart the ranks; reset the domain if it repeats on the same GPU.",
        check=(
            '`dmesg -T | grep -iE "MES|HWS|KIQ|preemption"`',
            "`amd-smi process --gpu N`: processes that will not end",
            "Firmware of the scheduler: `amd-smi firmware --gpu N`",
        ),
        xids=(109,),
        references=(
            amdgpu("amdkfd/kfd_device_queue_manager.c"),
            amdgpu("amdgpu/amdgpu_mes.c"),
        ),
    ),
    FaultClass.GPU_QUEUE_RESET: Entry(
        title="GPU queue was reset",
        description="The driver reset one queue that hung, and the GPU goes on with the others.",
        effect="The program of that queue gets an error; others notice nothing.",
        severity=Severity.WARNING,
        scope="one queue of one GPU",
        seen=("kernel log",),
        answer="None; the rank reports its own end.",
        check=(
            '`dmesg -T | grep -iE "ring .* reset|wedged"`: which queue, and what hung before',
            "`aegis jobs show JOB`: whether a rank ended",
        ),
        xids=(43, 45),
        references=(amdgpu("amdgpu/amdgpu_ring.c"), _WEDGED),
    ),
    FaultClass.GPU_QUEUE_RESET_FAILED: Entry(
        title="GPU queue could not be reset",
        description="A queue that hung could not be reset alone; a reset of the whole GPU follows.",
        effect="The ranks on this GPU are lost.",
        severity=Severity.ERROR,
        scope="one GPU; the reset takes all GPUs of its hive",
        seen=("kernel log",),
        answer="Move the ranks off and reset the domain.",
        check=(
            '`dmesg -T | grep -iE "ring .* reset failed|GPU reset"`: how the reset ended',
            "`amd-smi list`: every GPU answers",
        ),
        references=(amdgpu("amdgpu/amdgpu_job.c"),),
    ),
    FaultClass.GPU_RESET_BEGIN: Entry(
        title="GPU reset began",
        description=(
            "The driver resets the GPU. Within a minute it says how that ended; when it does not, "
            "the reset has failed."
        ),
        effect="Every process that uses a GPU of the hive is ended.",
        severity=Severity.WARNING,
        scope="all GPUs of one XGMI hive",
        seen=("kernel log",),
        answer="Wait for its end.",
        check=(
            '`dmesg -T | grep -i "GPU reset"`: whether it ended, and how',
            "What asked for it: the fault before it, or a person with `amd-smi reset`",
        ),
        references=(_DEVICE_FILE, amdgpu("amdgpu/amdgpu_reset.c")),
    ),
    FaultClass.GPU_RESET_PROGRESS: Entry(
        title="GPU reset goes on",
        description=(
            "A step of a reset, or its trace: error counters that fell, which only a reset or a "
            "reload of the driver does."
        ),
        effect="None beyond the reset's.",
        severity=Severity.INFO,
        scope="all GPUs of one XGMI hive",
        seen=("kernel log", "amdsmi counters that fell"),
        answer="Wait for its end.",
        check=(
            '`dmesg -T | grep -iE "MODE[0-9]|GPU reset"`',
            "A fall without a reset in the log: someone reloaded the driver",
        ),
        references=(_DEVICE_FILE, amdgpu("amdgpu/amdgpu_reset.c")),
    ),
    FaultClass.GPU_RESET_SUCCEEDED: Entry(
        title="GPU was reset",
        description="The reset ended well: the GPU works again. What its memory held is gone.",
        effect="The ranks of the hive must start again; the node is fit.",
        severity=Severity.WARNING,
        scope="all GPUs of one XGMI hive",
        seen=("kernel log",),
        answer="Restart the ranks; look for what led to the reset.",
        check=(
            "`aegis incidents --node NODE`: the fault before the reset",
            "`amd-smi list` and `amd-smi metric --ecc`: every GPU answers, counters start anew",
            "Partition mode and clocks: a reset can change them (`amd-smi static`)",
        ),
        references=(_DEVICE_FILE,),
    ),
    FaultClass.GPU_RESET_FAILED: Entry(
        title="GPU could not be reset",
        description="The reset ended with an error, or never ended.",
        effect="The GPU is lost until the node reboots.",
        severity=Severity.FATAL,
        scope="all GPUs of one XGMI hive",
        seen=("kernel log", "a reset without an end within its time-out"),
        answer="Move the ranks off, reboot, validate.",
        check=(
            '`dmesg -T | grep -iE "GPU reset|device lost|SMU"`: where it stopped',
            "A cold start (power off, wait, power on) where a reboot does not help",
        ),
        references=(_DEVICE_FILE,),
    ),
    FaultClass.GPU_VM_FAULT: Entry(
        title="GPU page fault of the application",
        description=(
            "A program on the GPU reached for memory that is not its own. That is almost always a "
            "mistake in a kernel or a library, seldom the device."
        ),
        effect="The rank ends with an error.",
        severity=Severity.WARNING,
        scope="one process",
        seen=("kernel log",),
        answer="For the owner of the job; the node is not blamed.",
        check=(
            '`dmesg -T | grep -iE "page fault|VM_L2"`: process, address, and which client',
            "The rank's own log: a kernel that fails elsewhere too",
            "Different GPUs in turn: the application. The same GPU each time: the GPU",
        ),
        xids=(31,),
        references=(amdgpu("amdgpu/gmc_v9_0.c"), amdgpu("amdkfd/kfd_events.c"), XID),
    ),
    FaultClass.GPU_SHADER_ILLEGAL_OPCODE: Entry(
        title="Illegal instruction in a GPU kernel",
        description=(
            "A program on the GPU met an instruction that does not exist: code built for another "
            "GPU, or code that was overwritten."
        ),
        effect="The rank ends with an error.",
        severity=Severity.WARNING,
        scope="one process",
        seen=("kernel log",),
        answer="For the owner of the job; the node is not blamed.",
        check=(
            '`dmesg -T | grep -i "illegal"`: the process',
            "The architecture the code was built for: `rocminfo | grep gfx`",
        ),
        xids=(13,),
        references=(amdgpu("amdgpu/gfx_v11_0.c"), XID),
    ),
    FaultClass.GPU_IPC_FAILED: Entry(
        title="GPU memory sharing failed",
        description="One process could not map GPU memory that another one shares with it.",
        effect="A collective within the node fails, and the rank with it.",
        severity=Severity.WARNING,
        scope="two processes of one node",
        seen=("kernel log",),
        answer="For the owner of the job; restarts by itself with the ranks.",
        check=(
            "Containers of one job must share the IPC and PID namespaces and /dev/kfd",
            "`HSA_FORCE_FINE_GRAIN_PCIE` and `NCCL_P2P_DISABLE` in the job's environment",
        ),
        references=(amdgpu("amdkfd/kfd_chardev.c"),),
    ),
    FaultClass.GPU_COREDUMP: Entry(
        title="GPU core dump",
        description="The driver kept the state of the GPU from just before a reset.",
        effect="None: it is there to be read.",
        severity=Severity.INFO,
        scope="one GPU",
        seen=("kernel log",),
        answer="Collect it: it is gone after minutes.",
        check=("`cat /sys/class/drm/card*/device/devcoredump/data > dump`", "The fault before it"),
        references=(amdgpu("amdgpu/amdgpu_dev_coredump.c"), LLAMA),
    ),
    FaultClass.GPU_PROBE_STALLED: Entry(
        title="GPU does not answer its probe",
        description=(
            "A question to this GPU has had no answer within its deadline, or the process that "
            "asks dies each time. The agent asks the others on; this one is unknown."
        ),
        effect="None is known. Whether the ranks go on is told by their progress.",
        severity=Severity.ERROR,
        scope="one GPU",
        seen=("the agent's own probe",),
        answer="Tell people. No data is no reason to move a job that progresses.",
        check=(
            "`aegis nodes show NODE`: which call, and since when",
            "`timeout 5 amd-smi metric --gpu N --ecc`: whether it hangs for you too",
            "`dmesg -T | tail -50`: a hang of the driver or its firmware",
            "Processes in state D: `ps -eo pid,stat,wchan:30,cmd | grep ' D'`",
        ),
        references=(AMDSMI,),
    ),
}
