"""The command `aegis run`."""

import argparse
import asyncio
import logging
import os
import shutil
import sys

from aegis_agent.launcher import environment, folders, options
from aegis_agent.launcher.embedded import controller_for, where_to_look
from aegis_agent.launcher.errors import ConflictError, UnusableError, UsageError
from aegis_agent.launcher.launcher import Launcher
from aegis_agent.launcher.links import DeniedError, HeldError
from aegis_agent.launcher.options import Options, parse_tee

_FAILED, _USAGE, _DENIED, _CONFLICT = 1, 2, 4, 6

_log = logging.getLogger("aegis_agent.launcher")


def configure(parser: argparse.ArgumentParser) -> None:
    """Start a training job on this node, with torchrun's flags; one runs on each of its nodes."""
    parser.epilog = (
        "Without --agent-socket and --controller it runs on this machine alone and brings its own "
        "controller. It exits with the job's exit code; 93: given up, do not queue it again."
    )
    options.add_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Launch this node's part of the job; the job's exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="aegis run: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    try:
        wanted = options.read(arguments)
        parse_tee(wanted.tee, range(wanted.spec.ranks_per_node), 0)
        if arguments.print_only:
            sys.stdout.write(_resolved(wanted))
            return 0
        for flag in wanted.ignored:
            _log.info("%s is ignored: ranks meet at a store that the launcher opens", flag)
        folders.check_checkpoint_folder(wanted.checkpoint_folder)
        spec, alone = wanted.spec, wanted.embeds_controller
        with folders.held(wanted.checkpoint_folder, spec.name, alone=alone):
            return asyncio.run(_launch(wanted))
    except UsageError as error:
        _log.error("%s", error)
        return _USAGE
    except UnusableError as error:
        _log.error("%s", error)
        return _FAILED
    except (ConflictError, HeldError) as error:
        _log.error("%s", error)
        return _CONFLICT
    except DeniedError as error:
        _log.error("%s", error)
        return _DENIED


async def _launch(wanted: Options) -> int:
    logs = folders.make_log_folder(wanted.log_folder, wanted.spec.name)
    pages = folders.make_pages_folder()
    try:
        async with controller_for(wanted, logs) as settled:
            launcher = Launcher(settled, pages, logs)
            _log.info(
                "job %s on node %s (%s); its ranks' output is in %s",
                wanted.spec.name, wanted.node, wanted.address, logs,
            )  # fmt: skip
            if wanted.embeds_controller:
                _log.info("%s", where_to_look(settled, logs))
            return await launcher.run()
    finally:
        shutil.rmtree(pages, ignore_errors=True)


def _resolved(wanted: Options) -> str:
    """What would be run, for people."""
    spec = wanted.spec
    helpers = environment.of_helpers(os.environ, spec.ranks_per_node)
    settled = {
        name: helpers[name] for name in sorted(helpers) if helpers[name] != os.environ.get(name)
    }
    rows = {
        "job": spec.name,
        "ranks": f"{spec.nodes} nodes x {spec.ranks_per_node}, and {spec.spares} spares",
        "command": spec.command,
        "restarts": f"{spec.restarts_max} without progress",
        "checkpoints": spec.checkpoint_folder or "none",
        "node": f"{wanted.node}, ranks reach it at {wanted.address}",
        "agent": str(wanted.agent_socket or "none"),
        "controller": wanted.controller or ("embedded" if wanted.embeds_controller else "none"),
        "environment": " ".join(f"{name}={value}" for name, value in settled.items()) or "as it is",
        "ignored": " ".join(wanted.ignored) or "nothing",
    }
    return "".join(f"{name:12} {value}\n" for name, value in rows.items())
