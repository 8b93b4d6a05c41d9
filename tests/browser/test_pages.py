"""What holds for every page: live or said not to be, legible, narrow, small, and for everybody."""

import gzip
import re
import time

import pytest
from played_stage import JOB, STATIC

BUDGET_BYTES = 100_000


def paths(stage):
    """Every page."""
    incident = stage.closed("gpu.ecc.uncorrectable")
    return [
        "/", "/incidents", f"/incidents/{incident['id']}", "/nodes",
        f"/nodes/{incident['node']}", "/jobs", f"/jobs/{JOB}", "/nowhere",
    ]  # fmt: skip


def test_nothing_serious_stands_in_anybodys_way(told_stage, open_page, axe):
    """Axe finds no serious fault on any page, in light and in dark."""
    page = open_page(told_stage.url)
    found = []
    for path in paths(told_stage):
        page.goto(told_stage.url + path)
        page.wait_for_selector("main h1")
        page.evaluate(axe)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [
                (scheme, path, one["id"], [node["target"] for node in one["nodes"]][:3])
                for one in result["violations"]
                if one["impact"] in ("serious", "critical")
            ]
    assert found == []


def test_a_phone_scrolls_only_downwards(told_stage, open_page):
    """At 360 pixels nothing is wider than the window."""
    page = open_page(told_stage.url, width=360)
    for path in paths(told_stage):
        page.goto(told_stage.url + path)
        page.wait_for_selector("main h1")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{path} is {width} pixels wide"


def test_a_lost_controller_is_said_and_found_again(stage, open_page):
    """What is shown fades and says how old it is; when the controller is back, all is live."""
    page = open_page(stage.url, strict=False)
    page.locator(".live.live").wait_for()
    stage.controller.stop()
    banner = page.locator(".banner-lost")
    banner.wait_for()
    assert re.search(
        r"Live updates lost; reconnecting. Shown as of \d\d:\d\d:\d\dZ", banner.inner_text()
    )
    assert page.locator("main.stale").count() == 1
    assert JOB in page.locator("main").inner_text()
    stage.controller.start()
    banner.wait_for(state="detached")
    page.locator(".live.live").wait_for()
    step = stage.job()["step"]
    page.wait_for_function(
        "step => Number(document.querySelector('.jobs-table td.number').firstChild.data) > step",
        arg=step,
    )


def test_a_silent_node_fades(stage, open_page):
    """A node that has not been heard says for how long, long before anyone judges it."""
    page = open_page(stage.url)
    stage.nodes["gpu-0004"].close()
    quiet = page.locator(".node.quiet")
    quiet.wait_for(timeout=40_000)
    assert "gpu-0004" in quiet.inner_text()
    assert "silent" in quiet.inner_text()


def test_no_data_is_not_unhealthy(told_stage, open_page):
    """Unknown has its own mark, name and place in the words for those who do not see it."""
    node = told_stage.nodes["gpu-0004"]
    node.lose_sight(3)
    page = open_page(f"{told_stage.url}/nodes")
    row = page.locator("tr", has_text="gpu-0004")
    row.locator(".cell.unknown").wait_for()
    assert row.locator(".cell.unhealthy").count() == 0
    assert row.locator("svg.cells").get_attribute("aria-label") == "gpu3 unknown; 8 healthy"


def test_times_and_theme_are_the_readers_choice_and_stay(told_stage, open_page):
    """UTC, local with its offset, or how long ago; dark where the reader wants it."""
    incident = told_stage.closed("gpu.ecc.uncorrectable")
    page = open_page(f"{told_stage.url}/incidents/{incident['id']}", timezone_id="Asia/Kolkata")
    observed = page.locator(".incident-meta time").first
    assert observed.inner_text().endswith("Z")
    page.get_by_role("button", name="Local").click()
    page.wait_for_function(
        "() => document.querySelector('.incident-meta time').innerText.length > 9"
    )
    assert observed.inner_text().endswith("+05:30")
    page.get_by_role("button", name="Ago").click()
    page.locator(".incident-meta time", has_text="ago").first.wait_for()
    page.get_by_role("button", name=re.compile("Theme: system")).click()
    page.get_by_role("button", name=re.compile("Theme: light")).click()
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert "ago" in observed.inner_text()


def test_keys_lead_everywhere(told_stage, open_page):
    """`g` and a letter, `/`, `j`, `?`; in a field they are letters."""
    page = open_page(told_stage.url)
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/incidents")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents/inc-*")
    page.keyboard.press("/")
    page.wait_for_url("**/incidents")
    page.wait_for_function("() => document.activeElement.id === 'search'")
    page.keyboard.type("gpu-0009 go")
    assert page.url.endswith("?q=gpu-0009+go")
    page.get_by_text("No incident matches").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("Search incidents").wait_for()


def test_an_empty_fleet_says_what_to_do(empty_stage, open_page):
    """Each empty place says why it is empty and which command fills it."""
    page = open_page(empty_stage.url, strict=False)  # the console tells of the 404 below
    words = re.sub(r"\s+", " ", page.locator("main").inner_text())
    assert "aegis nodes token NODE" in words
    assert "aegis run --nnodes" in words
    page.goto(f"{empty_stage.url}/incidents/inc-000042")
    page.get_by_text("there is no incident").wait_for()


def test_one_stream_serves_a_page(told_stage, open_page):
    """However many nodes are shown, a window holds one stream."""
    page = open_page(told_stage.url)
    page.goto(f"{told_stage.url}/nodes")
    page.wait_for_selector("main h1")
    until = time.monotonic() + 20
    while "aegis_event_stream_clients 1.0" not in told_stage.controller.get("/metrics"):
        assert time.monotonic() < until, "more than one stream stays open"
        time.sleep(0.1)


@pytest.mark.usefixtures("browser")
def test_the_page_is_small_and_all_its_own():
    """Less than 100 kB of JavaScript, and no address of anybody else."""
    scripts = list((STATIC / "assets").glob("*.js"))
    assert sum(len(gzip.compress(one.read_bytes())) for one in scripts) < BUDGET_BYTES
    html = (STATIC / "index.html").read_text()
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    assert "<style" not in html
    assert not re.findall(r"<script(?![^>]*\bsrc=)", html)
