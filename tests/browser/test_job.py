"""The page of a job: why each generation ended, what it can go on from, and what may be asked."""

import re
import subprocess
import sys

from played_fleet import wait
from played_stage import JOB

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 31, in <module>
ValueError: the batch is empty
"""


def command(stage, *words):
    """What `aegis` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "aegis.cli.main", *words, "--controller", stage.url],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def plain(text):
    return re.sub(r"\s+", " ", text)


def generation(stage, number):
    """Wait until the ranks of this generation, or of a later one, have done a step."""

    def trains():
        job = stage.job()
        newest = job["attempts"][-1]
        return newest["generation"] >= number and newest["first_step_at"] and job

    return wait(trains, 60, f"generation {number} to train")


def token(stage):
    return (stage.controller.folder / "data" / "admin.token").read_text().strip()


def test_an_attempt_tells_its_first_cause_its_victims_and_what_it_cost(stage, open_page):
    """The page, the command and the API say the same, as it happens."""
    page = open_page(f"{stage.url}/jobs/{JOB}")
    victim = stage.member(1)
    victim.kill_rank(3, error=TRACEBACK, victims=(2,))
    stage.closed("job.worker.exited")
    ended = page.locator(".attempt[data-generation='1'] .attempt-end")
    ended.locator(".phases", has_text="first step").wait_for()
    told = stage.controller.get(f"/api/v1/jobs/{JOB}/history")
    lap = told["laps"][0]
    assert lap["cause"] == (
        f"Rank 3 died on {victim.name}: killed by SIGKILL; ValueError: the batch is empty"
    )
    assert lap["victims"] == [f"rank 2 on {victim.name}"]
    shown = plain(ended.inner_text())
    for part in (lap["cause"], *lap["victims"], lap["incident"], f"{lap['steps_lost']} steps lost"):
        assert part in shown
    page.locator(".attempt[data-generation='2']", has_text="from memory").wait_for()
    said = command(stage, "job", JOB)
    assert f"   1  {lap['cause']} ({lap['incident']})" in said
    assert f"victims: rank 2 on {victim.name}" in said
    assert re.search(rf"^2 .* {told['laps'][1]['resumed_step']} +memory ", said, re.MULTILINE)


def test_what_lies_in_the_folder_is_told_and_verified(stage, open_page):
    """Complete, suspect and bad ones; reading every byte is asked for with a token."""
    stage.keep(20)
    shard = stage.keep(40) / "__2_0.distcp"
    (stage.keep(60) / "manifest.json").unlink()
    page = open_page(f"{stage.url}/jobs/{JOB}")
    table = page.locator(".checkpoints-table")
    table.wait_for()
    rows = [plain(row) for row in table.locator("tbody tr").all_inner_texts()]
    assert [row.split()[:2] for row in rows] == [
        ["60", "bad"],
        ["40", "complete"],
        ["20", "complete"],
    ]
    assert "manifest.json is missing" in rows[0]
    assert "1.1 MiB" in rows[1]
    shard.write_bytes(b"\x03" * 300_000)
    page.get_by_role("button", name="Verify…").click()
    page.get_by_label("Token").fill(token(stage))
    page.get_by_role("button", name="Verify", exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")
    rows = [plain(row) for row in table.locator("tbody tr").all_inner_texts()]
    assert "rank 2: hash differs" in rows[1]
    assert rows[2].startswith("20 verified")


def test_a_restart_says_what_it_would_hit_and_wants_a_token(stage, open_page, axe):
    """Without a token, or with a wrong one, nothing is done and the answer says what to do."""
    page = open_page(f"{stage.url}/jobs/{JOB}", width=390, strict=False)  # it tells of each 401
    page.get_by_role("button", name="Restart…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("they save at their next step").wait_for()
    dialog.get_by_label("At once").check()
    dialog.locator(".hits li", has_text="at once, without a save").wait_for()
    plan = stage.controller.get(f"/api/v1/jobs/{JOB}/plan?verb=restart&at_once=true")
    assert "4 ranks on gpu-0001 and gpu-0002" in plan["hits"][0]
    assert dialog.locator(".hits li").count() == len(plan["hits"])
    assert command(stage, "jobs", "restart", JOB, "--now", "--dry-run").startswith(
        f"- {plan['hits'][0]}\n"
    )
    send = dialog.get_by_role("button", name="Restart it")
    assert send.is_disabled(), "a reason is wanted"
    dialog.get_by_label("Why").fill("it hangs")
    send.click()
    dialog.get_by_role("alert").get_by_text("this needs a token", exact=False).wait_for()
    dialog.get_by_label("Token").fill("aegis_operator_no_such")
    send.click()
    dialog.get_by_text("not one of this controller", exact=False).wait_for()
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert stage.job()["generation"] == 1
    dialog.get_by_label("Token").fill(token(stage))
    send.click()
    dialog.wait_for(state="detached")
    assert generation(stage, 2)["restarts_without_progress"] == 0
    ended = page.locator(".attempt[data-generation='1'] .attempt-end")
    ended.get_by_text("restarted by admin: it hangs", exact=False).wait_for()


def test_a_job_is_kept_off_a_node_and_let_back(stage, open_page):
    """A spare takes its place; what would leave too few nodes is refused before it is asked for."""
    page = open_page(f"{stage.url}/jobs/{JOB}")
    left = stage.member(0).name
    page.get_by_role("button", name=f"Keep off: {left}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(f"gpu-0003 takes the place of {left}").wait_for()
    dialog.get_by_label("Why").fill("slow disk")
    dialog.get_by_label("Token").fill(token(stage))
    dialog.get_by_role("button", name="Keep it off").click()
    dialog.wait_for(state="detached")
    assert left not in [one["node"] for one in generation(stage, 2)["members"]]
    page.locator(".member", has_text="kept off by people").get_by_text(left).wait_for()

    page.get_by_role("button", name="Keep off: gpu-0003").click()
    dialog.get_by_text("needs 2 nodes and would have a launcher on 1 only").wait_for()
    assert dialog.get_by_role("button", name="Keep it off").is_disabled()
    dialog.get_by_role("button", name="Cancel").click()

    page.get_by_role("button", name=f"Let back: {left}").click()
    dialog.get_by_text("With the token that this tab keeps").wait_for()
    dialog.get_by_label("Why").fill("new disk")
    dialog.get_by_role("button", name="Let it").click()
    page.locator(".member", has_text="spare").get_by_text(left).wait_for()
    assert stage.job()["excluded"] == []


def test_a_job_is_stopped_for_good_only_by_its_name(stage, open_page):
    """Its name is typed first; a job that is over may be asked for nothing."""
    page = open_page(f"{stage.url}/jobs/{JOB}")
    page.get_by_role("button", name="Stop for good…").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".hits li", has_text="only aegis run starts it anew").wait_for()
    dialog.get_by_label("Why").fill("wrong data")
    dialog.get_by_label("Token").fill(token(stage))
    stop = dialog.get_by_role("button", name="Stop it")
    assert stop.is_disabled()
    dialog.get_by_label(f"Type {JOB} to confirm").fill(JOB)
    stop.click()
    dialog.wait_for(state="detached")
    page.locator(".page-head .badge", has_text="done").wait_for()
    page.get_by_role("button", name="Restart…").wait_for(state="detached")
    assert page.get_by_role("button", name="Keep off").count() == 0
    refused = stage.controller.get(f"/api/v1/jobs/{JOB}/plan?verb=restart")["refused"]
    assert refused.startswith(f"job {JOB} is done already: stopped by admin")
