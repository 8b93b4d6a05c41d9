"""Loss of a whole node under torchrun, in the same three network namespaces (root).

Two of the nodes train, two ranks each; the replacement is started in the moment of the loss, as by
somebody who was waiting for it. The surviving node has the rendezvous. A job of its own for each
time. torchrun counts no attempt when a node joins, so a new life is told by its processes.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aegis.cli.demo.network import Namespaces
from recovery_parts import watch
from recovery_parts.one_machine import new_folder, training
from recovery_parts.watch import PATIENCE_SECONDS, LostError, Ranks

NODES = ["node-1", "node-2", "node-3"]
RANKS_PER_NODE = 2
_PORT = 29400


class Job:
    """torchrun on nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Namespaces(NODES)
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self, node: str) -> None:
        """The node's torchrun."""
        home = self.folder / node
        home.mkdir()
        command = [
            *self.network.prefix(node),
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
            *("--nproc-per-node", str(RANKS_PER_NODE), "--max-restarts", "100"),
            *("--rdzv-backend", "c10d", "--rdzv-id", "bench"),
            *("--rdzv-endpoint", f"{self.network.address(NODES[0])}:{_PORT}"),
            # torchrun looks for the endpoint among the addresses of this machine's name.
            *("--rdzv-conf", f"is_host={str(node == NODES[0]).lower()}"),
            *("--local-addr", self.network.address(node)),
            *training(self.folder),
        ]
        environment = {
            **self.network.rank_environment(),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        self.processes.append(watch.begin(command, home, **environment))

    def kill(self, node: str) -> None:
        """Everything on the node, at once."""
        watch.kill_all_in(self.network.prefix(node)[-1])

    def close(self) -> None:
        """End all that was started."""
        for node in NODES:
            self.kill(node)
        for process in self.processes:
            process.wait()
        self.network.close()


def killed(within: Path, repetitions: int) -> dict[str, Any]:
    """All processes of a node killed at once, another node's torchrun started in that moment."""
    seconds: list[float] = []
    for _ in range(repetitions):
        job = Job(new_folder(within, "torchrun-nodes"))
        try:
            seconds.append(_once(job))
        except LostError as error:
            logs = [job.folder / node / "log" for node in NODES]
            there = [log for log in logs if log.exists()]
            tails = {str(log): log.read_text(errors="replace")[-1500:] for log in there}
            return {"seconds": watch.summary(seconds), "lost": str(error), "log": tails}
        finally:
            job.close()
        print(f"  torchrun: {seconds[-1]:.2f} s", file=sys.stderr)
    return {"seconds": watch.summary(seconds)}


def _once(job: Job) -> float:
    ranks = Ranks(job.folder, 2 * RANKS_PER_NODE)
    for node in NODES[:2]:
        job.begin(node)
    ranks.wait(lambda: ranks.first_steps(-1), PATIENCE_SECONDS, "the first step")
    ranks.settle(0)
    before = {ranks.newest(rank)["pid"] for rank in range(ranks.count)}
    at = time.time()
    job.kill(NODES[1])
    job.begin(NODES[2])

    def first() -> list[float]:
        found = []
        for rank in range(ranks.count):
            new = (one for one in ranks.steps(rank, -1) if one["pid"] not in before)
            found.append(next((one["at"] for one in new), 0.0))
        return found if all(found) else []

    return round(max(ranks.wait(first, PATIENCE_SECONDS, "the first new step")) - at, 3)
