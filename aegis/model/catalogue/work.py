"""Nodes as a whole, and the job's own ranks."""

from aegis.model.catalogue.entry import Entry, Reference
from aegis.model.catalogue.sources import CGROUPS, ELASTIC, LLAMA, RELIABILITY
from aegis.model.fault import FaultClass, Severity

_JOB = "one job"
_CHECKPOINTS = Reference(
    title="PyTorch: distributed checkpoint",
    url="https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
)
_SHOW_JOB = "`aegis jobs show JOB`: the ranks, their steps, the newest good checkpoint"

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.NODE_LOST: Entry(
        title="Node silent",
        description=(
            "Neither the agent nor a launcher of the node has spoken for a while, and its ranks "
            "make no progress. An agent alone that is silent is not a lost node."
        ),
        effect="The job goes on without the node.",
        severity=Severity.ERROR,
        scope="the whole node",
        seen=("the controller: no report, no progress",),
        answer="Go on with a spare; the node is back when it speaks.",
        check=(
            "`ping NODE` and `ssh NODE uptime`",
            "The BMC: power, console, event log",
            "How many are silent: many at once are the network, and Aegis then waits",
        ),
        references=(RELIABILITY, LLAMA),
    ),
    FaultClass.NODE_REBOOTED: Entry(
        title="Node rebooted",
        description="The node speaks again, from another boot than before.",
        effect="Its ranks are gone.",
        severity=Severity.ERROR,
        scope="the whole node",
        seen=("the boot id in reports",),
        answer="Restart the ranks; find out why it rebooted.",
        check=(
            "`last -x reboot | head` and `journalctl -b -1 -e`: its last words",
            "The BMC's event log: power, watchdog, a person",
            "`aegis scan` on the node: every device is back",
        ),
        references=(RELIABILITY,),
    ),
    FaultClass.JOB_WORKER_EXITED: Entry(
        title="Rank died",
        description="A process of the job ended with an error or a signal.",
        effect="The job stops, and restarts from its newest good checkpoint.",
        severity=Severity.ERROR,
        scope=_JOB,
        seen=("the launcher",),
        answer="Restart the ranks in place; the end of a rank alone does not blame its node.",
        check=(
            "`aegis incidents show ID`: exit code or signal, and the first error it wrote",
            "The rank's log; the first rank to fail, not the last",
            "A device fault on the same node at the same time",
        ),
        references=(ELASTIC, LLAMA),
    ),
    FaultClass.JOB_WORKER_OOM_KILLED: Entry(
        title="Rank killed for lack of memory",
        description="The kernel killed a rank because its control group or the host ran out.",
        effect="The job restarts, and will likely end the same way.",
        severity=Severity.ERROR,
        scope=_JOB,
        seen=("the launcher: memory.events of its control group",),
        answer="Restart the ranks; tell the owner of the job.",
        check=(
            '`dmesg -T | grep -iE "oom-kill|Killed process"`: its size',
            "Data loaders, pinned buffers and checkpoint staging of the script",
            "The memory limit of the job's control group",
        ),
        references=(CGROUPS,),
    ),
    FaultClass.JOB_HANG: Entry(
        title="Job stuck",
        description=(
            "No rank completes a step, for much longer than steps of this job take, or a rank's "
            "process is stopped."
        ),
        effect="Time passes and nothing is learnt.",
        severity=Severity.ERROR,
        scope=_JOB,
        seen=("the launchers: progress pages, process states, stacks of all ranks",),
        answer="Restart the ranks; the rank that stands out is named, with its stack.",
        check=(
            _SHOW_JOB,
            "`aegis incidents show ID`: which rank stands out, and where the others wait",
            "`stacks.log` beside the output of each rank; flight recordings of NCCL or RCCL there",
            "`aegis incidents`: a device fault just before",
        ),
        references=(RELIABILITY, ELASTIC),
    ),
    FaultClass.JOB_STRAGGLER: Entry(
        title="Slow rank",
        description="One rank needs much longer for each step than the others.",
        effect="The whole job runs at its speed.",
        severity=Severity.WARNING,
        scope=_JOB,
        seen=("step reports",),
        answer="Tell people; nobody is taken out for slowness alone.",
        check=(
            "`aegis nodes show NODE`: heat, a degraded PCIe link, RDMA errors",
            "Clocks: `amd-smi metric --clock --temperature`",
            "Data loading of that rank",
        ),
        references=(RELIABILITY,),
    ),
    FaultClass.JOB_LOSS_SPIKE: Entry(
        title="Loss spike",
        description="The loss or the norm of the gradient is several times what it was.",
        effect="Training may recover, or may be spoiled from here on.",
        severity=Severity.WARNING,
        scope=_JOB,
        seen=("step reports",),
        answer="Tell the owner; a restart would compute the same again.",
        check=(
            _SHOW_JOB,
            "Uncorrectable errors on any of its nodes before the spike: `aegis incidents`",
            "The data of that step",
        ),
        references=(LLAMA,),
    ),
    FaultClass.JOB_LOSS_NAN: Entry(
        title="Loss is not a number",
        description="The loss became NaN or infinite.",
        effect="Nothing after this step is of use.",
        severity=Severity.ERROR,
        scope=_JOB,
        seen=("step reports",),
        answer="Tell the owner, who decides from which checkpoint to go on.",
        check=(
            _SHOW_JOB,
            "Whether one rank had it first: then look at its GPU",
            "Learning rate, precision, the data of that step",
        ),
        references=(LLAMA,),
    ),
    FaultClass.JOB_CHECKPOINT_CORRUPT: Entry(
        title="Corrupt checkpoint",
        description="A checkpoint does not verify: a file is missing, short, or its hash is wrong.",
        effect="The job resumes from the one before, and loses the steps between.",
        severity=Severity.WARNING,
        scope="one checkpoint of one job",
        seen=("the worker, when it saves and when it loads",),
        answer="Use the newest that verifies; tell people.",
        check=(
            "`aegis incidents show ID`: which file, and what was wrong",
            "The storage: space, quotas, its own errors",
        ),
        references=(_CHECKPOINTS,),
    ),
    FaultClass.JOB_CHECKPOINT_STALE: Entry(
        title="Checkpoint too old",
        description="The newest good checkpoint is much older than the job's interval.",
        effect="A fault now would cost all the steps since.",
        severity=Severity.WARNING,
        scope=_JOB,
        seen=("the launcher: steps of checkpoints",),
        answer="Tell people; look at why saving fails or takes so long.",
        check=(
            _SHOW_JOB,
            "The storage: space, speed, errors",
        ),
        references=(_CHECKPOINTS,),
    ),
}
