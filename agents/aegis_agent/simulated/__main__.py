"""Simulated GPUs and network ports from the command line."""

import argparse
import sys
from pathlib import Path

from aegis_agent.simulated import devices, fabric, fabric_commands, network, nvidia
from aegis_agent.simulated.abi import AmdsmiMissingError
from aegis_agent.simulated.commands import add, add_gpu_commands, add_library_commands
from aegis_agent.simulated.library import CompilerError, build

_REFUSALS = (
    AmdsmiMissingError,
    CompilerError,
    OSError,
    devices.NoSuchDeviceError,
    fabric.NoSuchRdmaError,
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

    command = add(commands, "init", "lay out N GPUs, for AEGIS_SIM_AMDSMI=DIR", gpu=False)
    command.add_argument("gpus", type=int, metavar="N", nargs="?", default=8)
    command.set_defaults(run=lambda chosen: devices.init(chosen.folder, chosen.gpus))
    add_gpu_commands(commands)
    add_library_commands(commands)
    nvidia.add_commands(commands)

    fabric_commands.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
