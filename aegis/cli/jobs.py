"""`aegis jobs` and `aegis job NAME`: list, show, stop, restart, keep off a node."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.checkpoints import advice, weight
from aegis.cli.client import Client, CommandError, Exit, add_options, guarded, part

_EPILOG = """\
examples:
  aegis jobs
  aegis job llama
  aegis jobs restart llama --reason "new data loader"
  aegis jobs exclude-node llama node-7 --reason "slow disk"
  aegis jobs stop llama --dry-run
  aegis jobs stop llama --reason "data set was wrong"
"""

# Where ranks found what they went on from.
TIERS = {
    "memory": "memory",
    "peer": "a peer's memory",
    "disk": "local disk",
    "folder": "checkpoint folder",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """List training jobs; show, stop or restart one, or keep it off a node."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run_list))
    verbs = parser.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="all jobs (without a verb: the same)")
    shown = verbs.add_parser("show", help="one job with its attempts (also: aegis job NAME)")
    stopped = verbs.add_parser("stop", help="end its ranks for good; launchers exit with 0")
    restarted = verbs.add_parser("restart", help="save, and start its ranks anew")
    excluded = verbs.add_parser("exclude-node", help="keep it off a node, moving its ranks away")
    included = verbs.add_parser("include-node", help="let it go there again")
    for verb, run in (
        (listed, run_list),
        (shown, run_show),
        (stopped, run_stop),
        (restarted, run_restart),
        (excluded, run_exclude),
        (included, run_include),
    ):
        add_options(verb, of_verb=True)
        verb.set_defaults(run=guarded(run))
    for verb in (shown, stopped, restarted, excluded, included):
        verb.add_argument("job")
    for verb in (excluded, included):
        verb.add_argument("node")
    for verb in (stopped, restarted, excluded, included):
        verb.add_argument("--reason", default="", help="why; kept in the record")
        verb.add_argument("--dry-run", action="store_true", help="only say what it would do")
    restarted.add_argument("--now", action="store_true", help="without a save: it hangs, say")


def configure_job(parser: argparse.ArgumentParser) -> None:
    """Show one training job: attempts, steps lost, downtime by phase, checkpoints."""
    add_options(parser)
    parser.add_argument("job", metavar="NAME")
    parser.set_defaults(run=guarded(run_show))


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
    job, history = client.get(path), client.get(f"{path}/history")
    if arguments.output == "json":
        show.as_json(job | {"history": history})
        return Exit.OK
    _print(job, history, client.get(f"{path}/checkpoints/interval"))
    _attempts(history)
    _checkpoints(client, job["spec"]["name"])
    return Exit.OK


def _attempts(history: dict[str, Any]) -> None:
    show.table(
        ("GENERATION", "STARTED", "NODES", "RESUMED AT", "FROM", "LAST STEP", "LOST", "DOWN"),
        [
            (
                lap["generation"],
                show.moment(lap["started_at"]),
                ",".join(lap["nodes"]),
                "-" if lap["resumed_step"] is None else lap["resumed_step"],
                " + ".join(TIERS[one] for one in lap["resumed_from"]) or "-",
                lap["last_step"],
                "-" if lap["steps_lost"] is None else lap["steps_lost"],
                _seconds(lap["downtime_seconds"]),
            )
            for lap in history["laps"]
        ],
        "it has had no ranks yet",
    )
    _ends(history["laps"])
    down = [lap for lap in history["laps"] if lap["downtime_seconds"] is not None]
    if down:
        print()
        phases = ("detect", "decide", "stop", "provision", "load", "first_step")
        show.table(
            ("AFTER", *(name.replace("_", " ").upper() for name in phases), "ALL", "INCIDENT"),
            [
                (
                    lap["generation"],
                    *(_seconds(lap["downtime"].get(name)) for name in phases),
                    _seconds(lap["downtime_seconds"]),
                    lap["incident"] or "-",
                )
                for lap in down
            ],
            "",
        )


