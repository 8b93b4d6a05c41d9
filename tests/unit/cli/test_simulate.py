"""`aegis rules simulate` steps the changed rules only where they answer otherwise."""

from functools import partial

import pytest

from aegis.cli.rules import replay as module
from aegis.cli.rules.replay import replay
from aegis.controller.api.export import lines as exported
from aegis.controller.state import State, freeze
from aegis.controller.store import DATABASE, open_store
from aegis.core import cluster
from aegis.model.policy import Mode
from aegis.rules import parse, parse_text
from aegis.sim.misfortune import storm
from aegis.sim.world import build
from aegis.wire import decode

SEEDS = (3, 5)


def recorded(seed: int) -> list[bytes]:
    """The event log of an invented fleet that something has hit."""
    world = build(seed)
    world.begin()
    world.scene.clock.run(world.scene.now + 12.0)
    storm(world)
    while not world.scene.is_calm:
        world.scene.clock.run(world.scene.now + 10.0)
    world.scene.clock.run(world.scene.now + 120.0)
    return [line.encode() if isinstance(line, str) else line for line in world.controller.log]


def changed(log: list[bytes]):
    """The rules of the log, and otherwise where links, ranks, nodes and memory are concerned."""
    text = next(decode(line).text for line in log if b'"RulesLoaded"' in line)
    rules = {rule.id: rule for rule in parse_text(text).rules}
    assert {"link", "died", "lost", "ecc"} <= rules.keys()
    lines = ["apiVersion: aegis/v1", "kind: RuleSet", "name: changed", "rules:"]
    remedies = {"link": "notify", "died": "drain_now", "lost": "notify", "ecc": "restart"}
    for name, rule in rules.items():
        remedy = remedies.get(name, rule.remedy.value)
        classes = ", ".join(rule.classes)
        waits = ", for: policy" if rule.waits and name != "link" else ""
        lines.append(f"  - {{id: {name}, title: T, class: [{classes}], remedy: {remedy}{waits}}}")
    return parse({"changed.yaml": "\n".join(lines) + "\n"})


class Always(list):
    """A list that is never empty and never cleared: each event is stepped by both."""

    def __bool__(self) -> bool:
        return True


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", [None, Mode.ENFORCE])
def test_what_is_not_stepped_twice_would_have_come_to_the_same(seed, mode, monkeypatch) -> None:
    """The outcome is that of a copy of the fleet before each event, stepped by both rule sets."""
    log = recorded(seed)
    rules = changed(log)
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    found = replay(log, rules, mode=mode)
    monkeypatch.setattr(module, "EVENTS_SINCE_MAX", 7)
    assert replay(log, rules, mode=mode) == found
    monkeypatch.setattr(module, "EVENTS_SINCE_MAX", 1)
    monkeypatch.setattr(module, "_Both", partial(module._Both, apart=Always()))
    assert replay(log, rules, mode=mode) == found
    assert found.unreadable == 0
    assert found.incidents


def test_the_same_rules_are_never_stepped_on_a_copy(monkeypatch) -> None:
    """Wherever they are written."""
    log = recorded(SEEDS[0])
    text = next(decode(line).text for line in log if b'"RulesLoaded"' in line)

    def shadow(*_arguments):
        raise RuntimeError("stepped on a copy")

    monkeypatch.setattr(module._Player, "_shadow", shadow)
    found = replay(log, parse_text(text))
    assert found.incidents
    assert not any(one.differs for one in found.incidents.values())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mode", "rarer"), [(None, 1), (Mode.ENFORCE, 3)])
def test_what_stays_open_for_long_is_looked_at_now_and_then(seed, mode, rarer, monkeypatch) -> None:
    """The answers are the same as if each event had been looked at; the work is much less."""
    log = recorded(seed)
    rules = changed(log)
    found = replay(log, rules, mode=mode)
    stepped = []
    shadow = module._Player._shadow

    def counting(self, *arguments):
        stepped.append(1)
        return shadow(self, *arguments)

    monkeypatch.setattr(module._Player, "_shadow", counting)
    assert replay(log, rules, mode=mode) == found
    seldom = len(stepped)
    stepped.clear()
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    exact = replay(log, rules, mode=mode)
    assert exact.incidents == found.incidents
    assert 0 < seldom * rarer <= len(stepped)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of a controller that has forgotten how its log began, and the whole log."""
    folder, log = tmp_path_factory.mktemp("controller"), recorded(SEEDS[1])
    store, state = open_store(folder), State()
    piece = len(log) // 12
    for begin in range(0, len(log), piece):
        events = [decode(line) for line in log[begin : begin + piece]]
        for number, event in zip(store.append(events), events, strict=True):
            state.apply(number, event)
            state.cluster.touched.clear()
        store.save_snapshot(freeze(state, "test"))
    opened = sorted(one.at for one in replay(log, changed(log)).incidents.values())
    assert store.retain(before=opened[len(opened) // 2], bytes_max=1 << 30) >= piece
    store.close()
    return folder, log


def test_a_log_whose_beginning_is_forgotten_is_replayed_from_how_things_stood_then(kept) -> None:
    """Nodes, jobs, rules and open incidents of then are known: the answers are the same."""
    folder, log = kept
    rules = changed(log)
    whole = replay(log, rules)
    found = replay(exported(folder / DATABASE, 0.0), rules)
    assert (found.is_whole, found.unreadable) == (True, 0)
    assert 0 < found.events < whole.events
    later = {name: one for name, one in whole.incidents.items() if one.at > found.begins_at}
    assert later
    assert {name: found.incidents[name] for name in later} == later


def test_what_is_asked_since_a_moment_begins_at_the_snapshot_before_it(kept) -> None:
    """A day of a long log is replayed in the time of a day."""
    folder, log = kept
    rules, since = changed(log), decode(log[-10]).at
    found = replay(exported(folder / DATABASE, since), rules, since=since)
    assert found.is_whole
    assert found.begins_at <= since
    assert found.events < len(log) // 3
    whole = replay(log, rules, since=since)
    assert found.incidents == whole.incidents


def test_without_a_snapshot_the_replay_says_that_the_beginning_is_missing(kept) -> None:
    """What it can tell all the same is told."""
    folder, log = kept
    lines = [
        line.replace(b'"is_whole": true', b'"is_whole": false')
        for line in exported(folder / DATABASE, 0.0)
        if not line.startswith(b'{"aegis_state"')
    ]
    found = replay(lines, changed(log))
    assert not found.is_whole
    assert found.events


def test_incidents_that_the_core_forgets_are_forgotten(monkeypatch) -> None:
    """The memory of a replay does not grow with the log."""
    log = recorded(SEEDS[0])
    rules = changed(log)
    found = replay(log, rules)
    monkeypatch.setattr(module, "FORGOTTEN_MAX", 0)
    monkeypatch.setattr(cluster, "CLOSED_KEPT", 2)
    player = module._Player(rules, 0.0, None)
    for line in log:
        player.take(line)
        assert player._incidents.keys() <= player._cluster.incidents.keys()
    assert len(player._incidents) < len(found.incidents)
