"""`aegis pause` and `aegis resume`: all automation, by one word."""

import argparse

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded


def configure_pause(parser: argparse.ArgumentParser) -> None:
    """Stop all automation: Aegis goes on seeing and telling, and does nothing."""
    _configure(parser, "pause", "what for; everybody sees it")


def configure_resume(parser: argparse.ArgumentParser) -> None:
    """Let Aegis act again, as far as its policy lets it."""
    _configure(parser, "resume", "why now; kept in the record")


def _configure(parser: argparse.ArgumentParser, verb: str, help_text: str) -> None:
    add_options(parser)
    parser.add_argument("--reason", required=True, help=help_text)
    parser.set_defaults(run=guarded(run), verb=verb)


def run(arguments: argparse.Namespace) -> int:
    """Do it, and say how things stand."""
    client = Client.of(arguments)
    automation = client.post(f"/automation:{arguments.verb}", {"reason": arguments.reason})
    if arguments.output == "json":
        show.as_json(automation)
        return Exit.OK
    if automation["paused"]:
        print("all automation is paused; what is under way is finished, nothing new is begun")
        print("next: aegis resume --reason …")
    else:
        policy = client.get("/policy")["policy"]
        print(f"automation goes on: {policy['mode']} for nodes, {policy['job_mode']} for jobs")
    return Exit.OK
