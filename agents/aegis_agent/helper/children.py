"""What the helper lets others do for it, each in a process with a deadline."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCAN = "aegis.cli.main"
_RESET = "aegis_agent.sources.gpu_reset"
_DEATH_SECONDS = 5.0
_ERROR_LETTERS_MAX = 200


class ChildError(Exception):
    """It did not answer as it should; the sentence says what it did."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The GPUs of a hive by address, the errors of their links, and who holds them."""

    members: dict[str, list[int] | None]
    holders: list[tuple[int, str]]


def look(node: str, config: Path | None, seconds_max: float) -> dict[str, Any]:
    """`aegis scan`: the agent's own look at this node, taken now. Raises ChildError."""
    flags = ["--config", str(config)] if config is not None and config.exists() else []
    command = [sys.executable, "-m", _SCAN, "scan", "-o", "json", "--node", node, *flags]
    found = _answer(command, "the look at the node", seconds_max)
    if not isinstance(found.get("findings"), list) or not isinstance(found.get("devices"), list):
        raise ChildError("the look at the node gave no findings")
    return found


def domain(address: str, seconds_max: float) -> Domain:
    """What a reset of this GPU would hit. Raises ChildError."""
    command = [sys.executable, "-m", _RESET, "domain", address]
    found = _answer(command, "the question for its hive", seconds_max)
    if "error" in found:
        raise ChildError(found["error"])
    return Domain(found["members"], [(pid, name) for pid, name in found["holders"]])


def reset(address: str, seconds_max: float) -> None:
    """Reset it. Raises ChildError."""
    command = [sys.executable, "-m", _RESET, "reset", address]
    found = _answer(command, "the reset", seconds_max)
    if "error" in found:
        raise ChildError(found["error"])


def run(command: Sequence[str], seconds_max: float) -> None:
    """A command whose exit code says how it went. Raises ChildError."""
    code, _, error = _run(command, f"`{' '.join(command)}`", seconds_max)
    if code != 0:
        raise ChildError(f"`{' '.join(command)}` exited with {code}: {error}")


def _answer(command: Sequence[str], what: str, seconds_max: float) -> dict[str, Any]:
    code, output, error = _run(command, what, seconds_max)
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ChildError(f"{what} gave no answer (exit code {code}): {error or 'nothing was said'}")
    return found


def _run(command: Sequence[str], what: str, seconds_max: float) -> tuple[int, str, str]:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
    except OSError as error:
        raise ChildError(f"{what} cannot be started ({error.strerror})") from error
    try:
        output, error_text = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        process.kill()
        raise ChildError(f"{what} {_ended(process, seconds_max)}") from None
    return process.returncode, output, " ".join(error_text.split())[-_ERROR_LETTERS_MAX:]


def _ended(process: "subprocess.Popen[str]", seconds_max: float) -> str:
    """How a process that was killed took it."""
    try:
        process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return f"hung for {seconds_max:.0f} s and cannot be killed: it is stuck in the kernel"
    return f"hung for {seconds_max:.0f} s and was killed"


def _environment() -> dict[str, str]:
    """Ours, as systemd made it, and nothing that a person's shell may have put there."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
