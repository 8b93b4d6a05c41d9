"""Does anything notice when a line of the core is wrong? Mutants of what decides, one at a time.

    python tests/mutation/run.py [--files decide.py,rails.py] [--jobs 2] [--only TEXT]

Each mutant lives in a process of its own, which imports the core with the change and runs the
scenarios, the unit tests of the core and a few invented fleets until something fails. What
survives must stand in explained.toml with the reason why no test can, or need, tell it apart;
anything else that survives, and a score below 90 %, make the run fail.
"""

import argparse
import importlib.machinery
import importlib.util
import os
import select
import signal
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pydantic  # noqa: F401 - what is loaded here is loaded once, for all mutants
import pytest

import aegis.rules
import aegis.wire  # noqa: F401 - the same

sys.path.insert(0, str(Path(__file__).parent))
from mutants import Mutant, mutants, mutated

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
CORE = ROOT / "aegis" / "core"
FILES = ("decide.py", "rails.py", "recover.py")
SEEDS = (0, 1, 3, 5, 6, 7, 15, 16, 25, 34)
SECONDS_MAX = 120  # a mutant that hangs is noticed, too
SCORE_MIN = 0.9


def main() -> int:
    """Run all mutants; 1 when too many, or unexplained ones, survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default=",".join(FILES), help="of aegis/core, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="mutants whose key contains this")
    arguments = parser.parse_args()
    began = time.monotonic()
    wanted = [one for name in arguments.files.split(",") for one in mutants(CORE / name)]
    wanted = [one for one in wanted if arguments.only in one.key]
    if killer := Run([None], 1).results().get(None):
        sys.stdout.write(f"the core as it is fails already: {killer}\n")
        return 1
    results = Run(list(wanted), arguments.jobs).results()
    return _report(wanted, results, time.monotonic() - began)


def _report(wanted: list[Mutant], results: dict[Mutant | None, str], seconds: float) -> int:
    explained = tomllib.loads((HERE / "explained.toml").read_text())
    survivors = [one for one in wanted if not results[one]]
    unexplained = [one for one in survivors if one.key not in explained]
    for one in survivors:
        why = explained.get(one.key, "NOT EXPLAINED")
        sys.stdout.write(f"{Path(one.file).relative_to(ROOT)}:{one.line} survives: {why}\n")
        sys.stdout.write(f"    {one.key}\n")
    killed = len(wanted) - len(survivors)
    by_file = Counter(Path(one.file).name for one in wanted)
    left = Counter(Path(one.file).name for one in survivors)
    parts = [f"{name} {count - left[name]} of {count}" for name, count in by_file.items()]
    score = killed / max(1, len(wanted))
    sys.stdout.write(
        f"{killed} of {len(wanted)} mutants killed ({score:.1%}): {', '.join(parts)}; "
        f"{len(survivors)} survive, {len(unexplained)} of them unexplained; {seconds:.0f} s\n"
    )
    return 1 if unexplained or score < SCORE_MIN else 0


@dataclass
class Run:
    """Mutants under way, each in a process of its own."""

    waiting: list[Mutant | None]
    jobs: int
    under_way: dict[int, tuple[int, Mutant | None]] = field(default_factory=dict)  # by pipe
    killers: Counter[str] = field(default_factory=Counter)
    found: dict[Mutant | None, str] = field(default_factory=dict)

    def results(self) -> dict[Mutant | None, str]:
        """What noticed each mutant; "" where nothing did."""
        self.waiting.reverse()
        while self.waiting or self.under_way:
            while self.waiting and len(self.under_way) < self.jobs:
                self._begin(self.waiting.pop())
            for pipe in select.select(list(self.under_way), [], [])[0]:
                self._end(pipe)
        return self.found

    def _begin(self, mutant: Mutant | None) -> None:
        reading, writing = os.pipe()
        # What killed the most so far is asked first.
        order = sorted(SCENARIOS, key=lambda path: -self.killers[path.stem])
        process = os.fork()
        if not process:
            os.close(reading)
            _live(mutant, order, writing)
        os.close(writing)
        self.under_way[reading] = process, mutant

    def _end(self, pipe: int) -> None:
        process, mutant = self.under_way.pop(pipe)
        said = os.read(pipe, 4096).decode()
        os.close(pipe)
        _, status = os.waitpid(process, 0)
        killer = said.removeprefix("=") if said else f"its process ended with {status}"
        self.found[mutant] = killer
        self.killers[killer] += 1


def _live(mutant: Mutant | None, order: list[Path], writing: int) -> None:
    """In the child: say who noticed the mutant, and end."""
    signal.alarm(SECONDS_MAX)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(mutant))
    try:
        killer = _noticed(order)
    except BaseException as error:  # noqa: BLE001 - whatever a wrong core does, it shows
        killer = f"{type(error).__name__}"
    os.write(writing, f"={killer}".encode())
    os._exit(0)


def _noticed(order: list[Path]) -> str:
    spec = importlib.util.spec_from_file_location(
        "played", ROOT / "tests" / "scenarios" / "test_scenarios.py"
    )
    assert spec
    assert spec.loader
    played = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(played)
    for path in order:
        try:
            if played.play(path.read_text()) != path.read_text():
                return path.stem
        except Exception:  # noqa: BLE001 - whatever it is, it shows
            return path.stem
    words = ["-x", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "unit" / "core")]
    if pytest.main(words):
        return "unit tests"
    from aegis.sim.run import run  # noqa: PLC0415 - it imports the core, which must be changed

    return next((f"seed {seed}" for seed in SEEDS if run(seed).broken), "")


class _Finder:
    """Imports the mutated module in place of the real one."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = f"aegis.core.{Path(mutant.file).stem}"

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        loader = _Loader(name, self.mutant.file)
        loader.mutant = self.mutant
        return importlib.util.spec_from_file_location(name, self.mutant.file, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname):
        return compile(mutated(self.mutant), self.mutant.file, "exec")


if __name__ == "__main__":
    sys.exit(main())
