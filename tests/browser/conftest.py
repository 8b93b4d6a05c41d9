"""A real controller, nodes that speak the real protocol to it, and a real Chromium before it."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from played_stage import ROOT, STATIC, Stage

AXE = ROOT / "dashboards" / "web" / "node_modules" / "axe-core" / "axe.min.js"
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
