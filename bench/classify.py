"""How many kernel lines are named, and how fast, beside AMD's node-scraper; prints JSON.

    python bench/classify.py [--node-scraper PYTHON] [--seconds 2]

Lines: the held-out set of this repository (tests/data/kernel_held_out.jsonl, new wordings that
nobody looked at who wrote our patterns), and `../shared/data/kernel_lines.jsonl` where it is. Both
hold fault lines with a class and lines that only look dangerous.

How the two are made comparable:

- Each line is asked about alone. node-scraper's expressions that span several lines can then not
  match; neither set holds more than single lines.
- A line is *named* when Aegis gives a class, or when any of node-scraper's error expressions
  matches, whatever its priority. It is *named right* when the class is the wanted one; for
  node-scraper, whose 57 messages are coarser, when the wanted class is one of those that its
  message covers (`COVERS` below), so that one message may be right for several classes.
- A *false alarm* is a line without a fault that is named all the same. Some of node-scraper's
  messages are about things that our vocabulary leaves out on purpose (a segmentation fault of a
  program, real-time throttling, …): those are counted apart, since they are no mistakes of its own.
- Its catch-all, "Unknown dmesg error" for any line of priority error, names nothing: left out.
- The speed of both is measured in the same run, in turns, over the same lines: an ordinary log with
  1 % fault lines, and fault lines alone. Aegis classifies line by line with details; node-scraper
  runs `check_all_regexes`, as it does over a log, in its own process. Its grouping of equal events
  is part of that; ours comes later, in the agent.

node-scraper is no dependency. Where it is not installed, only our figures are printed, with the
command that installs it.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aegis_agent.probes.kernel.classify import classify

HERE = Path(__file__).parent
HELD_OUT = HERE.parent / "tests" / "data" / "kernel_held_out.jsonl"
SHARED = HERE.parent.parent / "shared" / "data" / "kernel_lines.jsonl"
INSTALL = (
    "python3 -m venv /tmp/node-scraper && /tmp/node-scraper/bin/pip install amd-node-scraper==1.2.0"
    " && python bench/classify.py --node-scraper /tmp/node-scraper/bin/python"
)
ORDINARY_LINES, FAULT_LINES, ROUNDS = 20_000, 2_000, 3

# The classes that a message of node-scraper covers. What is not here is outside our vocabulary.
COVERS: dict[str, set[str]] = {
    "Out of memory error": {"host.memory.oom"},
    "Kernel Panic": {"host.apei.fatal", "host.mce.uncorrected"},
    "SQ Interrupt": {"gpu.shader.illegal_opcode", "gpu.vm.fault"},
    "SRAM ECC": {"gpu.ecc.correctable", "gpu.ecc.uncorrectable"},
    "Failed to load driver. IP hardware init error.": {"gpu.init.failed"},
    "Failed to load driver. IP software init error.": {"gpu.init.failed"},
    "Fatal error during GPU init": {"gpu.init.failed"},
    "QCM fence timeout": {"gpu.scheduler.hang"},
    "amdgpu Page Fault": {"gpu.vm.fault"},
    "PCIe AER Error Status": {"pcie.aer.corrected", "pcie.aer.nonfatal", "pcie.aer.fatal"},
    "PCIe AER Correctable Error Status": {"pcie.aer.corrected"},
    "PCIe AER Uncorrectable Error Status": {"pcie.aer.nonfatal", "pcie.aer.fatal"},
    "PCIe card no longer present": {"pcie.link.down"},
    "PCIe Link Down": {"pcie.link.down"},
    "RAS Correctable Error": {"gpu.ecc.correctable"},
    "RAS Uncorrectable Error": {"gpu.ecc.uncorrectable"},
    "RAS Deferred Error": {"gpu.ecc.deferred"},
    "RAS Corrected PCIe Error": {"host.apei.corrected", "pcie.aer.corrected"},
    "RAS Corrected Error": {"host.mce.corrected", "host.apei.corrected"},
    "RAS Hardware Error": {"host.apei.corrected", "host.apei.recoverable", "host.apei.fatal"},
    "RAS Poison Consumed": {"gpu.ecc.poison_consumed"},
    "RAS Poison created": {"gpu.ecc.poison_created"},
    "RAS EDR Event": {"pcie.dpc"},
    "DPC Event": {"pcie.dpc"},
    "GPU Reset": {"gpu.reset.begin"},
    "GPU reset failed": {"gpu.reset.failed"},
    "Mode 2 Reset Failed": {"gpu.reset.failed"},
    "GPU Throttled": {"gpu.thermal.throttle"},
    "ACA Error": {"gpu.ras.record"},
    "MCE Corrected Error": {"host.mce.corrected"},
    "MCE Uncorrected Error": {"host.mce.uncorrected"},
    "Bad page threshold exceeded": {"gpu.memory.bad_page_threshold"},
    "Error Address": {"gpu.memory.bad_page"},
}
# What a busy node writes on an ordinary day; numbers vary.
ORDINARY = (
    'audit: type=1400 audit(17332{}.123:{}): apparmor="ALLOWED" operation="open" pid={}',
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{}: link becomes ready",
    "cni0: port {}(veth{}) entered forwarding state",
    "docker0: port {}(veth{}) entered blocking state",
    "device veth{} left promiscuous mode",
    "EXT4-fs (nvme{}n1p1): mounted filesystem with ordered data mode. Quota mode: none.",
    "nfs: server 10.0.{}.{} OK",
    "systemd[1]: Started Session {} of User root.",
    "perf: interrupt took too long ({} > {}), lowering kernel.perf_event_max_sample_rate",
    "TCP: request_sock_TCP: Possible SYN flooding on port {}. Sending cookies.",
    "amdgpu 0000:{:02x}:00.0: amdgpu: SMU is initialized successfully!",
    "[drm] PCIE GART of {}M enabled.",
    "mlx5_core 0000:{:02x}:00.0: Port module event: module 0, Cable plugged",
    "overlayfs: upper fs does not support tmpfile, {}",
    "usb 1-{}: new high-speed USB device number {} using xhci_hcd",
    "nvme nvme{}: {}/0/0 default/read/poll queues",
    "workqueue: blk_mq_run_work_fn hogged CPU for >10000us {} times",
    "Bluetooth: hci0: Firmware revision 0.1 build {}",
    "kauditd_printk_skb: {} callbacks suppressed",
    "XFS (dm-{}): Ending clean mount",
)


def main() -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node-scraper", default=sys.executable, metavar="PYTHON",
                        help="an interpreter that has amd-node-scraper")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    options = parser.parse_args()
    peer = Peer(options.node_scraper)
    result: dict[str, Any] = {"node_scraper": peer.version or f"not installed: {INSTALL}"}
    for name, path in (("held_out", HELD_OUT), ("shared", SHARED)):
        result[name] = _compare(peer, path) if path.exists() else f"skipped: no {path}"
    result["lines_per_second"] = _speeds(peer, options.seconds)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0


class Peer:
    """node-scraper, in an interpreter that has it, if there is one."""

    def __init__(self, python: str) -> None:
        self._python = python
        self.version = ""
        self.version = (self._ask({"lines": []}) or {}).get("version", "")

    def messages(self, lines: list[str]) -> list[list[str]] | None:
        """What it says of each line."""
        answer = self._ask({"lines": lines}) if self.version else None
        return None if answer is None else answer["messages"]

    def passes_per_second(self, lines: list[str], seconds: float) -> float | None:
        """How often a second it goes through them."""
        text = "\n".join(lines) + "\n"
        answer = self._ask({"text": text, "seconds": seconds}) if self.version else None
        return None if answer is None else answer["passes_per_second"]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        command = [self._python, str(HERE / "nodescraper_lines.py")]
        try:
            done = subprocess.run(command, input=json.dumps(question), text=True, check=False,
                                  capture_output=True)  # fmt: skip
        except OSError:
            return None
        return json.loads(done.stdout) if done.returncode == 0 else None


def _compare(peer: Peer, path: Path) -> dict[str, Any]:
    records = _records(path)
    ours = [_ours(record["line"]) for record in records]
    wanted = [record["class"] for record in records]
    result = {
        "fault_lines": sum(name is not None for name in wanted),
        "lines_without_a_fault": wanted.count(None),
        "aegis": _score(wanted, [{name} if name else None for name in ours]),
    }
    messages = peer.messages([record["line"] for record in records])
    if messages is not None:
        covered = [
            set().union(*(COVERS.get(message, set()) for message in told)) if told else None
            for told in messages
        ]
        outside = sum(
            name is None and bool(told) and not classes
            for name, told, classes in zip(wanted, messages, covered, strict=True)
        )
        result["node_scraper"] = {
            **_score(wanted, covered),
            "false_alarms_outside_our_vocabulary": outside,
        }
    return result


def _score(wanted: list[str | None], told: list[set[str] | None]) -> dict[str, int]:
    """`told`: the classes given to each line; None: it was not named."""
    pairs = list(zip(wanted, told, strict=True))
    return {
        "named": sum(name is not None and classes is not None for name, classes in pairs),
        "named_right": sum(name is not None and name in (classes or ()) for name, classes in pairs),
        "false_alarms": sum(name is None and classes is not None for name, classes in pairs),
    }


def _ours(line: str) -> str | None:
    finding = classify(line)
    return None if finding is None else finding.fault_class.value


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _speeds(peer: Peer, seconds: float) -> dict[str, Any]:
    return {
        "ordinary_log_1_percent_faults": _speed(peer, _log(ORDINARY_LINES, 100), seconds),
        "fault_lines_alone": _speed(peer, _log(FAULT_LINES, 1), seconds),
    }


def _speed(peer: Peer, lines: list[str], seconds: float) -> dict[str, Any]:
    """Medians of a few rounds in turns, so that a busy machine is busy for both."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(len(lines) * _passes_per_second(lines, seconds))
        passes = peer.passes_per_second(lines, seconds)
        if passes is not None:
            theirs.append(len(lines) * passes)
    result: dict[str, Any] = {"aegis": round(statistics.median(ours))}
    if theirs:
        result["node_scraper"] = round(statistics.median(theirs))
        result["ratio"] = round(statistics.median(ours) / statistics.median(theirs), 2)
    return result


def _passes_per_second(lines: list[str], seconds: float) -> float:
    passes, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds or not passes:
        for line in lines:
            classify(line)
        passes += 1
    return passes / elapsed


def _log(count: int, every: int) -> list[str]:
    """Lines of which one in `every` is a fault, always the same ones."""
    chance = random.Random(7)
    faults = itertools.cycle(_faults())
    ordinary = _ordinary(chance)
    return [next(faults) if number % every == 0 else next(ordinary) for number in range(count)]


def _ordinary(chance: random.Random) -> Iterator[str]:
    while True:
        for form in ORDINARY:
            yield form.format(*(chance.randrange(10, 99) for _ in range(4)))


def _faults() -> list[str]:
    paths = [path for path in (HELD_OUT, SHARED) if path.exists()]
    return [record["line"] for path in paths for record in _records(path) if record["class"]]


if __name__ == "__main__":
    sys.exit(main())
