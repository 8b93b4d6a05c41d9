"""One sense that fails leaves the others as they are."""

import asyncio

from aegis_agent.senses.guard import Guard


class Sense:
    """Fails once, and then watches until cancelled."""

    name = "fan"

    def __init__(self):
        self.watching = asyncio.Event()
        self.failed = asyncio.Event()

    def source(self):
        return "fans are read"

    async def watch(self):
        if not self.failed.is_set():
            self.failed.set()
            raise ZeroDivisionError("no fan turns")
        self.watching.set()
        await asyncio.Event().wait()

    async def look(self):
        raise ZeroDivisionError("no fan turns")

    def tick(self, now):
        raise ZeroDivisionError("no fan turns")


def test_a_sense_that_fails_is_run_again():
    """Its source says so meanwhile, in words, and no longer once it runs."""

    async def story():
        sense = Sense()
        guard = Guard(sense)
        task = asyncio.create_task(guard.watch())
        await sense.failed.wait()
        await asyncio.sleep(0)
        assert guard.source() == "failed (ZeroDivisionError: no fan turns); it is tried again"
        await sense.watching.wait()
        assert guard.source() == "fans are read"
        task.cancel()

    asyncio.run(story())


def test_a_look_or_a_tick_that_fails_is_told_and_does_no_harm():
    """Both return; the source tells."""
    guard = Guard(Sense())
    asyncio.run(guard.look())
    assert "no fan turns" in guard.source()
    guard = Guard(Sense())
    guard.tick(1.0)
    assert "no fan turns" in guard.source()
