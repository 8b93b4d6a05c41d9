"""`aegis faults`: every class of fault, and what one of them means."""

import argparse
import difflib
import sys
from typing import Any

from aegis.cli import show
from aegis.cli.client import Exit
from aegis.model.catalogue import CATALOGUE, Entry
from aegis.model.fault import FaultClass

_EPILOG = """\
examples:
  aegis faults
  aegis faults gpu.ecc.uncorrectable
  aegis faults nic -o json

It asks no controller: the catalogue is part of the program.

exit codes: 0 told, 3 there is no such class
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what the classes of faults mean, what they do, and what to look at."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "name", nargs="?", default="", metavar="CLASS", help="a class, or how its name begins"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """One class whole, or a list of them."""
    name = arguments.name.strip(".")
    found = [one for one in FaultClass if one == name or not name or one.startswith(f"{name}.")]
    if not found:
        near = difflib.get_close_matches(name, list(FaultClass), n=1)
        hint = f"; did you mean {near[0]}?" if near else "; `aegis faults` lists them"
        print(f"aegis faults: there is no class {name!r}{hint}", file=sys.stderr)
        return Exit.NOT_FOUND
    if arguments.output == "json":
        told = [_as_json(one, CATALOGUE[one]) for one in found]
        show.as_json(told[0] if len(told) == 1 else told)
    elif len(found) == 1:
        _print(found[0], CATALOGUE[found[0]])
    else:
        show.table(
            ("CLASS", "SEVERITY", "WHAT IT IS"),
            [(one, CATALOGUE[one].severity, CATALOGUE[one].title) for one in found],
            "",
        )
    return Exit.OK


def _print(fault_class: FaultClass, entry: Entry) -> None:
    print(f"{fault_class}: {entry.title}\n\n{entry.description}\n")
    show.pairs(
        [
            ("effect", entry.effect),
            ("severity", f"{entry.severity}{f'; {entry.raised}' if entry.raised else ''}"),
            ("takes along", entry.scope),
            ("seen through", ", ".join(entry.seen)),
            ("AFID", ", ".join(map(str, entry.afids))),
            ("Xid", ", ".join(map(str, entry.xids))),
            ("what to do", entry.answer),
        ]
    )
    print("\nWhat to look at")
    for step in entry.check:
        print(f"  - {step}")
    print("\nRead on")
    for one in entry.references:
        print(f"  - {one.title}\n    {one.url}")


def _as_json(fault_class: FaultClass, entry: Entry) -> dict[str, Any]:
    return {
        "class": fault_class,
        "title": entry.title,
        "description": entry.description,
        "effect": entry.effect,
        "severity": entry.severity,
        "raised": entry.raised,
        "scope": entry.scope,
        "seen": entry.seen,
        "answer": entry.answer,
        "check": entry.check,
        "afids": entry.afids,
        "xids": entry.xids,
        "references": [{"title": one.title, "url": one.url} for one in entry.references],
    }
