"""Since when what a job has saved may be wrong: from the last good reading of a device that broke.

An uncorrectable error corrupts memory before anyone reads of it, and a save keeps corrupt tensors
with perfect hashes. So a drain without a save also says which checkpoints are not to be trusted.
"""

from aegis.core.cluster import Cluster
from aegis.core.incidents import note
from aegis.core.words import duration
from aegis.model.fault import FaultClass
from aegis.model.incident import EntryKind, Incident
from aegis.model.job import Job
from aegis.model.node import Device, Health
from aegis.model.record import replace

Readings = tuple[tuple[str, float, float], ...]

# What may have changed memory that a job reads. A link that is down or a hung engine has not.
CORRUPTING = frozenset(
    {
        FaultClass.GPU_ECC_DEFERRED,
        FaultClass.GPU_ECC_UNCORRECTABLE,
        FaultClass.GPU_ECC_POISON_CREATED,
        FaultClass.GPU_ECC_POISON_CONSUMED,
        FaultClass.GPU_RAS_FATAL,
        FaultClass.GPU_MEMORY_BAD_PAGE,
        FaultClass.HOST_APEI_RECOVERABLE,
        FaultClass.HOST_APEI_FATAL,
        FaultClass.HOST_MCE_UNCORRECTED,
        FaultClass.HOST_EDAC_UNCORRECTED,
        FaultClass.HOST_MEMORY_FAILURE,
    }
)


def renewed(known: Readings, devices: tuple[Device, ...]) -> Readings:
    """When each device was last read as healthy, and the time before."""
    before = {name: (newest, older) for name, newest, older in known}
    found = []
    for device in devices:
        newest, older = before.get(device.name, (0.0, 0.0))
        if device.health is Health.HEALTHY and device.read_at > newest:
            newest, older = device.read_at, newest
        found.append((device.name, newest, older))
    return tuple(found)


def cast(cluster: Cluster, job: Job, incident: Incident) -> None:
    """Doubt what the job has saved since the device was last known to be good."""
    if incident.fault_class not in CORRUPTING:
        return
    since = good_at(cluster, incident)
    first = min(fault.observed_at for fault in incident.faults)
    thing = f"{incident.node} {incident.device}"
    text = f"checkpoints are suspect from {duration(first - since)} before the error: {thing} was "
    text += "read as good then for the last time"
    if since >= first:
        text = f"checkpoints from the error on are suspect; {thing} was not read before it"
    note(cluster, incident, EntryKind.ACTION, text)
    still = job.suspect_since and job.suspect_generation == job.generation
    if still:
        since = min(since, job.suspect_since)
    cluster.put_job(replace(job, suspect_since=since, suspect_generation=job.generation))


def good_at(cluster: Cluster, incident: Incident) -> float:
    """The device's last good reading before its first fault; of one never read, that moment."""
    node = cluster.nodes.get(incident.node or "")
    readings = node.good_readings if node else ()
    at = min(fault.observed_at for fault in incident.faults)
    known = next((one[1:] for one in readings if one[0] == incident.device), ())
    return next((one for one in known if 0 < one < at), at)
