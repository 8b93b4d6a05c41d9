"""A controller and the job that its tests look at; STATIC is the built dashboard."""

import socket
import time
from pathlib import Path

from played_fleet import Checkpoints, Controller, PlayedNode, wait

from aegis.model.job import JobSpec
from aegis.worker import folder as files
from aegis.worker.fence import Fence

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "aegis" / "controller" / "static"
JOB = "llama-70b"


class Stage:
    """A controller and its nodes; whoever uses it lets things go wrong."""

    def __init__(self, folder: Path, policy: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.controller = Controller(folder=folder, port=port, policy=policy)
        self.checkpoints = Checkpoints()
        self.folder = folder / "checkpoints"
        self.nodes: dict[str, PlayedNode] = {}

    @property
    def url(self) -> str:
        return self.controller.url

    def fill(self) -> None:
        """Three nodes of a job of two, and one that belongs to none."""
        self.folder.mkdir()
        spec = JobSpec(
            name=JOB, nodes=2, ranks_per_node=2, spares=1, owner="mira", command="train.py --deep",
            checkpoint_folder=str(self.folder),
        )  # fmt: skip
        for number in range(1, 5):
            name = f"gpu-000{number}"
            self.nodes[name] = PlayedNode(
                name=name,
                controller=self.controller,
                spec=spec if number < 4 else None,
                checkpoints=self.checkpoints,
                rack="rack a",
            ).start()
        wait(lambda: self.job().get("step", 0) > 25, 60, "the job to train past a checkpoint")

    def job(self):
        return self.controller.get(f"/api/v1/jobs/{JOB}") or {}

    def member(self, place: int) -> PlayedNode:
        """The node that holds this place in the job."""
        return self.nodes[self.job()["members"][place]["node"]]

    def keep(self, step: int, generation: int = 1) -> Path:
        """A real checkpoint in the job's folder."""
        fence = Fence(job=JOB, generation=generation, epoch=1)
        saving = files.saving_path(self.folder, step, fence)
        saving.mkdir()
        for rank in range(4):
            (saving / f"__{rank}_0.distcp").write_bytes(bytes([rank]) * 300_000)
        written = {path.name: files.measure(path) for path in saving.iterdir()}
        at = time.time()
        files.commit(self.folder, step, fence, written, 4, taken_at=at, stall_seconds=0.02)
        return self.folder / f"step-{step:08d}"

    def closed(self, fault_class: str):
        """Wait for the incident of this class to be over."""
        return wait(
            lambda: next(
                (
                    one
                    for one in self.controller.incidents()
                    if one["fault_class"] == fault_class and one["state"] == "closed"
                ),
                None,
            ),
            60,
            f"the {fault_class} incident to close",
        )

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self.controller.stop()
