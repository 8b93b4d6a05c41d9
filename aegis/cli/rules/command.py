"""`aegis rules`: its verbs and their options."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aegis.cli.client import add_options, guarded

_MODES = ["observe", "notify", "approve", "enforce", "policy"]
_EPILOG = """\
examples:
  aegis rules                                   those in force, in the order in which they are asked
  aegis rules show gpu.hang
  aegis rules check /etc/aegis/rules.d          mistakes with file, line and column
  aegis rules test /etc/aegis/rules.d --junit rules.xml
  aegis rules explain inc-000001                why each rule fired, or did not
  aegis rules explain --event fault.yaml        the same, without a controller
  aegis rules simulate --since 30d --rules ./changed
  aegis rules mode gpu.hang enforce --group canary --reason "two quiet weeks"

exit codes: 0 good, 1 a mistake or a failed test, 3 there is no such rule or incident
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Check, test, show and explain rules, replay the past with them, set how far they may go."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    alone = {"rule": "", "offline": False, "rules": [], "no_shipped_rules": False}
    parser.set_defaults(run=guarded(_later("tell.run_show")), **alone)
    verbs = parser.add_subparsers(metavar="VERB")
    _check(verbs)
    _show(verbs)
    _explain(verbs)
    _simulate(verbs)
    _mode(verbs)
    reload = _verb(verbs, "reload", "let the controller read its rules anew", "tell.run_reload")
    add_options(reload, of_verb=True)


def _verb(verbs: Any, name: str, help_: str, function: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=help_, description=help_)
    verb.set_defaults(run=guarded(_later(function)))
    return verb


def _later(name: str) -> Callable[[argparse.Namespace], int]:
    """The function of a module beside this one, imported when it is called: not for --help."""

    def run(arguments: argparse.Namespace) -> int:
        import importlib  # noqa: PLC0415

        module, function = name.split(".")
        found = getattr(importlib.import_module(f"aegis.cli.rules.{module}"), function)
        return int(found(arguments))

    return run


def _folders(verb: argparse.ArgumentParser, *, positional: bool = False) -> None:
    help_ = "a folder of the site's rules, laid over those shipped with Aegis; may repeat"
    if positional:
        verb.add_argument("rules", nargs="*", type=Path, metavar="DIR", help=help_)
    else:
        verb.add_argument(
            "--rules", action="append", default=[], type=Path, metavar="DIR", help=help_
        )
    verb.add_argument("--no-shipped-rules", action="store_true", help="the site's rules alone")


def _output(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-o", "--output", choices=["table", "json"], default="table")


def _check(verbs: Any) -> None:
    check = _verb(verbs, "check", "find every mistake; asks no controller", "check.run_check")
    _folders(check, positional=True)
    _output(check)
    test = _verb(verbs, "test", "run the tests beside the rules", "check.run_test")
    _folders(test, positional=True)
    _output(test)
    test.add_argument("--junit", type=Path, metavar="FILE", help="write the outcomes as JUnit XML")
    _verb(verbs, "schema", "print the JSON Schema of rule files", "check.run_schema")


def _show(verbs: Any) -> None:
    help_ = "the rules in force (without a verb: the same), or one of them whole"
    shown = _verb(verbs, "show", help_, "tell.run_show")
    shown.add_argument("rule", nargs="?", default="", metavar="RULE")
    shown.add_argument("--offline", action="store_true", help="of the folders, not a controller's")
    _folders(shown)
    add_options(shown, of_verb=True)


def _explain(verbs: Any) -> None:
    help_ = "why each rule that speaks of an incident fires, or does not"
    explained = _verb(verbs, "explain", help_, "tell.run_explain")
    explained.add_argument("incident", nargs="?", default="", metavar="INCIDENT")
    explained.add_argument(
        "--event", type=Path, metavar="FILE", help="a fault as YAML, and no controller"
    )
    _folders(explained)
    add_options(explained, of_verb=True)


def _simulate(verbs: Any) -> None:
    help_ = "replay recorded events: which nodes and jobs changed rules would have touched"
    simulated = _verb(verbs, "simulate", help_, "simulate.run")
    simulated.add_argument(
        "--events", type=Path, metavar="FILE", help="an exported log (default: the controller's)"
    )
    simulated.add_argument("--since", default="", metavar="TIME", help="only the last 30d, 12h, …")
    simulated.add_argument("--all", action="store_true", help="incidents answered alike, too")
    simulated.add_argument(
        "--as-mode", choices=_MODES[:4], help="as if the policy's mode had been this"
    )
    _folders(simulated)
    add_options(simulated, of_verb=True)


def _mode(verbs: Any) -> None:
    mode = _verb(verbs, "mode", "say how far a rule may go", "tell.run_mode")
    mode.add_argument("rule", metavar="RULE")
    mode.add_argument("mode", choices=_MODES, help="`policy`: as the policy says")
    mode.add_argument("--group", default="", help="only on nodes with this label `group`")
    mode.add_argument("--reason", required=True, help="why; kept in the record")
    add_options(mode, of_verb=True)
