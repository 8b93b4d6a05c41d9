"""A controller for a launcher that has none: one machine, one job, the same recovery.

It runs as a child and ends with the launcher. Its data is kept beside the ranks' output; the
launcher speaks to it as to any other controller, with a node token of its own.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx

from aegis_agent.launcher.errors import UnusableError
from aegis_agent.launcher.options import Options

_READY_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_RESTART_SECONDS = 0.5
_END_SECONDS = 5.0
_DATA, _ADMIN = "controller", "admin.token"


@contextlib.asynccontextmanager
async def controller_for(options: Options, logs: Path) -> AsyncIterator[Options]:
    """The options with a controller in them: the user's, or one that lives as long as this does."""
    if not options.embeds_controller:
        yield options
        return
    embedded = _Embedded(logs)
    keeping = asyncio.create_task(embedded.keep())
    try:
        token = await embedded.admit(options.node)
        yield replace(options, controller=embedded.url, token_file=token)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await embedded.close()


def where_to_look(settled: Options, logs: Path) -> str:
    """How people ask this controller of the job, and of the incidents that are told of."""
    return (
        "look at it meanwhile, in a browser or another shell:\n"
        f"    export AEGIS_CONTROLLER={settled.controller} "
        f"AEGIS_TOKEN_FILE={logs / _DATA / _ADMIN}\n"
        f"    aegis job {settled.spec.name}"
    )


class _Embedded:
    def __init__(self, logs: Path) -> None:
        self._data = logs / _DATA
        self._log = logs / "controller.log"
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def keep(self) -> None:
        """Run it, and run it again over the same data should it die."""
        command = [
            sys.executable, "-m", "aegis_agent.launcher.tether", str(os.getpid()),
            sys.executable, "-m", "aegis.cli.main", "controller",
            "--data", str(self._data), "--listen", f"127.0.0.1:{self._port}",
        ]  # fmt: skip
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            await self._process.wait()
            await asyncio.sleep(_RESTART_SECONDS)

    async def admit(self, node: str) -> Path:
        """Wait until it is ready, and have it mint this node's token; the file it is in."""
        token = self._data / "node.token"
        try:
            async with (
                asyncio.timeout(_READY_SECONDS),
                httpx.AsyncClient(trust_env=False) as client,
            ):
                await self._ready(client)
                admin = (self._data / _ADMIN).read_text().strip()
                answer = await client.post(
                    f"{self.url}/api/v1/tokens",
                    json={"role": "node", "node": node},
                    headers={"Authorization": f"Bearer {admin}"},
                )
                answer.raise_for_status()
                token.touch(mode=0o600)
                token.write_text(answer.json()["token"])
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise UnusableError(f"the embedded controller gave no token: {error}") from error
        return token

    async def _ready(self, client: httpx.AsyncClient) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"{self.url}/readyz")).is_success:
                    return
            if self._process is not None and self._process.returncode is not None:
                tail = self._log.read_text(errors="replace").strip().splitlines()[-1:]
                raise UnusableError(
                    f"the embedded controller does not start ({''.join(tail) or 'no reason'}); "
                    "it needs pip install 'aegis-supervisor[controller]'"
                )
            await asyncio.sleep(_PAUSE_SECONDS)

    async def close(self) -> None:
        """End it, by force if it does not end by itself."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
