"""The lines of a launcher, where nobody is at the other end."""

import asyncio

from aegis.model.job import JobSpec, LauncherState
from aegis_agent.launcher.links import Links


def test_an_agent_that_is_not_there_is_told_of(tmp_path, caplog) -> None:
    """A path that is wrong, or not ours to open, would be waited for without a word for ever."""
    state = LauncherState(
        spec=JobSpec(name="j", nodes=1, ranks_per_node=1), launcher="me", address="a"
    )
    links = Links(
        job="j", node="n1", agent_socket=tmp_path / "no.sock", controller=None, token_file=None,
        compose=lambda: state, heed=lambda _: None,
    )  # fmt: skip

    async def until_said():
        running = asyncio.create_task(links.run())
        async with asyncio.timeout(60):
            while not caplog.messages:  # noqa: ASYNC110  a log line sets no event
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_said())
    (said,) = caplog.messages
    assert said == f"no agent answers at {tmp_path}/no.sock (No such file or directory); trying on"
