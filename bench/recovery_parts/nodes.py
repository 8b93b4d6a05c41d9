"""Loss of a whole node: two of two ranks each and a spare, in three network namespaces (root)."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from aegis.cli.demo.fleet import activated
from aegis.cli.demo.network import Namespaces
from recovery_parts import watch
from recovery_parts.one_machine import new_folder, told, training
from recovery_parts.watch import PATIENCE_SECONDS, LostError, Ranks

NODES = ["node-1", "node-2", "node-3"]
RANKS_PER_NODE = 2
JOB = "bench"
_LOOK_SECONDS = 0.05
_QUICK = "silence_seconds: 1.5\nhold_down_seconds: 1\n"
_POLICY = "mode: enforce\nnodes_out_max: 3\ncooldown_seconds: 0\nprobation_seconds: 0\n"


@dataclass
class Fleet:
    """A controller, and on each node an agent and a launcher."""

    folder: Path
    policy: str
    flags: tuple[str, ...] = ()  # of aegis run
    script_flags: tuple[str, ...] = ()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = Namespaces(NODES)
        self.url = ""

    def start(self) -> None:
        """Everything, until the controller answers."""
        listeners = self.network.listeners(0)
        self.url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
        policy = self.folder / "policy.yaml"
        policy.write_text(_POLICY + self.policy)
        command = [
            *(sys.executable, "-m", "aegis.cli.main", "controller"),
            *("--data", str(self.folder / "controller"), "--policy", str(policy)),
        ]
        with (self.folder / "controller.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    activated(command, listeners),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[one.fileno() for one in listeners],
                    start_new_session=True,
                )
            )
        for one in listeners:
            one.close()
        self.wait(lambda: self.get("/api/v1/meta") is not None, "the controller")
        for node in NODES:
            self._admit(node)
            self.begin(node)

    def _admit(self, node: str) -> None:
        home = self.folder / node
        home.mkdir()
        admin = (self.folder / "controller" / "admin.token").read_text().strip()
        answer = httpx.post(
            f"{self.url}/api/v1/tokens",
            json={"role": "node", "node": node},
            headers={"Authorization": f"Bearer {admin}"},
        )
        (home / "token").write_text(answer.raise_for_status().json()["token"])

    def begin(self, node: str) -> None:
        """The node's agent and launcher."""
        home, prefix = self.folder / node, self.network.prefix(node)
        program = [*prefix, sys.executable, "-m", "aegis.cli.main"]
        asked = ["--node", node, "--controller", self.network.controller_url(0)]
        asked += ["--token-file", str(home / "token")]
        agent = ["agent", *asked, "--state-dir", str(home / "agent")]
        agent += ["--socket", str(home / "agent.sock"), *self.network.agent_arguments(node)]
        launcher = ["run", *asked, "--job", JOB, "--nnodes", "2", "--spares", "1"]
        launcher += ["--nproc-per-node", str(RANKS_PER_NODE), "--max-restarts", "1000"]
        launcher += ["--address", self.network.address(node), "--log-dir", str(home / "ranks")]
        launcher += ["--agent-socket", str(home / "agent.sock"), *self.flags]
        launcher += training(self.folder, *self.script_flags)
        for command in (agent, launcher):
            environment = self.network.rank_environment()
            self.processes.append(watch.begin([*program, *command], home, **environment))

    def get(self, path: str) -> Any:
        """The controller's answer; None while there is none."""
        with contextlib.suppress(httpx.TransportError, ValueError):
            answer = httpx.get(self.url + path, timeout=5)
            return answer.json() if answer.is_success else None
        return None

    def members(self) -> list[str]:
        """The nodes of the job's ranks, in rank order."""
        job = self.get(f"/api/v1/jobs/{JOB}") or {"members": []}
        return [one["node"] for one in job["members"]]

    def has_spare(self) -> bool:
        """Whether a node without ranks is heard, in service and ready to take them."""
        members, nodes = self.members(), (self.get("/api/v1/nodes") or {"items": []})["items"]
        spares = [one for one in nodes if one["name"] not in members and one["state"] == "ready"]
        idle = [one for node in spares for one in node["launchers"] if not node["hung_up_at"]]
        return any(one["standbys"] > 0 and one["phase"] == "idle" for one in idle)

    def wait(self, wanted: Callable[[], Any], what: str) -> None:
        """Until it is so."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not wanted():
            if time.monotonic() > until:
                raise LostError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
            time.sleep(_LOOK_SECONDS)

    def kill(self, node: str) -> None:
        """Everything on the node, at once."""
        watch.kill_all_in(self.network.prefix(node)[-1])

    def links(self, node: str, way: str) -> None:
        """Both of the node's cables, at the switch: "down" or "up"."""
        switch, number = self.network.prefix(NODES[0])[-1].rpartition("-")[0] + "-sw", node[-1]
        for port in (f"m{number}", f"f{number}"):
            subprocess.run(["ip", "-n", switch, "link", "set", port, way], check=True)

    def close(self) -> None:
        """End all that was started."""
        for node in NODES:
            self.kill(node)
        for process in self.processes:
            process.kill()
            process.wait()
        self.network.close()


def lost(
    within: Path,
    repetitions: int,
    name: str,
    hurt: Callable[[Fleet, str], None],
    mend: Callable[[Fleet, str], None],
    *,
    policy: str = "",
    flags: tuple[str, ...] = (),
    script_flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """One job that loses the node of its last ranks so many times."""
    fleet = Fleet(new_folder(within, name), policy, flags, script_flags)
    ranks, found = Ranks(fleet.folder, 2 * RANKS_PER_NODE), []
    try:
        fleet.start()
        ranks.wait(lambda: ranks.first_steps(-1), PATIENCE_SECONDS, "the first step")
        for _ in range(repetitions):
            fleet.wait(fleet.has_spare, "a spare")
            life = ranks.newest(0)["life"]
            ranks.settle(life)
            victim = fleet.members()[-1]
            at = time.time()
            hurt(fleet, victim)
            found.append(ranks.recovery(life, at))
            print(f"  {found[-1]['seconds']:.2f} s {found[-1]['phases']}", file=sys.stderr)
            mend(fleet, victim)
    except LostError as error:
        logs = [*sorted(fleet.folder.glob("**/log")), fleet.folder / "controller.log"]
        tails = {str(log): log.read_text(errors="replace")[-1500:] for log in logs if log.exists()}
        return told(found) | {"lost": str(error), "log": tails}
    finally:
        fleet.close()
    return told(found)


def killed(within: Path, repetitions: int) -> dict[str, Any]:
    """All processes of a node killed at once, all limits at their defaults."""
    return lost(within, repetitions, "killed", Fleet.kill, Fleet.begin)


def cut(within: Path, repetitions: int) -> dict[str, Any]:
    """A node's links cut without a word, silence_seconds 1.5 and hold_down_seconds 1."""
    return _cut(within, repetitions, _QUICK)


def cut_defaults(within: Path, repetitions: int) -> dict[str, Any]:
    """The same with the limits as they come."""
    return _cut(within, min(2, repetitions), "")


def _cut(within: Path, repetitions: int, policy: str) -> dict[str, Any]:
    def down(fleet: Fleet, node: str) -> None:
        fleet.links(node, "down")

    def up(fleet: Fleet, node: str) -> None:
        fleet.links(node, "up")

    return lost(within, repetitions, "cut", down, up, policy=policy)
