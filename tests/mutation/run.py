"""Does anything notice when a line of the core is wrong? Mutants of what decides, one at a time.

    python tests/mutation/run.py [--files decide.py,rails.py] [--jobs 2] [--only TEXT] [--all]

Each mutant lives in a process of its own, which imports the core with the change and runs the
scenarios, the unit tests of the core and a few invented fleets until something fails: those that
run the changed statement, what killed the most mutants of its function first. What survives must
stand in explained.toml with the reason why no test can, or need, tell it apart; anything else that
survives, and a score below 90 %, make the run fail. What stands there counts as a survivor without
a run, which would take the longest of all; `--all` runs it and tells what is noticed after all.
"""

import argparse
import hashlib
import importlib.machinery
import importlib.util
import json
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
from relevant import Only, Tracing, traced

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
UNITS = ROOT / "tests" / "unit" / "core"
CORE = ROOT / "aegis" / "core"
FILES = ("decide.py", "rails.py", "recover.py")
PATHS = [CORE / name for name in FILES]
SEEDS = (7, 1, 0, 34, 15)
SCENARIOS_FIRST = 4  # they are the quickest
SECONDS_MAX = 120  # of processor time: a mutant that hangs is noticed, too
SCORE_MIN = 0.9


def main() -> int:
    """Run all mutants; 1 when too many, or unexplained ones, survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default=",".join(FILES), help="some of these, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="mutants whose key contains this")
    parser.add_argument("--all", action="store_true", help="also those that are explained")
    arguments = parser.parse_args()
    began = time.monotonic()
    wanted = [one for name in arguments.files.split(",") for one in mutants(CORE / name)]
    wanted = [one for one in wanted if arguments.only in one.key]
    known = {} if arguments.all else reasons()
    asked = [one for one in wanted if one.key not in known]
    results = Run(list(asked), arguments.jobs, Tests.of(_traces())).results()
    return _report(wanted, results, time.monotonic() - began)


def _report(wanted: list[Mutant], results: dict[Mutant | None, str], seconds: float) -> int:
    explained = reasons()
    survivors = [one for one in wanted if not results.get(one)]
    unexplained = [one for one in survivors if one.key not in explained]
    for one in survivors:
        why = explained.get(one.key, "NOT EXPLAINED")
        sys.stdout.write(f"{Path(one.file).relative_to(ROOT)}:{one.line} survives: {why}\n")
        sys.stdout.write(f"    {one.key}\n")
    for one in wanted:
        if one.key in explained and results.get(one):
            sys.stdout.write(f"explained, and yet noticed by {results[one]}: {one.key}\n")
    names = {Path(one.file).name for one in wanted}
    known = {one.key for name in names for one in mutants(CORE / name)}
    for key in sorted(explained.keys() - known):
        if key.partition(" ")[0] in names:
            sys.stdout.write(f"explained, and there is no such mutant any more: {key}\n")
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


def _traces() -> dict[str, dict[str, list[int]]]:
    """Which test runs which lines; asked once for one state of the files, and ends if one fails."""
    folders = (ROOT / "aegis", ROOT / "rules", ROOT / "tests" / "scenarios", UNITS, HERE)
    files = sorted(path for folder in folders for path in folder.rglob("*"))
    read = [path for path in files if path.suffix in {".py", ".txt", ".yaml"}]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in read))
    kept = ROOT / ".cache" / "mutation" / f"{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        if killer := Run([None], 1, traces=kept).results().get(None):
            sys.exit(f"the core as it is fails already: {killer}")
    return json.loads(kept.read_text())


def reasons() -> dict[str, str]:
    """Why each mutant that survives may do so."""
    text = (HERE / "explained.toml").read_text()
    groups = tomllib.loads(text).get("because", [])
    return {key: group["why"] for group in groups for key in group["mutants"]}


@dataclass
class Tests:
    """The tests by the lines that they run: `scenario NAME`, `unit NODE ID` and `seed N`."""

    by_line: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    every: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, traces: dict[str, dict[str, list[int]]]) -> "Tests":
        """From the lines of each."""
        tests = cls(every=list(traces))
        for name, files in traces.items():
            for file, lines in files.items():
                for line in lines:
                    tests.by_line.setdefault((file, line), set()).add(name)
        return tests

    def about(self, mutant: Mutant | None) -> list[str]:
        """Those that run its statement."""
        if mutant is None or mutant.lines is None:
            return self.every
        first, last = mutant.lines
        file = Path(mutant.file).name
        some = {
            name for line in range(first, last + 1) for name in self.by_line.get((file, line), ())
        }
        return [name for name in self.every if name in some]


@dataclass
class Run:
    """Mutants under way, each in a process of its own."""

    waiting: list[Mutant | None]
    jobs: int
    tests: Tests = field(default_factory=Tests)
    traces: Path | None = None  # where the unchanged core writes which lines each test runs
    under_way: dict[int, tuple[int, Mutant | None]] = field(default_factory=dict)  # by pipe
    killers: dict[str, Counter[str]] = field(default_factory=dict)  # by function
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
        # What killed the most so far is asked first, in the same function above all.
        everywhere, here = self._counts("everywhere"), self._counts(_function(mutant))
        order = sorted(self.tests.about(mutant), key=lambda name: (-here[name], -everywhere[name]))
        process = os.fork()
        if not process:
            os.close(reading)
            _live(mutant, order, writing, self.traces)
        os.close(writing)
        self.under_way[reading] = process, mutant

    def _counts(self, where: str) -> Counter[str]:
        return self.killers.setdefault(where, Counter())

    def _end(self, pipe: int) -> None:
        process, mutant = self.under_way.pop(pipe)
        said = os.read(pipe, 4096).decode()
        os.close(pipe)
        _, status = os.waitpid(process, 0)
        killer = said.removeprefix("=") if said else f"its process ended with {status}"
        self.found[mutant] = killer
        self._counts("everywhere")[killer] += 1
        self._counts(_function(mutant))[killer] += 1
        if len(self.found) % 50 == 0:
            sys.stderr.write(f"{len(self.found)} mutants have been run\n")
        if mutant is not None and not killer:
            sys.stderr.write(f"{len(self.found)}: nothing noticed {mutant.key}\n")


def _function(mutant: Mutant | None) -> str:
    return mutant.key.partition(":")[0] if mutant else ""


def _live(mutant: Mutant | None, order: list[str], writing: int, traces: Path | None) -> None:
    """In the child: say who noticed the mutant, and end."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        if traces:
            killer = _traced(traces)
        else:
            sys.meta_path.insert(0, _Finder(mutant))
            killer = _noticed(order)
    except BaseException as error:  # noqa: BLE001 - whatever a wrong core does, it shows
        killer = f"{type(error).__name__}"
    os.write(writing, f"={killer}".encode())
    os._exit(0)