def _ends(laps: list[dict[str, Any]]) -> None:
    """Why each generation ended, whole: what broke first, and what fell with it."""
    over = [lap for lap in laps if lap["cause"] or lap["ended_at"]]
    for number, lap in enumerate(over):
        if not number:
            print("\nWHY EACH ENDED")
        incident = f" ({lap['incident']})" if lap["incident"] else ""
        said = f"{lap['generation']:>4}  {lap['cause'] or lap['reason']}{incident}"
        print(show.wrapped(said, " " * 6))
        if lap["victims"]:
            print(show.wrapped(f"      victims: {', '.join(lap['victims'])}", " " * 6))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _checkpoints(client: Client, job: str) -> None:
    """The newest ones, where the controller sees their folder."""
    try:
        items = client.get(f"/jobs/{part(job)}/checkpoints")["items"]
    except CommandError as error:
        print(f"\ncheckpoints  {error}")
        return
    if items:
        print()
        rows = [(one["step"], one["state"], *weight(one), one["reason"]) for one in items[:5]]
        show.table(("CHECKPOINT", "STATE", "TAKEN", "SIZE", "WHY"), rows, "")
        more = f"{len(items) - 5} older ones; " if len(items) > 5 else ""
        print(f"({more}`aegis checkpoints {job} verify` reads every byte)")


def run_stop(arguments: argparse.Namespace) -> int:
    """End a job."""
    return _tell(arguments, "stop", {}, "is being stopped")


def run_restart(arguments: argparse.Namespace) -> int:
    """Start its ranks anew."""
    return _tell(arguments, "restart", {"at_once": arguments.now}, "is being restarted")


def run_exclude(arguments: argparse.Namespace) -> int:
    """Keep it off a node."""
    said = f"is kept off {arguments.node}"
    return _tell(arguments, "exclude-node", {"node": arguments.node}, said)


def run_include(arguments: argparse.Namespace) -> int:
    """Let it go there again."""
    said = f"may go to {arguments.node} again"
    return _tell(arguments, "include-node", {"node": arguments.node}, said)


def _tell(arguments: argparse.Namespace, verb: str, body: dict[str, Any], said: str) -> int:
    path = f"/jobs/{part(arguments.job)}:{verb}"
    if arguments.dry_run:
        return _foretell(arguments, {"verb": verb, **body})
    if not arguments.reason:
        raise CommandError(
            f"{verb} needs a --reason", "or --dry-run, to see what it would do", Exit.USAGE
        )
    job = Client.of(arguments).post(path, {"reason": arguments.reason, **body})
    if arguments.output == "json":
        show.as_json(job)
    else:
        print(f"{job['spec']['name']} {said} (state: {job['state']})")
    return Exit.OK


def _foretell(arguments: argparse.Namespace, asked: dict[str, Any]) -> int:
    """What it would do, or why it would be refused; nothing is done."""
    told = Client.of(arguments).get(f"/jobs/{part(arguments.job)}/plan", **asked)
    if arguments.output == "json":
        show.as_json(told)
    elif told["refused"]:
        print(f"refused: {told['refused']}")
    else:
        print("\n".join(f"- {one}" for one in told["hits"]))
    return Exit.CONFLICT if told["refused"] else Exit.OK


def _print(job: dict[str, Any], history: dict[str, Any], interval: dict[str, Any]) -> None:
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
            ("restarts", _restarts(job)),
            ("lost", f"{history['steps_lost']} steps, {history['downtime_seconds']:.1f} s stood"),
            ("kept off", ", ".join(job["excluded"])),
            ("incident", job["incident"]),
        ]
    )
    print()


def _restarts(job: dict[str, Any]) -> str:
    without, most = job["restarts_without_progress"], job["spec"]["restarts_max"]
    return f"{job['restarts']}, {without} of {most} without progress"


def _loss(job: dict[str, Any]) -> str:
    if job["loss_not_finite"]:
        return str(job["loss_not_finite"])
    return "-" if job["loss"] is None else f"{job['loss']:.4f}"
