"""The machine itself: firmware's error records, machine checks, memory, processes, processors.

A machine check tells by its status register whether the error was corrected: bit 61 says that it
was not. Lines that only carry the registers of an error have no class; those of a record, which
say how bad it is, have.
"""

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Finding, Pattern, Table

_RECORD = r"^(?:\{(?P<record>\d+)\})?(?:BERT: |GHES: )?\[hardware error\]: *"
_CHECK = r"\bcpu:? ?(?P<cpu>\d+):? machine check(?: event| exception)?: ?(?P<global_status>\w+) bank (?P<bank>\d+): ?(?:0x)?(?P<status>"
_OF = r"process (?P<pid>\d+) \((?P<process>.+?)\)"

# fmt: off
PATTERNS = (
    # firmware first: APEI
    Pattern(F.HOST_APEI_FATAL, FATAL, "fatal", _RECORD + r"(?:event severity: fatal|error (?P<number>\d+), type: (?:fatal|panic))",
            "{7}[Hardware Error]:  Error 0, type: fatal", "ghes.c, cper.c"),
    Pattern(F.HOST_APEI_RECOVERABLE, ERROR, "recoverable", _RECORD + r"(?:event severity: recoverable|error (?P<number>\d+), type: recoverable)",
            "{7}[Hardware Error]: event severity: recoverable", "cper.c"),
    Pattern(F.HOST_APEI_CORRECTED, INFO, "correct", _RECORD + r"(?:event severity: corrected|error (?P<number>\d+), type: corrected|it has been corrected by h/w)",
            "{7}[Hardware Error]:  Error 1, type: corrected", "ghes.c, cper.c"),
    Pattern(F.HOST_APEI_FATAL, FATAL, "fatal hardware error", r"^(?:kernel panic - not syncing: |GHES: |\[firmware \w+\]: )?fatal hardware error",
            "Kernel panic - not syncing: Fatal hardware error!", "ghes.c"),

    # machine checks
    Pattern(F.HOST_MCE_CORRECTED, INFO, "check events logged", r"^(?:mce: )?(?:\[hardware error\]: *)?machine check events logged",
            "mce: [Hardware Error]: Machine check events logged", "x86 mce core.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, FATAL, "machine check exception", r"^(?!EDAC).*" + _CHECK.replace("(?: event| exception)?", " exception") + r"[0-9a-f]+)",
            "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 4: b200000000070f0f", "x86 mce core.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, ERROR, "machine check", r"^(?!EDAC).*" + _CHECK + r"[abef][0-9a-f]{15})\b",
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400", "x86 mce core.c"),
    Pattern(F.HOST_MCE_CORRECTED, INFO, "machine check", r"^(?!EDAC).*" + _CHECK + r"[89cd][0-9a-f]{15})\b",
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091", "x86 mce core.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, FATAL, "system fatal error", r"\[hardware error\]: *system fatal error",
            "[Hardware Error]: System Fatal error.", "mce_amd.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, ERROR, "uncorrected", r"\[hardware error\]: *uncorrected,? [\w ]*error",
            "[Hardware Error]: Uncorrected, software containable error.", "mce_amd.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, WARNING, "deferred error", r"\[hardware error\]: *deferred error",
            "[Hardware Error]: Deferred error, no action required.", "mce_amd.c"),
    Pattern(F.HOST_MCE_CORRECTED, INFO, "corrected error", r"\[hardware error\]: *corrected error",
            "[Hardware Error]: Corrected error, no action required.", "mce_amd.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, ERROR, "_status[", r"\bcpu:?(?P<cpu>\d+)\b.*\bmc(?P<bank>\d+)_status\[(?P<flags>[^\]]*\b(?:ue|uc|uecc)\b[^\]]*)\]: ?(?P<status>0x[0-9a-f]+)",
            "[Hardware Error]: CPU:40 (19:11:1) MC21_STATUS[Over|UE|MiscV|AddrV|-|TCC|SyndV|UECC|-|-|-]: 0xfe2040000000011b", "mce_amd.c"),
    Pattern(F.HOST_MCE_CORRECTED, INFO, "_status[", r"\bcpu:?(?P<cpu>\d+)\b.*\bmc(?P<bank>\d+)_status\[(?P<flags>[^\]]*\b(?:ce|cecc)\b[^\]]*)\]: ?(?P<status>0x[0-9a-f]+)",
            "[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0x9c2040000000011b", "mce_amd.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, FATAL, "", r"^kernel panic - not syncing: .*(?:machine check|broadcast exception handler)|\[hardware error\]: machine check: (?:processor context corrupt|in kernel)",
            "Kernel panic - not syncing: Fatal machine check", "x86 mce core.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, ERROR, "uncorrected hardware memory error", r"uncorrected hardware memory error in user-access at (?P<address>[0-9a-fx]+)",
            "mce: Uncorrected hardware memory error in user-access at 7f4c80", "x86 mce core.c"),
    Pattern(F.HOST_MCE_UNCORRECTED, FATAL, "reset reason", r"previous system reset reason \[(?P<reason>0x[0-9a-f]+)\]: .*\b(?:uncorrected error|sync flood)",
            "x86/amd: Previous system reset reason [0x08000800]: an uncorrected error caused a data fabric sync flood event", "x86 amd.c"),

    # memory controllers
    Pattern(F.HOST_EDAC_UNCORRECTED, ERROR, "ue", r"^EDAC (?:\w+ )?(?P<controller>\w+): (?:(?P<count>[1-9]\d*) )?UE\b(?:(?P<error>.+?) on (?P<label>\S+))?",
            "EDAC MC3: 2 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1a offset:0x0 grain:32)", "edac_mc.c"),
    Pattern(F.HOST_EDAC_CORRECTED, INFO, "ce", r"^EDAC (?:\w+ )?(?P<controller>\w+): (?:(?P<count>[1-9]\d*) )?CE\b(?:(?P<error>.+?) on (?P<label>\S+))?",
            "EDAC MC0: 4 CE on mc#0csrow#2channel#1 (csrow:2 channel:1 page:0x1a offset:0x40 grain:64 syndrome:0x80)", "edac_mc.c"),
    Pattern(F.HOST_EDAC_CORRECTED, INFO, "handling", r"^EDAC (?P<driver>\w+) (?P<controller>MC\d+): HANDLING (?:MCE|IBECC) MEMORY ERROR",
            "EDAC skx MC5: HANDLING MCE MEMORY ERROR", "sb_edac.c, skx_common.c, igen6_edac.c"),
    Pattern(F.HOST_EDAC_UNCORRECTED, ERROR, "machine check", r"^EDAC (?P<driver>\w+) (?P<controller>MC\d+): .*" + _CHECK + r"[abef][0-9a-f]{15})\b",
            "EDAC sbridge MC1: CPU 8: Machine Check Exception: 5 Bank 7: be000040000100c1", "sb_edac.c"),
    Pattern(F.HOST_EDAC_CORRECTED, INFO, "machine check", r"^EDAC (?P<driver>\w+) (?P<controller>MC\d+): .*" + _CHECK + r"[89cd][0-9a-f]{15})\b",
            "EDAC skx MC0: CPU 0: Machine Check Event: 0x0 Bank 13: 0x8c00004200800090", "skx_common.c"),

    # memory that failed
    Pattern(F.HOST_MEMORY_FAILURE, ERROR, "memory failure", r"^memory failure: (?P<page>0x[0-9a-f]+): (?!.*\bunpoison)(?:.*\bkilling (?P<process>.+?):(?P<pid>\d+))?(?:recovery action for (?P<kind>.+?): (?P<outcome>\w+))?",
            "Memory failure: 0x1f3a2: recovery action for dirty LRU page: Recovered", "memory-failure.c"),
    Pattern(F.HOST_MEMORY_FAILURE, ERROR, "hardware memory corruption", r"\bkilling (?P<process>.+?):(?P<pid>\d+) due to hardware memory corruption",
            "MCE: Killing python3:4711 due to hardware memory corruption fault at 7f2c41000000", "x86 fault.c"),
    Pattern(F.HOST_MEMORY_FAILURE, WARNING, "soft", r"^(?:RAS: soft-offlining pfn:|soft offline:) ?(?P<page>0x[0-9a-f]+)",
            "soft offline: 0x81f2a: page migration failed", "memory-failure.c"),

    # no memory left
    Pattern(F.HOST_MEMORY_OOM, WARNING, "out of memory", r"^(?:(?P<scope>memory cgroup) )?out of memory:? (?:\(?oom_kill_allocating_task\)?:? ?)?kill(?:ed)? " + _OF,
            "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:91234kB, anon-rss:65432kB", "oom_kill.c"),
    Pattern(F.HOST_MEMORY_OOM, WARNING, "killed process", r"^killed " + _OF + r".* total-vm:",
            "Killed process 4711 (python3) total-vm:91234kB, anon-rss:65432kB, file-rss:0kB", "oom_kill.c"),
    Pattern(F.HOST_MEMORY_OOM, WARNING, "oom-kill", r"^oom-kill:constraint=(?P<constraint>\w+).*?\btask_memcg=(?P<cgroup>[^,]*),task=(?P<process>[^,]*),pid=(?P<pid>\d+)",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=user.slice,mems_allowed=0,oom_memcg=/job,task_memcg=/job/step0,task=python3,pid=4711,uid=0", "oom_kill.c"),
    Pattern(F.HOST_MEMORY_OOM, WARNING, "oom-kill", r"^(?P<process>(?:(?!: ).){1,15}) invoked oom-killer: ",
            "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "oom_kill.c"),
    Pattern(F.HOST_MEMORY_OOM, ERROR, "out of memory", r"^kernel panic - not syncing: out of memory|^out of memory and no killable processes",
            "Out of memory and no killable processes...", "oom_kill.c"),

    # tasks and processors that stand still
    Pattern(F.HOST_TASK_HUNG, WARNING, "blocked", r"^INFO: task (?P<process>.+?):(?P<pid>\d+)(?: ?<\w+>)? (?:is )?blocked (?:in I/O wait )?(?:for more than (?P<seconds>\d+) seconds|on an? (?P<lock>[\w-]+))",
            "INFO: task kworker/u256:3:1402 blocked for more than 241 seconds.", "hung_task.c"),
    Pattern(F.HOST_TASK_HUNG, FATAL, "hung_task", r"^kernel panic - not syncing: hung_task",
            "Kernel panic - not syncing: hung_task: blocked tasks", "hung_task.c"),
    Pattern(F.HOST_CPU_SOFT_LOCKUP, ERROR, "soft lockup", r"^(?:(?:nmi )?watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s!(?: \[(?P<process>.+?):(?P<pid>\d+)\])?",
            "NMI watchdog: BUG: soft lockup - CPU#63 stuck for 23s! [kworker/63:1:812]", "watchdog.c"),
    Pattern(F.HOST_CPU_SOFT_LOCKUP, FATAL, "hard lockup", r"\bhard lockup on cpu (?P<cpu>\d+)|^kernel panic - not syncing: hard lockup",
            "watchdog: Watchdog detected hard LOCKUP on cpu 17", "watchdog.c"),
    Pattern(F.HOST_CPU_SOFT_LOCKUP, FATAL, "softlockup", r"^kernel panic - not syncing: softlockup",
            "Kernel panic - not syncing: softlockup: hung tasks", "watchdog.c"),
    Pattern(F.HOST_CPU_SOFT_LOCKUP, WARNING, "stall", r"^(?:rcu: )?INFO: (?P<flavour>rcu_\w+) (?:self-)?detected (?:expedited )?stalls? on",
            "rcu: INFO: rcu_sched self-detected stall on CPU", "rcu tree_stall.h"),
    Pattern(F.HOST_CPU_SOFT_LOCKUP, WARNING, "workqueue lockup", r"^(?:watchdog: )?BUG: workqueue lockup - pool.* stuck for (?P<seconds>\d+)s",
            "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!", "workqueue.c"),

    # disks and clocks
    Pattern(F.HOST_DISK_FULL, WARNING, "error 28", r"^(?:EXT4|XFS|BTRFS|F2FS)\S* \(?(?P<disk>[\w./-]+)\)?: .*\berror -?28\b",
            "EXT4-fs (nvme0n1p2): Delayed block allocation failed for inode 131081 at logical offset 0 with max blocks 2 with error 28", "ext4 inode.c"),
    Pattern(F.HOST_DISK_FULL, WARNING, "run out of space", r"^XFS \((?P<disk>[\w./-]+)\): .*\bmay run out of space",
            "XFS (nvme1n1): Per-AG reservation for AG 3 failed.  Filesystem may run out of space.", "xfs_ag_resv.c"),
    Pattern(F.HOST_CLOCK_SKEW, WARNING, "clocksource", r"^clocksource: timekeeping watchdog on CPU(?P<cpu>\d+): Marking clocksource '(?P<clock>[\w-]+)' as unstable",
            "clocksource: timekeeping watchdog on CPU12: Marking clocksource 'tsc' as unstable because the skew is too large:", "clocksource.c"),
    Pattern(F.HOST_CLOCK_SKEW, WARNING, "unstable", r"^(?:clocksource:? )?clocksource (?P<clock>[\w-]+) unstable|^(?:tsc: )?marking tsc unstable due to (?:clocksource watchdog|check_tsc_sync)",
            "tsc: Marking TSC unstable due to clocksource watchdog", "tsc.c"),
)
# fmt: on

TABLE = Table(PATTERNS)


def classify(text: str) -> Finding | None:
    """A line of the kernel itself."""
    return TABLE.read(text, "", text)
