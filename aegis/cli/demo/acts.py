"""The three acts: break something, wait until the product has mended it, check that it did so."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aegis.cli.demo.fleet import JOB, NODES, DemoFailedError, Fleet, simulate

FLAP_SECONDS = 0.7
HOLD_DOWN_SECONDS = 2.0
BROKEN_GPU = 3
PATIENCE_SECONDS = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One fault and the incident that it became. Times are seconds since the Unix epoch."""

    name: str
    fault_class: str
    injected_at: float
    incident: dict[str, Any]

    @property
    def recovered(self) -> bool:
        """Whether the job trained on because of this incident."""
        return self.incident["phases"]["first_step_at"] is not None


def ecc(fleet: Fleet, say: Say) -> Act:
    """An uncorrectable memory error on one GPU of an active node: the job moves to the spare."""
    victim, before = fleet.members()[1], fleet.members()
    say(f"An uncorrectable error is written into gpu{BROKEN_GPU}'s counters on {victim}.")
    known, injected_at = _known(fleet), time.time()
    simulate("ecc", str(fleet.folder / victim / "gpus"), str(BROKEN_GPU), "umc", "0", "1", "0")
    incident = _recovered(fleet, known, "gpu.ecc.uncorrectable")
    _expect_moved(fleet, incident, victim, before)
    return Act(
        name="ecc", fault_class="gpu.ecc.uncorrectable", injected_at=injected_at, incident=incident
    )


