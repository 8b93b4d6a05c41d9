"""`aegis jobs`: list, show, stop."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.checkpoints import advice
from aegis.cli.client import Client, Exit, add_options, guarded, part

_EPILOG = """\
examples:
  aegis jobs
  aegis jobs show llama
  aegis jobs stop llama --reason "data set was wrong"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """List training jobs, show one with its attempts, stop one for good."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run_list))
    verbs = parser.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="all jobs (without a verb: the same)")
    shown = verbs.add_parser("show", help="one job with its attempts")
    stopped = verbs.add_parser("stop", help="end its ranks for good; launchers exit with 0")
    for verb, run in ((listed, run_list), (shown, run_show), (stopped, run_stop)):
        add_options(verb, of_verb=True)
        verb.set_defaults(run=guarded(run))
    shown.add_argument("job")
    stopped.add_argument("job")
    stopped.add_argument("--reason", required=True, help="why; kept in the record")


def run_list(arguments: argparse.Namespace) -> int:
    """All jobs."""
    jobs = list(Client.of(arguments).items("/jobs"))
    if arguments.output == "json":
        show.as_json(jobs)
        return Exit.OK
    show.table(
        ("JOB", "STATE", "FOR", "STEP", "LOSS", "NODES", "RESTARTS", "REASON"),
        [
            (
                job["spec"]["name"],
                job["state"],
                show.ago(job["since"]),
                job["step"],
                _loss(job),
                ",".join(member["node"] for member in job["members"]),
                job["restarts"],
                show.shortened(job["reason"], 60),
            )
            for job in jobs
        ],
        "no job has registered yet: start one with `aegis run` on each of its nodes",
    )
    return Exit.OK


def run_show(arguments: argparse.Namespace) -> int:
    """One job."""
    client, path = Client.of(arguments), f"/jobs/{part(arguments.job)}"
    job = client.get(path)
    if arguments.output == "json":
        show.as_json(job)
        return Exit.OK
    _print(job, client.get(f"{path}/checkpoints/interval"))
    show.table(
        ("GENERATION", "STARTED", "NODES", "RESUMED AT", "LAST STEP", "ENDED BECAUSE", "INCIDENT"),
        [
            (
                attempt["generation"],
                show.moment(attempt["started_at"]),
                ",".join(attempt["nodes"]),
                "-" if attempt["resumed_step"] is None else attempt["resumed_step"],
                attempt["last_step"] if attempt["ended_at"] else job["step"],
                show.shortened(attempt["reason"], 50) if attempt["ended_at"] else "(goes on)",
                attempt["incident"] or "-",
            )
            for attempt in job["attempts"]
        ],
        "it has had no ranks yet",
    )
    return Exit.OK


def run_stop(arguments: argparse.Namespace) -> int:
    """End a job."""
    path = f"/jobs/{part(arguments.job)}:stop"
    job = Client.of(arguments).post(path, {"reason": arguments.reason})
    if arguments.output == "json":
        show.as_json(job)
    else:
        print(f"{job['spec']['name']} is being stopped (state: {job['state']})")
    return Exit.OK


def _print(job: dict[str, Any], interval: dict[str, Any]) -> None:
    spec = job["spec"]
    checkpoint = f"step {job['checkpoint_step']}, {show.ago(job['checkpoint_at'])} ago"
    show.pairs(
        [
            ("job", spec["name"] + (f" of {spec['owner']}" if spec["owner"] else "")),
            ("state", f"{job['state']} for {show.ago(job['since'])}"),
            ("reason", job["reason"]),
            ("asks for", f"nodes {spec['nodes']}, ranks on each {spec['ranks_per_node']}"),
            ("step", f"{job['step']}, loss {_loss(job)}"),
            ("checkpoint", checkpoint if job["checkpoint_at"] else "none yet"),
            *advice(interval),
            ("restarts", job["restarts"]),
            ("incident", job["incident"]),
        ]
    )
    print()


def _loss(job: dict[str, Any]) -> str:
    return "-" if job["loss"] is None else f"{job['loss']:.4f}"
