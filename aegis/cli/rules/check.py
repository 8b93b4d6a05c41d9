"""`aegis rules check`, `test` and `schema`: what needs no controller."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from aegis.cli import show
from aegis.cli.client import CommandError, Exit
from aegis.cli.rules import trial
from aegis.cli.rules.folders import folders_of, load
from aegis.controller import configuration
from aegis.rules import RuleError, RuleSet
from aegis.rules.schema import schema


def run_check(arguments: argparse.Namespace) -> int:
    """Every mistake with its place; exit code 1 when there is one."""
    folders = folders_of(arguments)
    try:
        rules = configuration.load_rules(*folders)
    except configuration.ConfigurationError as error:
        if isinstance(error.__cause__, RuleError):
            return _refused(error.__cause__, folders, as_json=arguments.output == "json")
        raise CommandError(str(error)) from error
    if arguments.output == "json":
        show.as_json({"digest": rules.digest, "rules": len(rules.rules), "problems": []})
        return Exit.OK
    places = " and ".join(map(str, folders))
    print(f"{len(rules.rules)} rules of {places} are good; version {rules.digest}")
    return Exit.OK


def _refused(error: RuleError, folders: Sequence[Path], *, as_json: bool) -> int:
    problems = [
        {
            "file": str(folders[one.layer] / one.place.file),
            "line": one.place.line,
            "column": one.place.column,
            "message": one.text,
        }
        for one in error.problems
    ]
    if as_json:
        show.as_json({"digest": None, "rules": 0, "problems": problems})
    else:
        for one in error.problems:
            print(f"{folders[one.layer]}/{one}", file=sys.stderr)
    return Exit.FAILURE


def run_test(arguments: argparse.Namespace) -> int:
    """Every test; exit code 1 when one fails."""
    folders = folders_of(arguments)
    rules = load(folders)
    files = trial.test_files(folders)
    if not files:
        raise CommandError(
            f"there is no test (*_test.yaml) in {' or '.join(map(str, folders))}",
            "docs/how-to/write-a-rule.md shows how to write one",
        )
    outcomes, coverage = trial.run(rules, files)
    if arguments.junit:
        _write_junit(arguments.junit, outcomes)
    failed = [one for one in outcomes if one.wrong]
    if arguments.output == "json":
        show.as_json(_jsonable(outcomes, coverage))
    else:
        _tell(rules, outcomes, failed, coverage)
    return Exit.FAILURE if failed else Exit.OK


def _tell(
    rules: RuleSet,
    outcomes: Sequence[trial.Outcome],
    failed: Sequence[trial.Outcome],
    coverage: trial.Coverage,
) -> None:
    for one in failed:
        print(f"{one.file}: {one.name}: {one.wrong}", file=sys.stderr)
    for name in coverage.never_fired:
        print(f"untested: no test fires rule {name}")
    for name in coverage.never_silent:
        print(f"untested: no test shows what rule {name} leaves alone")
    count = len(outcomes)
    print(f"{count - len(failed)} of {count} tests passed; {len(rules.rules)} rules")


def _jsonable(outcomes: Sequence[trial.Outcome], coverage: trial.Coverage) -> dict[str, object]:
    return {
        "passed": sum(not one.wrong for one in outcomes),
        "failed": [
            {"file": one.file, "test": one.name, "wrong": one.wrong}
            for one in outcomes
            if one.wrong
        ],
        "never_fired": coverage.never_fired,
        "never_silent": coverage.never_silent,
    }


def _write_junit(file: Path, outcomes: Sequence[trial.Outcome]) -> None:
    failed = sum(bool(one.wrong) for one in outcomes)
    root = ET.Element(
        "testsuite", name="aegis rules", tests=str(len(outcomes)), failures=str(failed)
    )
    for one in outcomes:
        case = ET.SubElement(
            root, "testcase", classname=one.file, name=one.name, time=f"{one.seconds:.3f}"
        )
        if one.wrong:
            ET.SubElement(case, "failure", message=one.wrong)
    try:
        ET.ElementTree(root).write(file, encoding="unicode", xml_declaration=True)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error


def run_schema(_arguments: argparse.Namespace) -> int:
    """The JSON Schema of rule files."""
    print(json.dumps(schema(), indent=2))
    return Exit.OK
