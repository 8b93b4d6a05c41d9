"""Running many seeds and saying which promise broke, and how to see it again."""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from aegis.sim.run import Result, run


def configure(parser: argparse.ArgumentParser) -> None:
    """Run the core against invented fleets and misfortunes."""
    verbs = parser.add_subparsers(metavar="run", required=True)
    seeds = verbs.add_parser("run", help="run some seeds; non-zero when a promise broke")
    seeds.add_argument("--seeds", type=_count, default=300, metavar="N", help="how many")
    seeds.add_argument("--first-seed", type=int, default=0, metavar="S", help="from which on")
    seeds.add_argument(
        "--jobs", type=_count, default=1, metavar="J", help="processes that share them"
    )
    seeds.add_argument("--log", action="store_true", help="print what happened in each seed")
    seeds.set_defaults(run=_run)


def _count(text: str) -> int:
    """None would break no promise, and prove none."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: 1 is the least")
    return number


def _run(arguments: argparse.Namespace) -> int:
    """Run the seeds; 1 when a promise broke."""
    began, events, seconds = time.monotonic(), 0, 0.0
    broken: list[Result] = []
    for result in _results(arguments):
        seed = result.seed
        events, seconds = events + result.events, seconds + result.seconds
        if arguments.log:
            _say("\n".join(result.lines))
        if result.broken:
            broken.append(result)
            _say(f"seed {seed} broke a promise: {result.broken}")
            _say(f"  see it with: {_again(seed)}")
    took = time.monotonic() - began
    hours = seconds / 3600
    _say(
        f"{arguments.seeds} seeds, {len(broken)} broke a promise; "
        f"{events} events of {hours:.1f} hours in {took:.1f} s"
    )
    return 1 if broken else 0


def _results(arguments: argparse.Namespace) -> Iterator[Result]:
    """What came of each seed, in their order."""
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(arguments.jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def _again(seed: int) -> str:
    return f"aegis sim run --seeds 1 --first-seed {seed} --log"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """`python -m aegis.sim`, for where nothing is installed."""
    parser = argparse.ArgumentParser(prog="python -m aegis.sim", description=__doc__)
    configure(parser)
    arguments = parser.parse_args(words)
    result: int = arguments.run(arguments)
    return result
