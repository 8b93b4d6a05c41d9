"""Sends through each RDMA port of this node to itself, with perftest's ib_write_bw."""

import asyncio
import contextlib
import shutil
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence

from aegis_agent.probes.validation import bandwidth

_PROGRAM = "ib_write_bw"
_SECONDS = 2
_DEADLINE_SECONDS = 15.0
_START_SECONDS = 0.5


async def measure(devices: Mapping[str, str]) -> dict[str, float | str]:
    """Gb/s by port, or why there is no figure; all ports at once, as training uses them."""
    program = shutil.which(_PROGRAM)
    if program is None:
        return dict.fromkeys(devices, f"{_PROGRAM} of perftest is not installed")
    found = await asyncio.gather(*(_one(program, device) for device in devices.values()))
    return dict(zip(devices, found, strict=True))


async def _one(program: str, device: str) -> float | str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = (program, "-d", device, "-p", str(port), "-D", str(_SECONDS), "-F", "--report_gbits")
    started: list[Process] = []
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            started.append(await _start(words))
            await asyncio.sleep(_START_SECONDS)  # until it listens
            started.append(await _start((*words, "127.0.0.1")))
            output, _ = await started[1].communicate()
    except TimeoutError:
        return f"{_PROGRAM} did not end within {_DEADLINE_SECONDS:.0f} s"
    except OSError as error:
        return f"{_PROGRAM} cannot be run: {error}"
    finally:
        await _end(started)
    text = output.decode(errors="replace")
    speed = bandwidth(text)
    last = text.strip().splitlines()[-1:] or ["nothing"]
    return f"{_PROGRAM} said {last[0][:120]}" if speed is None else speed


async def _start(words: Sequence[str]) -> Process:
    return await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)


async def _end(started: Sequence[Process]) -> None:
    for process in started:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
