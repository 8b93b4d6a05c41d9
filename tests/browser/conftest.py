"""A real controller, nodes that speak the real protocol to it, and a real Chromium before it."""

import shutil
import socket
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from played_fleet import Checkpoints, Controller, PlayedNode, wait

from aegis.model.job import JobSpec
from aegis.worker import folder as files
from aegis.worker.fence import Fence

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "aegis" / "controller" / "static"
AXE = ROOT / "dashboards" / "web" / "node_modules" / "axe-core" / "axe.min.js"
JOB = "llama-70b"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
ENFORCE = """\
mode: enforce
nodes_out_max: 3
cooldown_seconds: 0
probation_seconds: 0
hold_down_seconds: 60
gather_seconds: 30
"""


@pytest.fixture(scope="session")
def browser():
    """Chromium, once for each worker."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make setup")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    if not (STATIC / "index.html").is_file():
        pytest.skip("the dashboard is not built: make setup")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser):
    """Open an address in a window of its own; what its console complains of fails the test."""
    contexts, complaints = [], []

    def open_(address, *, width=1280, scheme="light", strict=True, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        if strict:
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "console",
                lambda message: (
                    complaints.append(message.text) if message.type == "error" else None
                ),
            )
        page.goto(address)
        page.wait_for_selector("main h1")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


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


@pytest.fixture
def empty_stage(browser, tmp_path):
    """A controller that nobody speaks to."""
    stage = Stage(tmp_path, ENFORCE)
    stage.controller.start()
    yield stage
    stage.close()


@pytest.fixture
def stage(empty_stage):
    """The same with a job that trains, and leave to act."""
    empty_stage.fill()
    return empty_stage


@pytest.fixture(scope="module")
def told_stage(browser, tmp_path_factory):
    """One for all tests that only look: an incident with all of its parts is over."""
    stage = Stage(tmp_path_factory.mktemp("told"), ENFORCE)
    stage.controller.start()
    stage.fill()
    stage.keep(20)
    stage.checkpoints.spoil("shard 1 of rank 2: hash differs")
    stage.member(1).uncorrectable_error(5)
    stage.closed("gpu.ecc.uncorrectable")
    yield stage
    stage.close()


@pytest.fixture
def observing_stage(browser, tmp_path):
    """A fresh install: it may only observe."""
    stage = Stage(tmp_path, "mode: observe\n")
    stage.controller.start()
    stage.fill()
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def axe():
    """The accessibility checker's source."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in dashboards/web")
    return AXE.read_text()
