"""Running one seed to its end: the storm, the calm, and what must have come of it."""

import traceback
from dataclasses import dataclass

from aegis.sim.clock import BEGINNING
from aegis.sim.misfortune import storm
from aegis.sim.outcome import complaints
from aegis.sim.world import World, build

MEND_SECONDS = 30.0  # after the storm, before the first look
LOOK_SECONDS = 10.0  # between looks
PATIENCE_SECONDS = 420.0  # all must have mended by then


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a seed."""

    seed: int
    broken: str  # the first promise that did not hold; "" when all did
    lines: tuple[str, ...]
    events: int
    seconds: float  # virtual


def run(seed: int) -> Result:
    """One seed, from its first moment until all has mended or a promise is broken."""
    world = build(seed)
    try:
        broken = _live(world)
    except Exception as error:  # noqa: BLE001 — whatever ends the core breaks a promise
        broken = _words(error)
    if broken:
        world.scene.log(f"BROKEN: {broken}")
    return Result(
        seed=seed,
        broken=broken,
        lines=tuple(world.scene.lines),
        events=len(world.controller.log),
        seconds=world.scene.now - BEGINNING,
    )


def _words(error: Exception) -> str:
    """A promise in its own words; anything else with its name and where it was raised."""
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.name}, line {last.lineno} of {last.filename}"
    return f"{type(error).__name__} in {place}: {error}".removesuffix(": ")


def _live(world: World) -> str:
    scene = world.scene
    world.begin()
    scene.clock.run(scene.now + 12.0)
    storm(world)
    while not scene.is_calm:
        scene.clock.run(scene.now + LOOK_SECONDS)
    scene.clock.run(scene.now + MEND_SECONDS)
    until = scene.now + PATIENCE_SECONDS
    good_looks = 0
    while True:
        found = complaints(world)
        good_looks = 0 if found else good_looks + 1
        if good_looks == 2:  # it has mended, and stays so
            return ""
        if scene.now >= until:
            return "; ".join(found)
        scene.clock.run(scene.now + LOOK_SECONDS)
