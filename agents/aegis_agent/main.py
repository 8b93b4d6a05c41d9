"""The command `aegis agent`."""

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aegis.model.node import NodeReport
from aegis.wire import Report, to_jsonable
from aegis_agent import settings as reading
from aegis_agent.bridge import SocketError
from aegis_agent.loop import Agent, look_once
from aegis_agent.settings import Settings, SettingsError
from aegis_agent.sources import host
from aegis_agent.spool import Spool, SpoolBusyError

T = TypeVar("T")

_USAGE = 2
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
_FLAGS = (
    "node", "controller", "token_file", "state_dir", "socket", "sys_root", "fabric", "poll_seconds",
    "kernel_log", "helper_socket",
)  # fmt: skip
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Sense this node's faults and speak for it; one runs on every node."""
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="agent.yaml; flags win over it")
    add("--node", metavar="NAME", help="this node's name (default: the host's)")
    add(
        "--controller",
        type=_flag(reading.parse_controller),
        metavar="URL",
        help=f"default: $AEGIS_CONTROLLER or {reading.CONTROLLER}",
    )
    add("--token-file", type=Path, metavar="FILE", help="this node's token ($AEGIS_TOKEN_FILE)")
    add("--state-dir", type=Path, metavar="DIR", help="where faults wait for the controller")
    add("--socket", type=Path, metavar="PATH", help="where launchers reach the agent")
    add("--sys-root", type=Path, metavar="DIR", help="read links here instead of in /sys")
    add("--kernel-log", type=Path, metavar="PATH", help="read kernel lines here, not /dev/kmsg")
    add("--helper-socket", type=Path, metavar="PATH", help="where the root helper listens")
    add(
        "--fabric",
        type=reading.parse_fabric,
        metavar="IFACE[,IFACE]",
        help="the ports that training needs (default: auto, found by where they sit), or none",
    )
    add(
        "--poll-seconds",
        type=_flag(reading.parse_seconds),
        metavar="SECONDS",
        help="between two looks at a device (default: 1)",
    )
    add(
        "--label",
        type=_flag(reading.parse_label),
        action="append",
        metavar="NAME=VALUE",
        help="rack=r1, switch=s3; may be repeated",
    )
    add("--once", action="store_true", help="look once, print what would be reported, and exit")
    add("-o", "--output", choices=("table", "json"), default="table", help="of --once")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Be this node's agent until SIGTERM, or look once."""
    _log_to_standard_error(logging.WARNING if arguments.once else logging.INFO)
    try:
        settings = _settings(arguments)
    except SettingsError as error:
        return _fail(error, _USAGE)
    if arguments.once:
        report, _ = asyncio.run(look_once(settings))
        print(_as_json(report) if arguments.output == "json" else _as_table(report.report))
        return 0
    _share_one_heap()
    try:
        spool = Spool(settings.state_dir / "spool.sqlite")
    except SpoolBusyError as error:
        return _fail(error, 1)
    try:
        asyncio.run(_run_until_told(settings, spool))
    except SocketError as error:
        return _fail(error, 1)
    finally:
        spool.close()
    return 0


def _share_one_heap() -> None:
    """Let all threads share one heap: one that a thread freed and nobody uses would creep.

    The agent's few threads only wait for files, so one heap is quick enough.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def _settings(arguments: argparse.Namespace) -> Settings:
    flags = {name: getattr(arguments, name) for name in _FLAGS}
    flags["labels"] = dict(arguments.label) if arguments.label else None
    return reading.read(arguments.config, flags, host.hostname())


async def _run_until_told(settings: Settings, spool: Spool) -> None:
    log = logging.getLogger(__name__)
    log.info(
        "The agent is starting.",
        extra={
            "node": settings.node,
            "controller": settings.controller,
            "socket": settings.socket,
            "faults_waiting": len(spool),
        },
    )
    agent = asyncio.create_task(Agent(settings, spool).run())
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    stopping = asyncio.create_task(told.wait())
    await asyncio.wait([agent, stopping], return_when=asyncio.FIRST_COMPLETED)
    if agent.done():
        stopping.cancel()
        await agent  # raises why
        return
    agent.cancel()
    await asyncio.wait([agent])
    log.info("The agent has stopped; launchers and their ranks go on.")


def _fail(error: Exception, code: int) -> int:
    print(f"aegis agent: {error}", file=sys.stderr)
    return code


def _flag(parse: Callable[[Any], T]) -> Callable[[str], T]:
    def parse_flag(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be {error}, not {text!r}") from error

    return parse_flag


# ── what it prints ────────────────────────────────────────────────────────────────────────────


def _as_json(report: Report) -> str:
    return json.dumps(to_jsonable(report), indent=2)


def _as_table(report: NodeReport) -> str:
    rows = [("DEVICE", "KIND", "HEALTH", "COUNTERS", "DETAIL")]
    for device in report.devices:
        counters = " ".join(f"{name}={value}" for name, value in device.counters if value)
        detail = device.detail or device.identity
        rows.append((device.name, device.kind, device.health.value, counters or "-", detail or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]
        )
        for row in rows
    ]
    sources = [f"{kind}: {text}" for kind, text in report.sources]
    simulated = ["simulated hardware"] if report.simulated else []
    return "\n".join([f"node {report.node}", *simulated, *sources, "", *lines])


class _Lines(logging.Formatter):
    """One line: time, level, where, a constant sentence, and fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        words = [at.replace("+00:00", "Z"), record.levelname, record.name, record.getMessage()]
        line = " ".join([*words, *_fields(fields)])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _fields(fields: Mapping[str, Any]) -> list[str]:
    told = []
    for key, value in fields.items():
        text = " ".join(str(value).split())
        told.append(f"{key}={json.dumps(text) if ' ' in text or not text else text}")
    return told


def _log_to_standard_error(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("websockets").setLevel(logging.WARNING)


def main() -> int:
    """`python -m aegis_agent.main`: the same without the command `aegis`."""
    parser = argparse.ArgumentParser(prog="aegis agent", description=configure.__doc__)
    configure(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
