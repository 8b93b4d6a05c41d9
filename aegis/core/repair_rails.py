"""The rails of a reset and of a reboot: beside the mode, what a root helper's act must heed."""

from dataclasses import dataclass
from math import floor

from aegis.core import approval, rails
from aegis.core.cluster import launcher_of, standing
from aegis.core.levels import condition_of, is_fresh, is_unhealthy
from aegis.core.nodes import holds_ranks
from aegis.core.rails import Rail, Request
from aegis.core.words import counted, duration, listed
from aegis.model.incident import Remedy, Verdict
from aegis.model.node import Device, Node, NodeState
from aegis.rules.physical import needs_hands

APPROVABLE = {"mode", "processes"}  # rails that a person's word passes
CLEARS = {
    "mode": "the mode is raised (`aegis rules mode`, or the policy's)",
    "pause": "somebody resumes automation (`aegis resume`)",
    "window": "the maintenance is over (`aegis windows`)",
    "fleet": "most of the fleet is heard again",
    "live": "its agent speaks, and still of this fault",
    "hold": "its holder returns the node",
    "helper": "aegis-helper.socket is enabled on the node",
    "drained": "the last rank on the node has ended",
    "hands": "hands have mended it",
    "processes": "these processes end, or a person agrees (`aegis incidents approve`)",
    "repairs": "the window of the node budget has moved on",
}


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a GPU."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.pid} {self.name}"


def verdicts(request: Request) -> tuple[Verdict, ...]:
    """What every rail says."""
    return tuple(rail(request) for rail in REPAIRING)


def live(request: Request) -> Verdict:
    """Whether the node's agent has just said that the device is still sick."""
    node, incident, cluster = request.node, request.incident, request.cluster
    if node.state is NodeState.UNKNOWN or not is_fresh(cluster, node):
        return _said("live", passed=False, text="its agent has not spoken lately")
    lasts = condition_of(node, incident) is not None
    if lasts or is_unhealthy(node, incident.device):
        text = f"{incident.device} still reads as unhealthy"
        return _said("live", passed=True, text=text)
    text = f"{incident.device} does not read as unhealthy any more"
    return _said("live", passed=False, text=text)


def helper(request: Request) -> Verdict:
    """Whether there is somebody on the node who can do it."""
    if request.node.has_helper:
        return _said("helper", passed=True, text="a root helper is installed")
    return _said("helper", passed=False, text="no root helper is installed there")


def drained(request: Request) -> Verdict:
    """Whether no rank of any job is left on the node."""
    node, cluster = request.node, request.cluster
    out = standing(node) in (NodeState.QUARANTINED, NodeState.REPAIRING)
    if out and not holds_ranks(cluster, node):
        return _said("drained", passed=True, text="no rank is on the node")
    job = cluster.job_on(node.name)
    text = f"ranks of job {job.spec.name} may be alive there" if job else "it is not drained"
    return _said("drained", passed=False, text=text)


def hands(request: Request) -> Verdict:
    """Whether a reset or a reboot can mend it at all."""
    if needs_hands(request.fault):
        text = f"{request.fault.fault_class} needs hands first: no reset and no reboot mends it"
        return _said("hands", passed=False, text=text)
    return _said("hands", passed=True, text="nothing has to be done by hand first")


def processes(request: Request) -> Verdict:
    """Whether nothing but Aegis's own ranks, which are gone, uses what would be hit."""
    found = holders(hit(request.node, request.incident.device, request.remedy))
    if not found:
        return _said("processes", passed=True, text="no process holds its GPUs")
    about = ("processes", *(f"process {one}" for one in found))
    agreed, said = approval.standing(request.cluster, request.incident, request.remedy, *about)
    verb = "holds" if len(found) == 1 else "hold"
    text = f"{listed([str(one) for one in found[:4]])} {verb} its GPUs and would be killed"
    return _said("processes", passed=agreed, text=f"{text}; {said.removeprefix('approve: ')}")


def budget(request: Request) -> Verdict:
    """Whether Aegis may reset or reboot one more node in this time."""
    cluster, policy = request.cluster, request.cluster.policy
    since = cluster.now - policy.nodes_out_window_seconds
    others = [one for one in cluster.nodes.values() if one.name != request.node.name]
    given = sum(any(one.given_at > since for one in node.repairs) for node in others)
    allowed = max(policy.nodes_out_max, floor(policy.nodes_out_fraction * len(cluster.nodes)))
    window = duration(policy.nodes_out_window_seconds)
    text = f"{given} of {counted(allowed, 'other node')} in {window}"
    return _said("repairs", passed=given < allowed, text=text)


def hit(node: Node, device: str, remedy: Remedy) -> tuple[Device, ...]:
    """The GPUs that are lost for a while: all of a reboot, the whole hive of a reset.

    Where the hive is not known, all GPUs are taken for one: the helper looks again before it acts.
    """
    gpus = tuple(one for one in node.devices if one.kind == "gpu")
    mine = next((one for one in gpus if one.name == device), None)
    hive = dict(mine.facts).get("hive") if mine else None
    if remedy is Remedy.REBOOT or not hive:
        return gpus
    return tuple(one for one in gpus if dict(one.facts).get("hive") == hive)


def holders(gpus: tuple[Device, ...]) -> list[Holder]:
    """The processes that hold these GPUs, as its agent last said: "python3 (4711), …"."""
    found: dict[int, Holder] = {}
    for gpu in gpus:
        for part in dict(gpu.facts).get("held_by", "").split(", "):
            name, _, rest = part.partition(" (")
            pid = rest.partition(")")[0]
            if pid.isdigit():
                found[int(pid)] = Holder(int(pid), name)
    return [found[pid] for pid in sorted(found)]


def plan(request: Request) -> tuple[str, ...]:
    """All that would be hit, in words."""
    node, remedy = request.node, request.remedy
    gpus = hit(node, request.incident.device, remedy)
    names = [one.name for one in gpus]
    found = holders(gpus)
    jobs = [one.spec.name for one in node.launchers if launcher_of(node, one.spec.name)]
    if remedy is Remedy.REBOOT:
        first = f"node {node.name} with all that runs on it"
        told = [f"launcher of job {name}, without ranks" for name in jobs]
    else:
        first, told = f"{counted(len(gpus), 'GPU')} of {node.name}: {listed(names)}", []
    return (first, *told, *(f"process {one}" for one in found))


def _said(rail: str, *, passed: bool, text: str) -> Verdict:
    return Verdict(rail=rail, passed=passed, text=text)


REPAIRING: tuple[Rail, ...] = (
    rails.mode,
    rails.pause,
    rails.window,
    rails.fleet,
    live,
    rails.hold,
    helper,
    drained,
    hands,
    processes,
    budget,
)
