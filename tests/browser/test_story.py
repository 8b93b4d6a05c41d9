"""The incident page tells the whole story, as it happens."""

import re

import pytest
from played_fleet import wait


def text_of(page, section):
    return page.locator(f"section[aria-labelledby={section}]").inner_text()


def test_an_incident_is_told_while_it_happens(stage, open_page):
    """From a quiet overview to the closed incident, without the page being loaded again."""
    page = open_page(stage.url)
    page.evaluate("window.loadedOnce = true")
    assert "no open incident" in page.locator("h1").inner_text()
    stage.checkpoints.spoil("shard 1 of rank 2: hash differs")
    for node in stage.nodes.values():
        node.load_seconds = 4.0  # long enough to be seen under way
    victim = stage.member(1)
    victim.uncorrectable_error(5)

    page.locator(".open-incident").click()
    page.locator(".incident-head .badge", has_text="closed").wait_for()
    incident = stage.closed("gpu.ecc.uncorrectable")
    page.get_by_text("newer checkpoint failed verification").first.wait_for()
    assert page.evaluate("window.loadedOnce") is True
    assert page.url.endswith(f"/incidents/{incident['id']}")
    assert page.locator("h1").inner_text().rstrip(".") == incident["headline"]
    assert "simulated" in page.locator(".incident-head").inner_text()

    broke = text_of(page, "broke")
    for part in ("gpu5", victim.name, "gpu.ecc.uncorrectable", *victim.identity(5).split()):
        assert part in broke
    assert re.search(r"0 → 1\s+amdsmi ecc_count\(umc\)", text_of(page, "know"))
    decided = text_of(page, "decided")
    [decision] = incident["decisions"]
    for verdict in decision["verdicts"]:
        assert verdict["text"] in decided
    assert decided.count("passes") == len(decision["verdicts"])
    for part in ("Acted", decision["rule"], "enforce", decision["rules_digest"][:12]):
        assert part in decided
    for alternative in decision["alternatives"]:
        assert alternative["reason"] in decided
    done = page.locator(".entry-text").all_inner_texts()
    assert done == [
        entry["text"].replace("`", "")  # a command is set as code
        for entry in sorted(incident["entries"], key=lambda one: one["at"])
    ]
    assert page.locator(".entry-elapsed").first.inner_text() == "t+00:00.0"
    assert "hash differs" in text_of(page, "rejected")
    following = text_of(page, "next")
    assert f"aegis nodes return {victim.name}" in re.sub(r"\s+", " ", following)
    assert "gpu5 still reads as unhealthy" in following


def test_the_cost_is_what_the_controller_reckons(stage, open_page):
    """Seconds by phase and their sum, steps lost, and which node took whose place."""
    victim = stage.member(0)
    victim.uncorrectable_error(2)
    incident = stage.closed("gpu.ecc.uncorrectable")
    told = stage.controller.get(f"/api/v1/incidents/{incident['id']}")["seconds"]
    page = open_page(f"{stage.url}/incidents/{incident['id']}")
    shown = [
        float(text.removesuffix(" s"))
        for text in page.locator(".cost-table td.number").all_inner_texts()
    ]
    assert shown[:-1] == pytest.approx(list(told.values()), abs=0.006)
    assert shown[-1] == pytest.approx(sum(told.values()), abs=0.006)
    cost = text_of(page, "cost")
    assert f"{incident['last_step_before']} → {incident['resumed_step']}" in cost
    assert page.locator(".swap-out").all_inner_texts() == [victim.name]
    [spare] = set(incident["nodes_after"]) - set(incident["nodes_before"])
    assert page.locator(".swap-in").all_inner_texts() == [spare]


def test_a_node_that_is_returned_changes_what_happens_next(stage, open_page):
    """The page of a closed incident follows the node's disposition."""
    victim = stage.member(1)
    victim.uncorrectable_error(5)
    incident = stage.closed("gpu.ecc.uncorrectable")
    page = open_page(f"{stage.url}/incidents/{incident['id']}")
    following = page.locator("section[aria-labelledby=next]")
    following.get_by_text("Refused for now").wait_for()
    victim.heal()
    following.get_by_text("Refused for now").wait_for(state="detached")
    stage.controller.post(f"/api/v1/nodes/{victim.name}:return", {"reason": "GPU replaced"})
    following.get_by_text(f"{victim.name} is in service").wait_for()


def test_a_flap_is_told_as_what_it_was(stage, open_page):
    """A link that comes back within the hold-down costs nothing, and the page says why."""
    page = open_page(f"{stage.url}/incidents")
    victim = stage.member(0)
    victim.link_down()
    page.get_by_role("link", name=re.compile("Network link down")).click()
    page.get_by_text("Aegis is watching").first.wait_for()
    victim.link_up()
    page.get_by_text("shorter than the hold-down").first.wait_for()
    assert "no training was stopped" in text_of(page, "cost")
    assert "waits 1 min to see whether it lasts" in text_of(page, "decided")


def test_a_fresh_install_says_that_it_only_watches(observing_stage, open_page):
    """Nothing is touched; the page says what would have been done, and how to do it by hand."""
    page = open_page(observing_stage.url)
    assert "Aegis only watches: it will touch no node" in page.locator(".banner-mode").inner_text()
    victim = observing_stage.member(0)
    victim.uncorrectable_error(1)
    page.locator(".open-incident").click()
    page.get_by_text("Would act").wait_for()
    held = page.locator(".rail.held")
    assert held.count() == 1
    assert "held" in held.inner_text()
    assert "it has not touched job" in text_of(page, "cost")
    following = re.sub(r"\s+", " ", text_of(page, "next"))
    assert f"aegis nodes drain {victim.name}" in following
    assert observing_stage.job()["generation"] == 1


def test_new_incidents_are_announced(stage, open_page):
    """Who does not see the page hears of it."""
    page = open_page(f"{stage.url}/nodes")
    stage.member(1).kill_rank(2)
    page.locator("[aria-live=polite]", has_text="Rank 2 died").wait_for(state="attached")
    stage.closed("job.worker.exited")
    page.locator("[aria-live=polite]", has_text="Incident closed").wait_for(state="attached")
    wait(lambda: page.title().startswith("Nodes"), 10, "the count to leave the title")
