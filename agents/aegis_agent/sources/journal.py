"""The kernel's lines from the journal, for an agent that may not read /dev/kmsg."""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncGenerator

from aegis_agent.sources.kmsg import readable

_CURSOR = re.compile(r'"__CURSOR" ?: ?"([^"\\]{1,512})"')
_CHUNK_BYTES, _LINE_BYTES_MAX = 1 << 16, 1 << 20
_LOOK_SECONDS_MAX = 10.0
_END_SECONDS_MAX = 2.0


class JournalError(Exception):
    """Why the journal gives nothing, in the words of journalctl."""


async def read(program: str, lines_max: int) -> list[str]:
    """The newest entries of this boot, as JSON; at least one. Raises JournalError."""
    return await asyncio.to_thread(_read, program, lines_max)


def _read(program: str, lines_max: int) -> list[str]:
    command = (program, "--dmesg", f"--lines={lines_max}", "--output=json", "--no-pager")
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_LOOK_SECONDS_MAX)
    except OSError as error:
        raise JournalError(f"{program} cannot be run ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise JournalError(f"{program} does not answer") from error
    entries = _lines(done.stdout.splitlines())
    if not entries:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise JournalError(why or f"{program} shows no kernel lines of this boot")
    return entries


async def follow(program: str, cursor: str) -> AsyncGenerator[list[str]]:
    """Entries as JSON, some at a time, from the cursor or from the boot on, until it ends."""
    command = [program, "--dmesg", "--follow", "--no-tail", "--output=json", "--quiet"]
    if cursor:
        command.append(f"--after-cursor={cursor}")
    # A few milliseconds, once: the agent has a moment.
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    assert child.stdout is not None  # noqa: S101  it is a pipe
    descriptor = child.stdout.fileno()
    os.set_blocking(descriptor, False)
    try:
        rest = b""
        while chunk := await _chunk(descriptor):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest if len(rest) <= _LINE_BYTES_MAX else b""
            if entries := _lines(lines):
                yield entries
    finally:
        child.stdout.close()
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_END_SECONDS_MAX)


async def _chunk(descriptor: int) -> bytes:
    while True:
        await readable(descriptor)
        with contextlib.suppress(BlockingIOError):
            return os.read(descriptor, _CHUNK_BYTES)


def cursor_of(entry: str) -> str:
    """Where to go on after this entry."""
    found = _CURSOR.search(entry)
    return found[1] if found else ""


def _lines(lines: list[bytes]) -> list[str]:
    return [line.decode("utf-8", "replace") for line in lines if line.startswith(b"{")]
