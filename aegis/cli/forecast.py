"""`aegis forecast`: spares needed, time well used, what helped, and lemons."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded

_EPILOG = """\
Every figure is made from what this controller has measured; what is not known is not made up.

examples:
  aegis forecast
  aegis forecast -o json | jq .spares.needed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell how many spares are needed, how well jobs use their time, what helped, and lemons."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run))


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    forecast = Client.of(arguments).get("/forecast")
    if arguments.output == "json":
        show.as_json(forecast)
        return Exit.OK
    show.pairs(_spares(forecast["spares"]))
    print()
    show.table(
        ("JOB", "TIME WELL USED", "OF", "EXPECTED", "BECAUSE"),
        [(name, *_ettr(job)) for name, job in forecast["jobs"].items()],
        "no job is under way",
    )
    print()
    show.table(
        ("CLASS", "REMEDY", "USED", "HELPED"),
        [
            (one["fault_class"], one["remedy"], one["times"], one["helped"])
            for one in forecast["lessons"]
        ],
        "no remedy has been used yet",
    )
    if forecast["lemons"]:
        print("\nlemons: " + ", ".join(_lemon(one) for one in forecast["lemons"]))
    return Exit.OK


def _spares(spares: dict[str, Any]) -> list[tuple[str, object]]:
    rate = spares["rate"]
    if spares["needed"] is None:
        return [("spares", f"{spares['available']} stand by; nothing was observed long enough yet")]
    assumed = "assumed" if spares["is_repair_assumed"] else "measured"
    bound = "at most " if rate["is_bound"] else ""
    needed = f"{spares['needed']} needed for {spares['nodes']} nodes in 99 of 100 cases"
    seen = f"{rate['failures']} seen in {rate['node_days']:.1f} node-days"
    return [
        ("spares", f"{needed}, {spares['available']} stand by"),
        ("a node fails", f"{bound}{rate['per_node_day']:.3g} times a day ({seen})"),
        ("a repair takes", f"{spares['repair_hours']:.1f} h ({assumed})"),
    ]


def _ettr(job: dict[str, Any]) -> tuple[str, str, str, str]:
    measured, expected = job["measured"], job["expected"]
    because = job["reason"]
    if expected is not None:
        because = (
            f"{job['nodes']} nodes, {job['failures_per_node_day']:.3g} failures a node-day, "
            f"{job['restart_seconds']:.1f} s a restart, checkpoints each "
            f"{job['checkpoint_seconds']:.0f} s"
        )
    return (
        "-" if measured is None else f"{measured:.2%}",
        f"{job['window_seconds'] / 60:.0f} min",
        "-" if expected is None else f"{expected:.2%}",
        because,
    )


def _lemon(lemon: dict[str, Any]) -> str:
    days = lemon["window_seconds"] / 86400
    return f"{lemon['node']} (taken out {lemon['times']} times in {days:.0f} d)"
