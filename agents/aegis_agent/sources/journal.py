"""The kernel's lines from the journal, for an agent that may not read /dev/kmsg."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

_CURSOR = re.compile(r'"__CURSOR" ?: ?"([^"\\]{1,512})"')
_CHUNK_BYTES, _LINE_BYTES_MAX = 1 << 16, 1 << 20
_LOOK_SECONDS_MAX = 10.0
_END_SECONDS_MAX = 2.0


class JournalError(Exception):
    """Why the journal gives nothing, in the words of journalctl."""


async def read(program: str, lines_max: int) -> list[str]:
    """The newest entries of this boot, as JSON; at least one. Raises JournalError."""
    command = (program, "--dmesg", f"--lines={lines_max}", "--output=json", "--no-pager")
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise JournalError(f"{program} cannot be run ({error.strerror})") from error
    try:
        async with asyncio.timeout(_LOOK_SECONDS_MAX):
            told, trouble = await child.communicate()
    except TimeoutError as error:
        raise JournalError(f"{program} does not answer") from error
    finally:
        await _end(child)
    entries = _lines(told.splitlines())
    if not entries:
        why = " ".join(trouble.decode("utf-8", "replace").split())
        raise JournalError(why or f"{program} shows no kernel lines of this boot")
    return entries


async def follow(program: str, cursor: str) -> AsyncIterator[list[str]]:
    """Entries as JSON, some at a time, from the cursor or from the boot on, until it ends."""
    command = [program, "--dmesg", "--follow", "--no-tail", "--output=json", "--quiet"]
    if cursor:
        command.append(f"--after-cursor={cursor}")
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        rest = b""
        while child.stdout and (chunk := await child.stdout.read(_CHUNK_BYTES)):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest if len(rest) <= _LINE_BYTES_MAX else b""
            if entries := _lines(lines):
                yield entries
    finally:
        await _end(child)


def cursor_of(entry: str) -> str:
    """Where to go on after this entry."""
    found = _CURSOR.search(entry)
    return found[1] if found else ""


def _lines(lines: list[bytes]) -> list[str]:
    return [line.decode("utf-8", "replace") for line in lines if line.startswith(b"{")]


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS_MAX):
            await child.wait()
