"""The agent's settings: from agent.yaml, from the command line, which wins, or a default."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aegis_agent.probes import check_entry
from aegis_agent.probes.check_entry import Check, CheckEntryError
from aegis_agent.probes.validation import GATE_UNITS

CONTROLLER = "http://127.0.0.1:8500"
HELPER_SOCKET = Path("/run/aegis-helper.sock")


class SettingsError(Exception):
    """A setting that cannot be used; the sentence says which and how to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the agent was told."""

    node: str
    controller: str
    token_file: Path | None
    state_dir: Path
    socket: Path
    sys_root: Path
    fabric: tuple[str, ...]  # interfaces or RDMA devices; empty or "auto": found out; or "none"
    poll_seconds: float
    labels: tuple[tuple[str, str], ...]
    proc_root: Path = Path("/proc")
    disk_paths: tuple[Path, ...] = (Path("/"),)  # beside the state folder, which is always watched
    disk_full_percent: float = 95.0
    clock_skew_seconds: float = 1.0  # allowed between this node's clock and the controller's
    checks: tuple[Check, ...] = ()  # the site's own
    kernel_log: Path | None = Path("/dev/kmsg")  # None: not read
    helper_socket: Path = HELPER_SOCKET  # of the root helper, where it is installed
    gpu_events: bool = False  # amdsmi's pushed events as well: the listener holds /dev/kfd
    validation_python: str = ""  # the interpreter that has torch and aegis; empty: the agent's own
    validation_user: str = ""  # as whom nodes are tried; only where the agent is root
    gates: tuple[tuple[str, float], ...] = ()  # what must be reached: ("allreduce_gbps", 310)
    nvidia_events: bool = False  # Xid from NVML as well: where the kernel log cannot be read


def read(path: Path | None, flags: Mapping[str, Any], hostname: str) -> Settings:
    """Put the settings together. Flags that were not given are None."""
    chosen = _read_file(path) if path is not None else {}
    chosen |= {name: value for name, value in flags.items() if value is not None}
    state_dir = chosen.get("state_dir") or _default_state_dir()
    return Settings(
        node=chosen.get("node") or hostname,
        controller=chosen.get("controller") or os.environ.get("AEGIS_CONTROLLER") or CONTROLLER,
        token_file=chosen.get("token_file") or _environment_path("AEGIS_TOKEN_FILE"),
        state_dir=state_dir,
        socket=chosen.get("socket") or _default_socket(state_dir),
        sys_root=chosen.get("sys_root") or Path("/sys"),
        fabric=tuple(chosen.get("fabric") or ()),
        poll_seconds=chosen.get("poll_seconds") or 1.0,
        labels=tuple(sorted((chosen.get("labels") or {}).items())),
        proc_root=chosen.get("proc_root") or Path("/proc"),
        disk_paths=tuple(chosen.get("disk_paths", [Path("/")])),
        disk_full_percent=chosen.get("disk_full_percent") or 95.0,
        clock_skew_seconds=chosen.get("clock_skew_seconds") or 1.0,
        checks=_all_checks(chosen.get("checks", []), path),
        kernel_log=chosen.get("kernel_log") or _default_kernel_log(chosen),
        helper_socket=chosen.get("helper_socket") or HELPER_SOCKET,
        gpu_events=bool(chosen.get("gpu_events")),
        nvidia_events=bool(chosen.get("nvidia_events")),
        **chosen.get("validation", {}),
    )


def parse_fabric(text: str) -> list[str]:
    """The interfaces in "fab0,fab1". The words auto and none stand for themselves."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_seconds(value: object) -> float:
    """A poll interval. Raises ValueError."""
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise ValueError("between 0.05 and 3600 seconds")
    return seconds


def parse_controller(value: object) -> str:
    """The controller's address. Raises ValueError."""
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ValueError('an address such as "http://controller:8500"')
    return value


