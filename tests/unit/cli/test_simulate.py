"""`aegis rules simulate` steps the changed rules only where they answer otherwise."""

from functools import partial

import pytest

from aegis.cli.rules import replay as module
from aegis.cli.rules.replay import replay
from aegis.model.policy import Mode
from aegis.rules import parse, parse_text
from aegis.sim.misfortune import storm
from aegis.sim.world import build

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
    text = next(module.decode(line).text for line in log if b'"RulesLoaded"' in line)
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
    text = next(module.decode(line).text for line in log if b'"RulesLoaded"' in line)

    def shadow(*_arguments):
        raise RuntimeError("stepped on a copy")

    monkeypatch.setattr(module._Player, "_shadow", shadow)
    found = replay(log, parse_text(text))
    assert found.incidents
    assert not any(one.differs for one in found.incidents.values())
