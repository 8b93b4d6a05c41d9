"""`aegis checkpoints`: what a job can resume from, whether it holds, how often to save."""

import argparse
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, CommandError, Exit, add_options, guarded, part

_EPILOG = """\
The folder is looked at from here where it is there, otherwise by the controller.

examples:
  aegis checkpoints llama
  aegis checkpoints llama verify --step 12000
  aegis checkpoints llama prune --keep 5 --reason "the disk is nearly full"
  aegis checkpoints --folder /shared/llama verify      without a controller

verify ends with 1 where a checkpoint is bad or suspect, with 3 where there is none of that step.
prune never deletes the newest one that holds, nor what is newer.
"""
_VERBS = ("list", "verify", "prune")


def configure(parser: argparse.ArgumentParser) -> None:
    """List a job's checkpoints, verify their bytes, delete old ones, advise how often to save."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.add_argument("words", nargs="*", metavar="JOB [verify|prune]", help="whose, and what")
    parser.add_argument("--folder", type=Path, help="this folder, without asking a controller")
    parser.add_argument("--step", type=int, metavar="N", help="verify: only this one")
    parser.add_argument("--keep", type=int, default=3, metavar="N", help="prune: how many stay")
    parser.add_argument("--reason", default="", help="prune: why; kept in the controller's log")
    parser.set_defaults(run=guarded(run))


def run(arguments: argparse.Namespace) -> int:
    """Look, and print."""
    job, verb = _words(arguments)
    page = _ask(arguments, job, verb)
    if arguments.output == "json":
        show.as_json(page)
    else:
        _print(page, verb, arguments)
    if verb != "verify":
        return Exit.OK
    if arguments.step is not None and not page["items"]:
        return Exit.NOT_FOUND
    bad = any(one["state"] in ("bad", "suspect") for one in page["items"])
    return Exit.FAILURE if bad else Exit.OK


def _words(arguments: argparse.Namespace) -> tuple[str, str]:
    """The job, empty where a folder was named, and the verb."""
    words = list(arguments.words)
    verb = words.pop() if words and words[-1] in _VERBS else "list"
    if arguments.folder is not None and not words:
        return "", verb
    if len(words) != 1 or arguments.folder is not None:
        raise CommandError(
            "say whose checkpoints: a job's name, or a folder with --folder",
            "`aegis checkpoints --help` has examples; `aegis jobs` lists jobs",
            Exit.USAGE,
        )
    if verb == "prune" and not arguments.reason:
        raise CommandError("prune needs a --reason", code=Exit.USAGE)
    return words[0], verb


def _ask(arguments: argparse.Namespace, job: str, verb: str) -> dict[str, Any]:
    if not job:
        items = _look(arguments.folder, verb, arguments)
        return {"job": "", "folder": str(arguments.folder), "interval": None, "items": items}
    client, path = Client.of(arguments), f"/jobs/{part(job)}"
    folder = client.get(path)["spec"]["checkpoint_folder"]
    if not folder:
        raise CommandError(
            f"job {job} was started without a checkpoint folder",
            "start it with `aegis run --checkpoint-folder DIR`",
            Exit.CONFLICT,
        )
    page: dict[str, Any]
    if verb == "list":
        page = client.get(f"{path}/checkpoints")
    elif Path(folder).is_dir() and verb == "verify":
        page = client.get(f"{path}/checkpoints")
        page["items"] = _look(Path(folder), verb, arguments)
    else:
        body = {
            "verify": {"step": arguments.step},
            "prune": {"keep": arguments.keep, "reason": arguments.reason},
        }[verb]
        page = client.post(f"{path}/checkpoints:{verb}", body)
    return page


def _look(folder: Path, verb: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    try:
        from aegis.worker import inspect  # noqa: PLC0415  it needs what training needs
    except ImportError as error:
        raise CommandError(
            f"this needs {error.name}", "pip install 'aegis-supervisor[train]'"
        ) from error
    wanted = argparse.Namespace(verb=verb, folder=folder, step=arguments.step, keep=arguments.keep)
    try:
        return [asdict(one) for one in inspect.look(wanted)]
    except (inspect.UnseenError, OSError) as error:
        raise CommandError(str(error), code=Exit.NOT_FOUND) from error


def _print(page: dict[str, Any], verb: str, arguments: argparse.Namespace) -> None:
    where = page["folder"]
    of_step = "" if arguments.step is None else f" of step {arguments.step}"
    if page["interval"] is not None:
        show.pairs([("job", page["job"]), ("folder", where), *advice(page["interval"])])
        print()
    show.table(
        ("STEP", "STATE", "TAKEN", "SIZE", "FILES", "RANKS", "GENERATION", "LOOP STOOD", "WHY"),
        [_row(one) for one in page["items"]],
        {
            "list": f"there is no checkpoint in {where}",
            "verify": f"there is no checkpoint{of_step} in {where}",
            "prune": "nothing was deleted: only what is older than the newest that holds may go, "
            f"and {arguments.keep} stay",
        }[verb],
    )
    if verb == "prune" and page["items"]:
        print(f"\n{len(page['items'])} deleted")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    if not one["files"]:
        return (one["step"], one["state"], *["-"] * 6, one["reason"])
    return (
        one["step"],
        one["state"],
        *weight(one),
        one["files"],
        one["world_size"],
        one["generation"],
        f"{1000 * one['stall_seconds']:.0f} ms" if one["stall_seconds"] else "-",
        one["reason"],
    )


def weight(one: dict[str, Any]) -> tuple[str, str]:
    """When it was taken and how large it is, where that is known."""
    if not one["files"]:
        return ("-", "-")
    return (f"{show.ago(one['taken_at'] or one['at'])} ago", size(one["bytes"]))


def advice(interval: dict[str, Any]) -> Iterable[tuple[str, object]]:
    """How often to save, and from what that follows; also for `aegis job`."""
    if interval["now_seconds"]:
        yield "saves now", f"every {_duration(interval['now_seconds'])}"
    if interval["advised_seconds"] is None:
        yield "save every", f"not known yet: {interval['reason']}"
        return
    steps = f", {interval['advised_steps']} steps" if interval["advised_steps"] else ""
    bound = "at most " if interval["is_bound"] else ""
    yield "save every", f"{_duration(interval['advised_seconds'])}{steps} (Young-Daly)"
    yield (
        "because",
        f"a save keeps the loop waiting {1000 * interval['stall_seconds']:.0f} ms, is complete "
        f"after {interval['durable_seconds']:.1f} s, and the job fails {bound}every "
        f"{_duration(interval['failure_seconds'])}"
        + (f"; {interval['reason']}" if interval["reason"] else ""),
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else show.ago(time.time() - seconds)


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