def _traced(traces: Path) -> str:
    """Run everything on the core as it is; write down who runs which lines."""
    play, found = _player(), {}
    for path in SCENARIOS:
        with traced(PATHS) as lines:
            if not play(path):
                return path.stem
        found[f"scenario {path.stem}"] = lines
    units = Tracing(PATHS)
    if pytest.main([*PYTEST, str(UNITS)], plugins=[units]):
        return "unit tests"
    found |= {f"unit {name}": lines for name, lines in units.lines.items()}
    from aegis.sim.run import run  # noqa: PLC0415 - it imports the core

    for seed in SEEDS:
        with traced(PATHS) as lines:
            if run(seed).broken:
                return f"seed {seed}"
        found[f"seed {seed}"] = lines
    mine = {
        name: {file: sorted(some) for file, some in lines.items()} for name, lines in found.items()
    }
    traces.write_text(json.dumps(mine))
    return ""


def _noticed(order: list[str]) -> str:
    """The first that fails: likely scenarios, then unit tests, the other scenarios, seeds."""
    scenarios, units, seeds = (
        [one.partition(" ")[2] for one in order if one.startswith(f"{kind} ")]
        for kind in ("scenario", "unit", "seed")
    )
    unit_first = order[:1] == [f"unit {name}" for name in units[:1]]
    first = [] if unit_first else scenarios[:SCENARIOS_FIRST]
    for ask, names in (
        (_scenario_that_notices, first),
        (_unit_that_notices, units),
        (_scenario_that_notices, [name for name in scenarios if name not in first]),
        (_seed_that_notices, seeds),
    ):
        if names and (killer := ask(names)):
            return killer
    return ""


def _scenario_that_notices(names: list[str]) -> str:
    play = _player()
    paths = {path.stem: path for path in SCENARIOS}
    return next((f"scenario {name}" for name in names if not play(paths[name])), "")


def _unit_that_notices(names: list[str]) -> str:
    failures = _Failures()
    # Only the files that hold a wanted test are read.
    files = sorted({name.partition("::")[0] for name in names})
    known = [str(ROOT / file) for file in files]
    code = pytest.main([*PYTEST, *known], plugins=[Only(names), failures])
    return f"unit {failures.first or f'tests, which ended with {code}'}" if code else ""


def _seed_that_notices(names: list[str]) -> str:
    from aegis.sim.run import run  # noqa: PLC0415 - it imports the core, which must be changed

    return next((f"seed {name}" for name in names if run(int(name)).broken), "")


os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes longer than the tests
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]


class _Failures:
    """A pytest plugin that knows the first test that failed."""

    first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each part of a test."""
        if report.failed and not self.first:
            self.first = report.nodeid


def _player():
    """Whether a scenario gives what is written in it."""
    spec = importlib.util.spec_from_file_location(
        "played", ROOT / "tests" / "scenarios" / "test_scenarios.py"
    )
    assert spec
    assert spec.loader
    played = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(played)

    def play(path: Path) -> bool:
        try:
            return played.play(path.read_text()) == path.read_text()
        except Exception:  # noqa: BLE001 - whatever it is, it shows
            return False

    return play


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