def parse_label(text: str) -> tuple[str, str]:
    """One "rack=r1". Raises ValueError."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError('of the form "rack=r1"')
    return name, value


def _read_file(path: Path) -> dict[str, Any]:
    content = _read_yaml(path) or {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must hold keys and values such as `node: n1`")
    settings = {}
    for key, value in content.items():
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise SettingsError(f"{path}: unknown key {key!r}; the keys are {known}")
        try:
            settings[key] = _KEYS[key](value)
        except CheckEntryError as error:
            raise SettingsError(f"{path}: {error}") from error
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{path}: {key} must be {error}, not {value!r}") from error
    return settings


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise SettingsError(f"{path} is not YAML: {told}") from error


def _all_checks(checks: list[Check], path: Path | None) -> tuple[Check, ...]:
    """Those of agent.yaml, and those of checks.d beside it: a check or a list of them each."""
    found = list(checks)
    for file in sorted((path.parent / "checks.d").glob("*.yaml")) if path else []:
        content = _read_yaml(file)
        try:
            if isinstance(content, list):
                found += check_entry.parse_all(content, "the list")
            else:
                found.append(check_entry.parse(content, "the check"))
        except CheckEntryError as error:
            raise SettingsError(f"{file}: {error}") from error
    try:
        check_entry.refuse_twins(found)
    except CheckEntryError as error:
        raise SettingsError(f"{path}: {error}") from error
    return tuple(found)


def _checks(value: object) -> list[Check]:
    return check_entry.parse_all(value, "checks")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a word")
    return value


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("a path")
    return Path(value)


def _paths(value: object) -> list[Path]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ValueError("a list of folders such as [/, /shared/checkpoints]")
    return [Path(one) for one in value]


def _number(value: object, least: float, most: float, words: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(words)
    return float(value)


def _percent(value: object) -> float:
    return _number(value, 50, 100, "between 50 and 100 percent")


def _skew(value: object) -> float:
    return _number(value, 0.05, 3600, "between 0.05 and 3600 seconds")


def _interfaces(value: object) -> list[str]:
    if isinstance(value, str):
        return parse_fabric(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("a list of network interfaces such as [fab0, fab1], or auto or none")
    return value or ["none"]


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false")
    return value


def _validation(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) - {"python", "user", "gates"}:
        raise ValueError("keys of python, user and gates")
    found: dict[str, Any] = {}
    for key in ("python", "user"):
        if key in value:
            found[f"validation_{key}"] = _text(value[key])
    gates = value.get("gates", {})
    if not isinstance(gates, dict) or set(gates) - set(GATE_UNITS):
        raise ValueError(f"gates of {', '.join(GATE_UNITS)}")
    found["gates"] = tuple(
        (name, _number(gate, 0, 1e6, "numbers above 0")) for name, gate in sorted(gates.items())
    )
    return found


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError("keys and values such as {rack: r1}")
    return {str(name): str(label) for name, label in value.items()}


_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "node": _text,
    "controller": parse_controller,
    "token_file": _path,
    "state_dir": _path,
    "socket": _path,
    "sys_root": _path,
    "fabric": _interfaces,
    "poll_seconds": parse_seconds,
    "labels": _labels,
    "proc_root": _path,
    "disk_paths": _paths,
    "disk_full_percent": _percent,
    "clock_skew_seconds": _skew,
    "checks": _checks,
    "kernel_log": _path,
    "helper_socket": _path,
    "gpu_events": _yes_or_no,
    "nvidia_events": _yes_or_no,
    "validation": _validation,
}


def _default_kernel_log(chosen: Mapping[str, Any]) -> Path | None:
    """The log of this machine says nothing about devices that are simulated."""
    simulated = chosen.get("sys_root") or os.environ.get("AEGIS_SIM_AMDSMI")
    simulated = simulated or os.environ.get("AEGIS_SIM_NVML")
    return None if simulated else Path("/dev/kmsg")


def _environment_path(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def _default_state_dir() -> Path:
    """What systemd gives, the system's place for root, or the user's."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":", 1)[0])
    if os.geteuid() == 0:
        return Path("/var/lib/aegis-agent")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "aegis-agent"


def _default_socket(state_dir: Path) -> Path:
    if given := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":", 1)[0]) / "agent.sock"
    return Path("/run/aegis/agent.sock") if os.geteuid() == 0 else state_dir / "agent.sock"
