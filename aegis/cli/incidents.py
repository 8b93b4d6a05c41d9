"""`aegis incidents`: what broke, what was decided and why, what came of it."""

import argparse
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded, part

_EPILOG = """\
examples:
  aegis incidents
  aegis incidents --state open
  aegis incidents show inc-000001
  aegis incidents approve inc-000001 --reason "spare is warm"
  aegis incidents feedback inc-000001 wrong-node --reason "it was the switch"
"""
_INDENT = " " * 10  # of the story's names
_VERBS = {
    "approve": ("agree to what Aegis would do about it", "why; kept in the record", True),
    "deny": ("forbid what Aegis would do about it", "why; kept in the record", True),
    "ack": ("say that you look after it", "what you are about to do", False),
    "note": ("add a line to its timeline", "the line", True),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """List incidents, the last active first; tell the story of one; answer what it asks."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    _add_list_options(parser)
    verbs = parser.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="the last active first (without a verb: the same)")
    _add_list_options(listed, of_verb=True)
    shown = verbs.add_parser("show", help="the story of one")
    add_options(shown, of_verb=True)
    shown.add_argument("incident")
    shown.set_defaults(run=guarded(run_show))
    for name, (help_text, reason, is_needed) in _VERBS.items():
        _add_verb(verbs, name, help_text).add_argument(
            "--reason", required=is_needed, default="", help=reason
        )
    feedback = _add_verb(verbs, "feedback", "say whether the decision was right")
    feedback.add_argument("feedback", choices=["right", "wrong", "wrong-node"])
    feedback.add_argument("--reason", default="", help="what should have been done")


def _add_verb(verbs: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=help_text, description=help_text)
    add_options(verb, of_verb=True)
    verb.add_argument("incident")
    verb.set_defaults(run=guarded(run_verb), verb=name)
    return verb


def _add_list_options(parser: argparse.ArgumentParser, *, of_verb: bool = False) -> None:
    add_options(parser, of_verb=of_verb)
    states = ["any", "open", "watching", "recovering", "closed"]
    options: dict[str, dict[str, Any]] = {
        "--state": {"choices": states, "default": "any", "help": "default: any"},
        "--node": {"default": "", "help": "only those of this node"},
        "--job": {"default": "", "help": "only those of this job"},
        "--limit": {"type": int, "default": 50, "help": "how many (default: 50)"},
    }
    for name, option in options.items():
        parser.add_argument(name, **option | ({"default": argparse.SUPPRESS} if of_verb else {}))
    parser.set_defaults(run=guarded(run_list))


def run_list(arguments: argparse.Namespace) -> int:
    """Incidents, the last active first."""
    listed = Client.of(arguments).items(
        "/incidents",
        state=arguments.state,
        node=arguments.node,
        job=arguments.job,
        limit=min(max(arguments.limit, 1), 500),
    )
    incidents = list(itertools.islice(_once(listed), max(arguments.limit, 0)))
    if arguments.output == "json":
        show.as_json(incidents)
        return Exit.OK
    show.table(
        ("INCIDENT", "STATE", "SEVERITY", "OPENED", "ACTIVE", "HEADLINE"),
        [
            (
                incident["id"],
                incident["state"],
                incident["severity"],
                f"{show.ago(incident['phases']['opened_at'])} ago",
                f"{show.ago(incident['active_at'])} ago",
                incident["headline"],
            )
            for incident in incidents
        ],
        "no incident" + ("" if arguments.state == "any" else f" is {arguments.state}"),
    )
    return Exit.OK


def _once(listed: Iterable[Any]) -> Iterator[Any]:
    """Each incident once: one that was active while the pages were turned may come again."""
    seen: set[str] = set()
    for incident in listed:
        if incident["id"] not in seen:
            seen.add(incident["id"])
            yield incident


def run_show(arguments: argparse.Namespace) -> int:
    """The story of one incident, and its timeline."""
    incident: dict[str, Any] = Client.of(arguments).get(f"/incidents/{part(arguments.incident)}")
    if arguments.output == "json":
        show.as_json(incident)
        return Exit.OK
    for line in incident["story"]:
        print(show.wrapped(line, _INDENT))
    for version in dict.fromkeys(one["rules_digest"] for one in incident["decisions"]):
        print(f"Rules     version {version}")
    print(f"\nWhat this is\n{show.wrapped('  ' + incident['means'], '  ')}\n\nWhat to look at")
    for step in incident["check"]:
        print(f"  - {step}")
    print("\nTimeline")
    start = incident["phases"]["observed_at"]
    for entry in incident["entries"]:
        after = entry["at"] - start
        print(f"  {show.moment(entry['at'])}  {after:+9.2f} s  {entry['kind']:<9} {entry['text']}")
    return Exit.OK


def run_verb(arguments: argparse.Namespace) -> int:
    """Say something to an incident."""
    body = {"reason": arguments.reason}
    if arguments.verb == "feedback":
        body["feedback"] = arguments.feedback.replace("-", "_")
    path = f"/incidents/{part(arguments.incident)}:{arguments.verb}"
    incident: dict[str, Any] = Client.of(arguments).post(path, body)
    if arguments.output == "json":
        show.as_json(incident)
    else:
        said = [entry for entry in incident["entries"] if entry["kind"] == "human"][-1]
        print(f"{incident['id']}  {said['text']}\n{incident['headline']}")
    return Exit.OK
