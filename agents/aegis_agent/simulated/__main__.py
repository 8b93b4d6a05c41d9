"""Simulated GPUs and network ports from the command line."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from aegis_agent.simulated import devices, network
from aegis_agent.simulated.abi import AmdsmiMissingError
from aegis_agent.simulated.library import CompilerError, build

_NET: dict[str, Callable[[Path, str], None]] = {
    "init": network.init,
    "down": network.down,
    "up": network.up,
    "flap": network.flap,
    "remove": network.remove,
}
_REFUSALS = (
    AmdsmiMissingError,
    CompilerError,
    OSError,
    devices.NoSuchDeviceError,
    network.NoSuchPortError,
)


def main() -> int:
    """Carry out one command; 1 with one sentence when it cannot be done."""
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except _REFUSALS as error:
        sys.stderr.write(f"aegis_agent.simulated: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.simulated", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("build", help="build OUT/lib/libamd_smi.so, for ROCM_PATH=OUT")
    command.add_argument("out", type=Path, metavar="OUT")
    command.set_defaults(run=lambda chosen: build(chosen.out))

    command = _in_folder(commands, "init", "lay out N GPUs, for AEGIS_SIM_AMDSMI=DIR")
    command.add_argument("gpus", type=int, metavar="N", nargs="?", default=8)
    command.set_defaults(run=lambda chosen: devices.init(chosen.folder, chosen.gpus))
    _add_gpu_commands(commands)

    command = _in_folder(commands, "fault", "make a library function misbehave")
    command.add_argument("function", metavar="FUNC", help="amdsmi_get_gpu_ecc_count, or *")
    command.add_argument("gpu", metavar="GPU", help="its number, -1 for calls without one, or *")
    command.add_argument("action", metavar="ACTION", help="status=N, delay_ms=N, hang or crash")
    command.set_defaults(
        run=lambda chosen: devices.add_fault(
            chosen.folder, chosen.function, chosen.gpu, chosen.action
        )
    )
    command = _in_folder(commands, "clear", "all functions behave again")
    command.set_defaults(run=lambda chosen: devices.clear_faults(chosen.folder))

    command = _in_folder(commands, "driver", "load (1) or unload (0) the kernel driver")
    command.add_argument("loaded", type=int, choices=(0, 1))
    command.set_defaults(
        run=lambda chosen: devices.set_driver(chosen.folder, loaded=bool(chosen.loaded))
    )

    command = commands.add_parser("net", help="a network port's sysfs tree, for --sys-root DIR")
    command.add_argument("verb", choices=_NET)
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument("interface", metavar="IFACE")
    command.set_defaults(run=lambda chosen: _NET[chosen.verb](chosen.folder, chosen.interface))
    return parser


def _add_gpu_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _in_folder(commands, "ecc", "set a block's error counts", gpu=True)
    command.add_argument("block", metavar="BLOCK", help="umc, gfx, sdma, xgmi_wafl, …")
    for name in ("correctable", "uncorrectable", "deferred"):
        command.add_argument(name, type=int)
    command.set_defaults(
        run=lambda chosen: devices.set_counts(
            chosen.folder,
            chosen.gpu,
            chosen.block,
            (chosen.correctable, chosen.uncorrectable, chosen.deferred),
        )
    )
    command = _in_folder(commands, "page", "retire a memory page", gpu=True)
    command.add_argument("address", type=lambda text: int(text, 0), metavar="ADDRESS")
    command.set_defaults(
        run=lambda chosen: devices.add_bad_page(chosen.folder, chosen.gpu, chosen.address)
    )
    command = _in_folder(commands, "metric", "set a sensor's value", gpu=True)
    command.add_argument("name", metavar="NAME")
    command.add_argument("value", type=float, metavar="VALUE")
    command.set_defaults(
        run=lambda chosen: devices.set_metric(chosen.folder, chosen.gpu, chosen.name, chosen.value)
    )
    command = _in_folder(
        commands, "lost", "let a GPU fall off the bus (1), or return (0)", gpu=True
    )
    command.add_argument("lost", type=int, choices=(0, 1))
    command.set_defaults(
        run=lambda chosen: devices.set_lost(chosen.folder, chosen.gpu, lost=bool(chosen.lost))
    )


def _in_folder(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    *,
    gpu: bool = False,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("folder", type=Path, metavar="DIR")
    if gpu:
        command.add_argument("gpu", type=int, metavar="GPU")
    return command


if __name__ == "__main__":
    sys.exit(main())
