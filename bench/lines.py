"""How many lines of a kernel log are read in a second on one core."""

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable
from typing import Any

import aegis_agent.probes.kernel as package
from aegis_agent.probes.kernel.classify import classify
from aegis_agent.probes.kernel.follow import Follow
from aegis_agent.probes.kernel.line import parse_line
from aegis_agent.probes.kernel.pattern import Pattern, Table

_ORDINARY = (
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "systemd[1]: Started Session 42 of User ann.",
    'audit: type=1400 audit(1700000000.123:42): apparmor="STATUS" operation="profile_load"',
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "amdgpu 0000:c1:00.0: amdgpu: SMU is initialized successfully!",
    "amdgpu 0000:c1:00.0: amdgpu: ring comp_1.0.1 uses VM inv eng 1 on hub 0",
    "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "docker0: port 1(veth1a2b3c) entered forwarding state",
    "device veth1a2b3c entered promiscuous mode",
    "pcieport 0000:00:01.1: PME: Signaling with IRQ 26",
    "pci 0000:c1:00.0: BAR 0: assigned [mem 0x1000000000-0x1fffffffff 64bit pref]",
    "perf: interrupt took too long (2531 > 2500), lowering kernel.perf_event_max_sample_rate",
    "TCP: request_sock_TCP: Possible SYN flooding on port 8500. Sending cookies.",
    "overlayfs: upperdir is in-use as upperdir/workdir of another mount",
    "nfs: server storage not responding, still trying",
    "workqueue: blk_mq_run_work_fn hogged CPU for >10000us 4 times, consider switching",
    "[drm] Initialized amdgpu 3.59.0 for 0000:c1:00.0 on minor 1",
    "kauditd_printk_skb: 12 callbacks suppressed",
)
_ROUND = 20_000


def measure(lines: int) -> dict[str, Any]:
    """An ordinary log with one line of a hundred a fault, and faults alone."""
    faults = list(_examples())
    mixed = [
        faults[number // 100 % len(faults)] if number % 100 == 0 else _ORDINARY[number % 20]
        for number in range(_ROUND)
    ]
    log = [f"6,{number},{5_000_000 + 900 * number},-;{text}" for number, text in enumerate(mixed)]
    bad = [
        f"3,{number},{5_000_000 + 900 * number},-;{faults[number % len(faults)]}"
        for number in range(_ROUND)
    ]
    rounds = max(1, lines // _ROUND)
    baseline = _rate(log, rounds, _baseline)
    found = {
        "ordinary_log": {
            "classified_per_second": _rate(log, rounds, _classify),
            "followed_per_second": _rate(log, rounds, _follow),
        },
        "fault_lines": {
            "wordings": len(faults),
            "classified_per_second": _rate(bad, max(1, rounds // 4), _classify),
            "followed_per_second": _rate(bad, max(1, rounds // 4), _follow),
        },
        "baseline": {
            "how": "each line split into its fields and looked through for one word, in Python",
            "per_second": baseline,
        },
    }
    found["ordinary_log"]["classified_to_baseline"] = round(
        found["ordinary_log"]["classified_per_second"] / baseline, 3
    )
    return found


def _examples() -> Iterable[str]:
    """The line that each pattern gives as an example of its kind."""
    for module in pkgutil.iter_modules(package.__path__):
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(value, tuple | Table):
                yield from (
                    one.example for one in value if isinstance(one, Pattern) and one.fault_class
                )


def _rate(lines: list[str], rounds: int, read: Callable[[list[str]], Any]) -> int:
    read(lines)
    began_at = time.process_time()
    for _ in range(rounds):
        read(lines)
    return round(rounds * len(lines) / (time.process_time() - began_at))


def _classify(lines: list[str]) -> None:
    for line in lines:
        classify(parse_line(line).text)


def _follow(lines: list[str]) -> None:
    follow = Follow(classify)
    for number, line in enumerate(lines):
        follow.feed(parse_line(line), happened=number * 9e-4, now=number * 9e-4)
    follow.finish()


def _baseline(lines: list[str]) -> int:
    found = 0
    for line in lines:
        head, _, text = line.partition(";")
        found += len(head.split(",")) == 4 and "timeout" in text
    return found
