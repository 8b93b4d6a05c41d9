"""`aegis windows`: maintenance and silences."""

import argparse
import re
import time
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded, part

_EPILOG = """\
A silence keeps people from being told. Maintenance does that too, and Aegis leaves the nodes alone.

examples:
  aegis windows
  aegis windows add maintenance --label rack=r7 --for 2h --reason "reseating OAMs"
  aegis windows add silence --class 'nic.*' --for 30m --reason "switch firmware is rolled out"
  aegis windows end win-000001 --reason done
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def configure(parser: argparse.ArgumentParser) -> None:
    """Announce maintenance or ask for silence; list and end windows."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run_list))
    verbs = parser.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="all of them (without a verb: the same)")
    add_options(listed, of_verb=True)
    listed.set_defaults(run=guarded(run_list))
    _configure_add(verbs.add_parser("add", help="set one"))
    end = verbs.add_parser("end", help="end one before its time")
    add_options(end, of_verb=True)
    end.add_argument("window")
    end.add_argument("--reason", required=True, help="why; kept in the record")
    end.set_defaults(run=guarded(run_end))


def _configure_add(add: argparse.ArgumentParser) -> None:
    add_options(add, of_verb=True)
    add.add_argument("kind", choices=["maintenance", "silence"])
    add.add_argument("--reason", required=True, help="what for; everybody sees it")
    add.add_argument(
        "--for", dest="lasts", type=_duration, required=True, metavar="TIME", help="30m, 2h, 1d"
    )
    add.add_argument("--in", dest="begins", type=_duration, default=0.0, metavar="TIME", help="30m")
    add.add_argument("--node", default="*", metavar="GLOB", help="default: every node")
    add.add_argument("--class", dest="fault_class", default="*", metavar="GLOB", help="nic.*")
    add.add_argument("--label", type=_label, action="append", default=[], metavar="NAME=VALUE")
    add.set_defaults(run=guarded(run_add))


def _duration(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 30m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def _label(text: str) -> list[str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is no label: write rack=r7")
    return [name, value]


def run_list(arguments: argparse.Namespace) -> int:
    """All windows."""
    windows = list(Client.of(arguments).items("/windows"))
    if arguments.output == "json":
        show.as_json(windows)
        return Exit.OK
    show.table(
        ("WINDOW", "KIND", "FROM", "UNTIL", "NODES", "CLASSES", "BY", "REASON"),
        [
            (
                one["id"],
                one["kind"],
                show.moment(one["starts_at"]),
                show.moment(one["ends_at"]),
                _nodes(one),
                one["fault_class"],
                one["actor"],
                show.shortened(one["reason"], 50),
            )
            for one in windows
        ],
        "no window is open or to come",
    )
    return Exit.OK


def run_add(arguments: argparse.Namespace) -> int:
    """Set one."""
    begins = time.time() + arguments.begins if arguments.begins else 0.0
    body = {
        "kind": arguments.kind,
        "reason": arguments.reason,
        "starts_at": begins,
        "ends_at": (begins or time.time()) + arguments.lasts,
        "node": arguments.node,
        "fault_class": arguments.fault_class,
        "labels": arguments.label,
    }
    window = Client.of(arguments).post("/windows", body)
    if arguments.output == "json":
        show.as_json(window)
        return Exit.OK
    until = show.moment(window["ends_at"])
    print(f"{window['id']}: {window['kind']} of {_what(window)} until {until}")
    return Exit.OK


def run_end(arguments: argparse.Namespace) -> int:
    """End one."""
    path = f"/windows/{part(arguments.window)}:end"
    left = Client.of(arguments).post(path, {"reason": arguments.reason})
    if arguments.output == "json":
        show.as_json(left["items"])
    else:
        print(f"{arguments.window} is over")
    return Exit.OK


def _what(window: dict[str, Any]) -> str:
    """Of what it is, in words."""
    classes = "" if window["fault_class"] == "*" else f"{window['fault_class']} on "
    nodes = _nodes(window)
    return classes + ("all nodes" if nodes == "*" else nodes)


def _nodes(window: dict[str, Any]) -> str:
    labels = [f"{name}={value}" for name, value in window["labels"]]
    return " ".join([*([window["node"]] if window["node"] != "*" or not labels else []), *labels])
