"""The simulator's commands that change a GPU, or the library that reads it."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from aegis_agent.simulated import cper, devices

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def add_gpu_commands(commands: Commands) -> None:
    """What happens to one GPU."""
    _add_error_commands(commands)
    _add_sensor_commands(commands)
    _add_cper_command(commands)
    command = add(commands, "process", "let a process hold a GPU; without NAME it lets go")
    command.add_argument("pid", type=int, metavar="PID")
    command.add_argument("name", metavar="NAME", nargs="?")
    command.add_argument("megabytes", type=int, metavar="MB", nargs="?", default=0)
    _do(command, lambda c: devices.set_process(c.folder, c.gpu, c.pid, c.name, c.megabytes))

    command = add(commands, "event", "push an event to those who listen")
    command.add_argument("name", metavar="NAME", help="VMFAULT, THERMAL_THROTTLE, GPU_PRE_RESET, …")
    command.add_argument("message", metavar="MESSAGE", nargs="?", default="")
    _do(command, lambda c: devices.push_event(c.folder, c.gpu, c.name, c.message))

    command = add(commands, "hive", "set the GPUs with which it is linked, and reset")
    command.add_argument("hive", type=int, metavar="HIVE", help="its number; 0: none")
    _do(command, lambda c: devices.set_hive(c.folder, c.gpu, c.hive))

    command = add(commands, "stubborn", "let a reset leave its error counts (1), or clear them (0)")
    command.add_argument("stubborn", type=int, choices=(0, 1))
    _do(command, lambda c: devices.set_stubborn(c.folder, c.gpu, stubborn=bool(c.stubborn)))

    command = add(commands, "lost", "let a GPU fall off the bus (1), or return (0)")
    command.add_argument("lost", type=int, choices=(0, 1))
    _do(command, lambda c: devices.set_lost(c.folder, c.gpu, lost=bool(c.lost)))


def _add_error_commands(commands: Commands) -> None:
    command = add(commands, "ecc", "set a block's error counts")
    command.add_argument("block", metavar="BLOCK", help="umc, gfx, sdma, xgmi_wafl, …")
    for name in ("correctable", "uncorrectable", "deferred"):
        command.add_argument(name, type=int)
    _do(
        command,
        lambda c: devices.set_counts(
            c.folder, c.gpu, c.block, (c.correctable, c.uncorrectable, c.deferred)
        ),
    )
    command = add(commands, "hide", "a block's own count answers NOT_SUPPORTED from now on")
    command.add_argument("block", metavar="BLOCK")
    _do(command, lambda c: devices.hide_block(c.folder, c.gpu, c.block))

    command = add(commands, "page", "retire a memory page")
    command.add_argument("address", type=lambda text: int(text, 0), metavar="ADDRESS")
    _do(command, lambda c: devices.add_bad_page(c.folder, c.gpu, c.address))


def _add_cper_command(commands: Commands) -> None:
    command = add(commands, "cper", "write an error record (CPER) into a GPU's ring")
    command.add_argument("kind", choices=(*cper.KINDS, cper.GARBAGE))
    command.add_argument("--age", type=float, default=0.0, metavar="SECONDS", help="how old it is")
    command.add_argument(
        "--afids",
        type=lambda text: [] if text == "none" else [int(word) for word in text.split(",")],
        metavar="N,N|none",
        help="what the library says it decodes to, true or not (default: what it is)",
    )
    _do(
        command,
        lambda c: cper.inject(c.folder, c.gpu, c.kind, age_seconds=c.age, afids=c.afids),
    )


def _add_sensor_commands(commands: Commands) -> None:
    command = add(commands, "pcie", "set the PCIe link's width, speed (MT/s) or a counter")
    command.add_argument("field", choices=devices.PCIE)
    command.add_argument("value", type=int, metavar="VALUE")
    _do(command, lambda c: devices.set_metric(c.folder, c.gpu, devices.PCIE[c.field], str(c.value)))
    command = add(commands, "temp", "set a temperature or its critical limit, in °C")
    command.add_argument("sensor", choices=devices.TEMPERATURES)
    command.add_argument("celsius", type=int, metavar="CELSIUS")
    _do(
        command,
        lambda c: devices.set_metric(
            c.folder, c.gpu, devices.TEMPERATURES[c.sensor], str(c.celsius)
        ),
    )
    command = add(commands, "throttle", "be throttled for that part of the time from now on")
    command.add_argument("kind", choices=devices.THROTTLES)
    command.add_argument("percent", type=float, metavar="PERCENT")
    _do(command, lambda c: devices.set_throttle(c.folder, c.gpu, c.kind, c.percent))

    command = add(commands, "link", "change the state of an XGMI link")
    command.add_argument("link", type=int, metavar="LINK", help="its number")
    command.add_argument("state", choices=devices.LINK_STATES)
    _do(command, lambda c: devices.set_xgmi_link(c.folder, c.gpu, c.link, c.state))

    command = add(commands, "metric", "set any sensor's value by its name in the metrics file")
    command.add_argument(
        "name", metavar="NAME", help="power_w, vram_used_mb, bad_page_threshold, …"
    )
    command.add_argument("value", type=float, metavar="VALUE")
    _do(command, lambda c: devices.set_metric(c.folder, c.gpu, c.name, c.value))

    command = add(commands, "sentinel", "let a sensor answer all ones: the library's “no value”")
    command.add_argument("name", metavar="NAME", help="pcie_width, temp_mem_c, throttle_socket, …")
    command.add_argument("bits", type=int, choices=(8, 16, 32, 64))
    _do(command, lambda c: devices.set_not_available(c.folder, c.gpu, c.name, c.bits))


def add_library_commands(commands: Commands) -> None:
    """What happens to the library, its functions and the driver."""
    command = add(commands, "fault", "make a library function misbehave", gpu=False)
    command.add_argument("function", metavar="FUNC", help="amdsmi_get_gpu_ecc_count, or *")
    command.add_argument("gpu", metavar="GPU", help="its number, -1 for calls without one, or *")
    command.add_argument("action", metavar="ACTION", help="status=N, delay_ms=N, hang or crash")
    _do(command, lambda c: devices.add_fault(c.folder, c.function, c.gpu, c.action))

    command = add(commands, "clear", "all functions behave again", gpu=False)
    _do(command, lambda c: devices.clear_faults(c.folder))

    command = add(commands, "driver", "load (1) or unload (0) the kernel driver", gpu=False)
    command.add_argument("loaded", type=int, choices=(0, 1))
    _do(command, lambda c: devices.set_driver(c.folder, loaded=bool(c.loaded)))

    command = add(commands, "reload", "load the driver anew: all error counts fall to 0", gpu=False)
    _do(command, lambda c: devices.reload_driver(c.folder))

    command = add(commands, "version", "let the library claim another version", gpu=False)
    command.add_argument("version", metavar="VERSION", help="such as 27.1.0")
    _do(command, lambda c: devices.claim_version(c.folder, c.version))

    command = add(commands, "order", "the order in which the next start lists the GPUs", gpu=False)
    command.add_argument("gpus", type=int, metavar="GPU", nargs="+")
    _do(command, lambda c: devices.set_order(c.folder, c.gpus))


def add(commands: Commands, name: str, text: str, *, gpu: bool = True) -> argparse.ArgumentParser:
    """A command that works on a folder, and mostly on one GPU in it."""
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("folder", type=Path, metavar="DIR")
    if gpu:
        command.add_argument("gpu", type=int, metavar="GPU")
    return command


def _do(command: argparse.ArgumentParser, act: Callable[[Any], None]) -> None:
    command.set_defaults(run=act)
