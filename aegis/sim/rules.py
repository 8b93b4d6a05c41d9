"""The rules of an invented fleet: of each kind one, so that every way of deciding is used."""

from functools import cache

from aegis.rules import RuleSet, parse, parse_text

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: sim
rules:
  - {id: ecc, title: Memory error, class: [gpu.ecc.uncorrectable, gpu.ecc.poison_consumed],
     LADDER}
  - {id: deferred, title: Deferred memory error, class: gpu.ecc.deferred, SAVES}
  - {id: corrected, title: Corrected memory error, class: gpu.ecc.correctable, remedy: count}
  - {id: ring, title: Ring time-out, class: gpu.ring.timeout, remedy: restart}
  - {id: hive, title: GPU firmware, class: [gpu.firmware.smu, gpu.reset.failed], remedy: drain_now}
  - {id: fatal, title: GPU failed, class: gpu.ras.fatal, remedy: drain_now}
  - {id: told, title: Kernel words, class: [gpu.reset.begin, gpu.reset.progress,
     gpu.reset.succeeded, gpu.queue.reset, nic.firmware.recovered, pcie.aer.corrected,
     host.mce.corrected], remedy: count}
  - {id: heat, title: GPU slowed by heat, class: gpu.thermal.throttle, remedy: notify}
  - {id: shy, title: Lost GPU, class: gpu.lost, remedy: drain_now, mode: approve}
  - {id: path, title: Path lost, class: [pcie.aer.fatal, pcie.dpc], remedy: drain_now}
  - {id: link, title: Link down, class: nic.link.down, for: policy, remedy: drain_now}
  - {id: up, title: Link up, class: nic.link.up, remedy: count}
  - {id: firmware, title: Card failed, class: nic.firmware.fatal, remedy: drain_now}
  - {id: hung, title: Hung task, class: host.task.hung, remedy: notify}
  - {id: host, title: Host memory, class: [host.mce.uncorrected, host.edac.uncorrected],
     remedy: drain_saving}
  - {id: disk, title: Disk full, class: host.disk.full, remedy: notify}
  - {id: lost, title: Node silent, class: node.lost, remedy: REMEDY}
  - {id: rebooted, title: Node rebooted, class: node.rebooted, remedy: restart}
  - {id: died, title: Rank died, class: [job.worker.exited, job.worker.oom_killed], remedy: restart}
  - {id: hang, title: Job does not come on, class: job.hang, remedy: restart}
  - {id: corrupt, title: Corrupt checkpoint, class: job.checkpoint.corrupt, remedy: notify}
"""

FAILING = "attempts: 1, if_fails: [{remedy: reset_domain, attempts: 1}, {remedy: reboot}]"
LADDERS = (
    "remedy: drain_now",
    "remedy: reset_domain",
    "remedy: reboot, attempts: 1",
    f"remedy: drain_now, {FAILING}",
)
SAVING_LADDERS = ("remedy: drain_saving", f"remedy: drain_saving, {FAILING}")


@cache
def canonical(text: str) -> str:
    """The text of a file as a rule set keeps it. There are few, and reading one is slow."""
    return parse({"sim.yaml": text}).text


@cache
def rule_set(text: str) -> RuleSet:
    """The rule set of such a text; it is never changed, so all may share it."""
    return parse_text(text)