def give_back(fleet: Fleet, node: str, say: Say) -> None:
    """Clear the simulated error and return the node, as an operator would after a repair."""
    say(f"The operator clears the error on {node} and returns the node:")
    simulate("ecc", str(fleet.folder / node / "gpus"), str(BROKEN_GPU), "umc", "0", "0", "0")
    fleet.wait(lambda: _counter(fleet, node) == 0, PATIENCE_SECONDS, f"{node} to read 0 errors")
    verb = ["nodes", "return", node, "--reason", "memory module replaced"]
    say("  $ aegis " + " ".join(f'"{word}"' if " " in word else word for word in verb))
    aegis = [sys.executable, "-m", "aegis.cli.main", *verb]
    access = ["--controller", fleet.url, "--token-file", str(fleet.admin_token)]
    done = subprocess.run([*aegis, *access], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoFailedError(f"`aegis nodes return` failed: {done.stderr.strip()}")
    for line in done.stdout.strip().splitlines():
        say(f"  {line}")
    fleet.wait(lambda: _state(fleet, node) == "ready", PATIENCE_SECONDS, f"{node} to be ready")
    fleet.wait(lambda: _is_spare(fleet, node), PATIENCE_SECONDS, f"{node} to stand by")


def rank(fleet: Fleet, say: Say) -> Act:
    """One rank is killed: its job restarts in place and the node is not blamed."""
    before = fleet.members()
    node, victim = before[-1], _ranks(fleet, before[-1])[-1]
    say(f"Rank {victim['rank']} on {node} (pid {victim['pid']}) is killed with SIGKILL.")
    known, injected_at = _known(fleet), time.time()
    os.kill(victim["pid"], signal.SIGKILL)
    incident = _recovered(fleet, known, "job.worker.exited")
    _expect(fleet.members() == before, f"the job moved to {fleet.members()}")
    _expect(_state(fleet, node) == "ready", f"{node} was blamed: it is {_state(fleet, node)}")
    return Act(
        name="rank", fault_class="job.worker.exited", injected_at=injected_at, incident=incident
    )


def nic(fleet: Fleet, say: Say) -> Act:
    """A short flap changes nothing; a link that stays down takes the node out."""
    before = fleet.members()
    victim = before[0]
    _flap(fleet, victim, say)
    say(f"The fabric link of {victim} goes down and stays down.")
    known, injected_at = _known(fleet), time.time()
    fleet.network.fabric_down(victim)
    incident = _recovered(fleet, known, "nic.link.down")
    _expect_moved(fleet, incident, victim, before)
    return Act(name="nic", fault_class="nic.link.down", injected_at=injected_at, incident=incident)


def _flap(fleet: Fleet, victim: str, say: Say) -> None:
    before, generation, known = fleet.members(), _generation(fleet), _known(fleet)
    say(
        f"The fabric link of {victim} goes away for {FLAP_SECONDS} s "
        f"(the hold-down is {HOLD_DOWN_SECONDS:.0f} s)."
    )
    fleet.network.fabric_down(victim)
    time.sleep(FLAP_SECONDS)
    fleet.network.fabric_up(victim)
    flap = fleet.wait(
        lambda: _new(fleet, known, "nic.link.", closed=True), PATIENCE_SECONDS, "the flap to close"
    )
    say(f"  {flap['id']}: {flap['outcome'] or flap['headline']}")
    reached = fleet.step()
    fleet.wait(
        lambda: fleet.step() > reached + 5,
        PATIENCE_SECONDS,
        "training to go on after the flap",
    )
    _expect(fleet.members() == before, "the flap moved the job")
    _expect(_generation(fleet) == generation, "the flap restarted the job")
    _expect(_state(fleet, victim) == "ready", f"{victim} is {_state(fleet, victim)} after a flap")


def _recovered(fleet: Fleet, known: set[str], fault_class: str) -> dict[str, Any]:
    """Wait for the incident that this fault became, and for its end."""
    incident: dict[str, Any] = fleet.wait(
        lambda: _new(fleet, known, fault_class, closed=True),
        PATIENCE_SECONDS,
        f"the {fault_class} incident to be mended",
    )
    _expect(
        incident["phases"]["first_step_at"] is not None,
        f"{incident['id']} closed without a new step: {incident['outcome']}",
    )
    whole: dict[str, Any] = fleet.get(f"/api/v1/incidents/{incident['id']}") or incident
    return whole


def _expect_moved(fleet: Fleet, incident: dict[str, Any], victim: str, before: list[str]) -> None:
    spare = next(node for node in NODES if node not in before)
    _expect(spare in incident["nodes_after"], f"the spare {spare} was not used")
    _expect(victim not in incident["nodes_after"], f"{victim} still holds ranks")
    state = fleet.wait(
        lambda: _state(fleet, victim) == "quarantined" and "quarantined",
        PATIENCE_SECONDS,
        f"{victim} to be quarantined (it is {_state(fleet, victim)})",
    )
    _expect(state == "quarantined", f"{victim} is {state}")


def _expect(kept: bool, otherwise: str) -> None:  # noqa: FBT001  reads like an assertion
    if not kept:
        raise DemoFailedError(otherwise)


def _incidents(fleet: Fleet) -> list[dict[str, Any]]:
    page = fleet.get("/api/v1/incidents?limit=100") or {"items": []}
    return list(page["items"])


def _known(fleet: Fleet) -> set[str]:
    return {incident["id"] for incident in _incidents(fleet)}


def _new(fleet: Fleet, known: set[str], prefix: str, *, closed: bool) -> dict[str, Any] | None:
    for incident in _incidents(fleet):
        fits = incident["id"] not in known and incident["fault_class"].startswith(prefix)
        if fits and (incident["state"] == "closed") is closed:
            return incident
    return None


def _node(fleet: Fleet, node: str) -> dict[str, Any]:
    return fleet.get(f"/api/v1/nodes/{node}") or {}


def _state(fleet: Fleet, node: str) -> str:
    return str(_node(fleet, node).get("state"))


def _launcher(fleet: Fleet, node: str) -> dict[str, Any]:
    launchers = _node(fleet, node).get("launchers", [])
    return next((one for one in launchers if one["spec"]["name"] == JOB), {})


def _ranks(fleet: Fleet, node: str) -> list[dict[str, Any]]:
    return list(_launcher(fleet, node).get("ranks", []))


def _is_spare(fleet: Fleet, node: str) -> bool:
    launcher = _launcher(fleet, node)
    alive = [rank for rank in launcher.get("ranks", []) if rank["phase"] != "exited"]
    return bool(launcher) and not alive and launcher["standbys"] > 0


def _counter(fleet: Fleet, node: str) -> int | None:
    for device in _node(fleet, node).get("devices", []):
        if device["name"] == f"gpu{BROKEN_GPU}":
            return dict(map(tuple, device["counters"])).get("ecc_uncorrectable")
    return None


def _generation(fleet: Fleet) -> int:
    return int((fleet.job() or {}).get("generation", -1))
