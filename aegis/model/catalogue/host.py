"""The host: processor, memory, disk, clock, and the site's own checks."""

from aegis.model.catalogue.entry import Entry, Reference
from aegis.model.catalogue.sources import (
    APEI,
    CGROUPS,
    HWPOISON,
    RAS,
    WATCHDOGS,
    kernel_page,
    linux,
)
from aegis.model.fault import FaultClass, Severity

_NODE = "the whole node"
_DIMMS = "`ras-mc-ctl --summary`, or the BMC's event log: `ipmitool sel elist`"
_HUNG_TASKS = kernel_page("hung_task settings", "admin-guide/sysctl/kernel.html")
_MACHINE_CHECKS = kernel_page("Machine checks", "arch/x86/x86_64/machinecheck.html")

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.HOST_APEI_CORRECTED: Entry(
        title="Corrected platform error",
        description="The firmware reports an error that the hardware put right.",
        effect="None.",
        severity=Severity.INFO,
        scope="the part that the record names",
        seen=("kernel log",),
        answer="Count it and watch its rate.",
        check=(
            '`dmesg -T | grep -A20 "Hardware error from APEI"`: which part',
            _DIMMS,
        ),
        references=(APEI, RAS),
    ),
    FaultClass.HOST_APEI_RECOVERABLE: Entry(
        title="Recoverable platform error",
        description="The firmware reports an error that was not put right and has done no harm.",
        effect="The work so far is good; the next use of that memory or part may not be.",
        severity=Severity.ERROR,
        scope="the part that the record names",
        seen=("kernel log",),
        answer="Save, then move the ranks off.",
        check=(
            '`dmesg -T | grep -A20 "Hardware error from APEI"`: which part',
            _DIMMS,
        ),
        references=(APEI, RAS),
    ),
    FaultClass.HOST_APEI_FATAL: Entry(
        title="Fatal platform error",
        description=(
            "The firmware reports an error that the machine cannot go on with. The record is often "
            "read only after the reboot that it caused."
        ),
        effect="The node goes down, or went down.",
        severity=Severity.FATAL,
        scope=_NODE,
        seen=("kernel log",),
        answer="Move the ranks off; hardware is looked at before the node is used again.",
        check=(
            '`dmesg -T | grep -A30 "Hardware error from APEI"`: which part',
            "The BMC's event log: `ipmitool sel elist`",
        ),
        references=(APEI,),
    ),
    FaultClass.HOST_MCE_CORRECTED: Entry(
        title="Corrected CPU error",
        description="A processor reports an error that it put right: cache, memory, or its fabric.",
        effect="None.",
        severity=Severity.INFO,
        scope="one processor or memory module",
        seen=("kernel log",),
        answer="Count it and watch its rate.",
        check=(
            "`ras-mc-ctl --errors` where rasdaemon runs: bank, address, module",
            '`dmesg -T | grep -i "Hardware Error"`',
        ),
        references=(_MACHINE_CHECKS, RAS),
    ),
    FaultClass.HOST_MCE_UNCORRECTED: Entry(
        title="Uncorrected CPU error",
        description="A processor met an error that it could not put right.",
        effect="A process dies, or the node panics and reboots.",
        severity=Severity.FATAL,
        scope=_NODE,
        seen=("kernel log, also of the boot after", "/proc/interrupts"),
        answer="Move the ranks off; validate the processor and its memory.",
        check=(
            '`dmesg -T | grep -iE "mce|Hardware Error|reset reason"`',
            "`ras-mc-ctl --errors`: the same module or core as before",
            "The BMC's event log: `ipmitool sel elist`",
        ),
        references=(_MACHINE_CHECKS, RAS),
    ),
    FaultClass.HOST_EDAC_CORRECTED: Entry(
        title="Corrected host memory error",
        description="A memory module of the host gave a wrong bit that ECC put right.",
        effect="None.",
        severity=Severity.INFO,
        raised="warning when one controller counts more in a day than the agent's threshold",
        scope="one memory module",
        seen=("EDAC counters", "kernel log"),
        answer="Count it and watch its rate; plan a swap of the module.",
        check=(
            "`grep . /sys/devices/system/edac/mc/mc*/ce_count`: whether it grows",
            _DIMMS,
        ),
        references=(
            RAS,
            Reference(
                title="mcelog: thresholds of corrected errors",
                url="https://github.com/andikleen/mcelog/blob/master/mcelog.conf",
            ),
        ),
    ),
    FaultClass.HOST_EDAC_UNCORRECTED: Entry(
        title="Uncorrected host memory error",
        description="A memory module of the host gave data that ECC could not put right.",
        effect="The process that owns the memory dies, or the node does.",
        severity=Severity.ERROR,
        scope="one memory module; whoever uses it",
        seen=("EDAC counters", "kernel log"),
        answer="Move the ranks off; have the module replaced.",
        check=(
            "`grep . /sys/devices/system/edac/mc/mc*/ue_count`",
            _DIMMS,
        ),
        references=(RAS,),
    ),
    FaultClass.HOST_MEMORY_FAILURE: Entry(
        title="Host memory failure",
        description="The kernel takes a page of host memory out of use after an error in it.",
        effect="The process that owned the page is killed, unless it was free or clean.",
        severity=Severity.ERROR,
        scope="one page; the process that owns it",
        seen=("kernel log",),
        answer="Move the ranks off; have the module replaced.",
        check=(
            '`dmesg -T | grep "Memory failure"`: whose page, and whether it recovered',
            "`grep HardwareCorrupted /proc/meminfo`",
            _DIMMS,
        ),
        references=(HWPOISON, linux("mm/memory-failure.c")),
    ),
    FaultClass.HOST_MEMORY_OOM: Entry(
        title="Host out of memory",
        description="The host ran out of memory, or nearly, and the kernel killed a process.",
        effect="When the process was a rank, the job restarts; it will happen again.",
        severity=Severity.WARNING,
        scope="one process or control group",
        seen=("kernel log", "/proc/vmstat"),
        answer="For the owner of the job: data loaders, pinned buffers, checkpoint staging.",
        check=(
            '`dmesg -T | grep -iE "out of memory|oom-kill"`: who was killed, and its size',
            "`free -h` and `systemd-cgtop -m`: who holds the memory",
        ),
        references=(CGROUPS, linux("mm/oom_kill.c")),
    ),
    FaultClass.HOST_TASK_HUNG: Entry(
        title="Hung task",
        description=(
            "A process has waited in the kernel for more than two minutes: for a disk, a network "
            "file system, or a driver that does not answer."
        ),
        effect="That process stands still; a rank that waits for it does too.",
        severity=Severity.WARNING,
        scope="one process",
        seen=("kernel log",),
        answer="Tell people; look at what it waits for.",
        check=(
            '`dmesg -T | grep -A20 "blocked for more than"`: the functions it waits in',
            "`ps -eo pid,stat,wchan:30,cmd | grep ' D'`: what else waits",
        ),
        references=(_HUNG_TASKS, linux("kernel/hung_task.c")),
    ),
    FaultClass.HOST_CPU_SOFT_LOCKUP: Entry(
        title="CPU lockup",
        description="A CPU has run kernel code for many seconds without a pause.",
        effect="Whatever else that CPU should do waits; the node may seem dead.",
        severity=Severity.ERROR,
        scope=_NODE,
        seen=("kernel log",),
        answer="Tell people; a driver that does it again means a reboot, then another version.",
        check=(
            '`dmesg -T | grep -A30 "lockup"`: which function, in whose process',
            "Whether virtual machines of the host were paused: a pause looks the same",
        ),
        references=(WATCHDOGS,),
    ),
    FaultClass.HOST_DISK_FULL: Entry(
        title="Disk full",
        description="A file system that the node needs is full or cannot be written.",
        effect="Checkpoints and logs fail. The agent itself goes on in memory.",
        severity=Severity.WARNING,
        scope="one file system",
        seen=("statfs", "the agent's spool", "kernel log"),
        answer="For the site: make room.",
        check=(
            "`df -h` and `df -i`: space, and also inodes",
            "`du -xsh /var/log /tmp /var/lib/aegis 2>/dev/null`",
            "Old checkpoints on a local disk",
        ),
        references=(linux("Documentation/filesystems/ext4/overview.rst"),),
    ),
    FaultClass.HOST_CLOCK_SKEW: Entry(
        title="Clock is off",
        description="The node's clock is wrong, or nothing keeps it right.",
        effect="Times in logs and incidents mislead; tokens and leases may fail.",
        severity=Severity.WARNING,
        scope=_NODE,
        seen=("the kernel's clock state", "the controller's answers", "kernel log"),
        answer="For the site: the time service.",
        check=(
            "`timedatectl` and `chronyc tracking`: whether it is synchronised",
            "`cat /sys/devices/system/clocksource/clocksource0/current_clocksource`: tsc is best",
        ),
        references=(
            Reference(
                title="adjtimex(2)", url="https://man7.org/linux/man-pages/man2/adjtimex.2.html"
            ),
        ),
    ),
    FaultClass.HOST_CHECK_FAILED: Entry(
        title="A site check failed",
        description=(
            "A check of this site's own, which the agent runs for it, says that the node is not "
            "well, and names no class of its own."
        ),
        effect="What the check's author says.",
        severity=Severity.WARNING,
        scope="what the check looks at",
        seen=("a check in the agent's configuration",),
        answer="Tell people; a rule of the site may do more.",
        check=(
            "`aegis incidents show ID`: the check's own words",
            "Run the check by hand on the node: its command stands in agent.yaml",
        ),
        references=(
            Reference(
                title="Plug-in conventions that the exit codes follow",
                url="https://www.monitoring-plugins.org/doc/guidelines.html",
            ),
        ),
    ),
}
