"""`aegis rules show`, `explain` and `mode`."""

import argparse
from typing import Any, TypeAlias

from aegis.cli import show
from aegis.cli.client import Client, CommandError, Exit, part
from aegis.cli.rules.folders import folders_of, load
from aegis.cli.rules.forms import FaultForm, read
from aegis.rules.explain import explain
from aegis.rules.match import span

Modes: TypeAlias = dict[str, dict[str, dict[str, Any]]]  # by rule and group
_MARKS = {True: "✓", False: "✗", None: "?"}


def run_show(arguments: argparse.Namespace) -> int:
    """All rules in the order in which they are asked, or one whole."""
    found = _offline(arguments) if _is_offline(arguments) else Client.of(arguments).get("/rules")
    rules, modes = found["rules"], found["modes"]
    if arguments.rule:
        return _one(arguments, rules, modes)
    if arguments.output == "json":
        show.as_json(found)
        return Exit.OK
    show.table(
        ("RULE", "SPEAKS OF", "DOES", "AT MOST", "FILE"),
        [
            (
                rule["id"],
                show.shortened(", ".join(rule["classes"]), 44),
                " → ".join(_rungs(rule)),
                _modes(rule, modes),
                rule["file"],
            )
            for rule in rules
        ],
        "there is no rule",
    )
    if found["reload_error"]:
        print(f"\nthe last reload was refused: {found['reload_error']}")
    print(f"\nversion {found['digest']}; the first rule that matches a fault decides about it")
    return Exit.OK


def _is_offline(arguments: argparse.Namespace) -> bool:
    return bool(arguments.offline or arguments.rules or arguments.no_shipped_rules)


def _offline(arguments: argparse.Namespace) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  not for --help

    from aegis.rules import Rule  # noqa: PLC0415

    rules = load(folders_of(arguments))
    read_ = TypeAdapter(tuple[Rule, ...]).dump_python(rules.rules, mode="json")
    return {"digest": rules.digest, "rules": read_, "modes": {}, "reload_error": ""}


def _one(arguments: argparse.Namespace, rules: list[dict[str, Any]], modes: Modes) -> int:
    rule = next((one for one in rules if one["id"] == arguments.rule), None)
    if rule is None:
        raise CommandError(
            f"there is no rule {arguments.rule!r}",
            "`aegis rules show` lists them",
            Exit.NOT_FOUND,
        )
    if arguments.output == "json":
        show.as_json({**rule, "modes": modes.get(rule["id"], {})})
        return Exit.OK
    print(f"{rule['id']}: {rule['title']}\n")
    if rule["description"]:
        print(f"{rule['description']}\n")
    show.pairs(_told(rule, modes))
    return Exit.OK


def _told(rule: dict[str, Any], modes: Modes) -> list[tuple[str, object]]:
    guard = {key: value for key, value in rule["guard"].items() if value}
    return [
        ("stands at", f"{rule['file']}:{rule['line']}, layer {rule['layer']}"),
        ("status", rule["status"]),
        ("class", ", ".join(rule["classes"])),
        *_conditions(rule),
        *(("unless", ", ".join(f"{k} {v}" for k, v in _conditions(one))) for one in rule["unless"]),
        ("waits", _wait(rule)),
        ("does", " → ".join(_rungs(rule))),
        ("guard", ", ".join(f"{key} {value}" for key, value in guard.items())),
        ("verify", "" if rule["verify"] == "policy" else rule["verify"]),
        ("tells", "" if rule["notify"] == "severity" else rule["notify"]),
        ("at most", _modes(rule, modes)),
        *(
            ("set by", f"{said['actor']}, {show.ago(said['at'])} ago: {said['reason']}")
            for said in modes.get(rule["id"], {}).values()
        ),
        ("runbook", rule["runbook"]),
        *(("source", text) for text in rule["references"]),
    ]


def _conditions(match: dict[str, Any]) -> list[tuple[str, object]]:
    within = match["within_seconds"]
    timed = f" of the {match['scope']} within {span(within)}" if within else ""
    rate = match["rate_per_second"]
    return [
        (name, value)
        for name, value in (
            ("severity", ", ".join(match["severities"])),
            ("device", "" if match["device"] == "*" else match["device"]),
            ("count", f"{match['count']}{timed}" if match["count"] > 1 else ""),
            ("rate", f"{rate * 3600:g} an hour" if rate else ""),
            ("labels", ", ".join(f"{key}={value}" for key, value in match["labels"])),
            ("details", ", ".join(f"{key}={value}" for key, value in match["details"])),
            ("where", match["where"]),
        )
        if value
    ]


def _wait(rule: dict[str, Any]) -> str:
    if not rule["waits"]:
        return ""
    limit = rule["hold_down_seconds"]
    return f"{span(limit)}, to see whether it lasts" if limit else "as long as the policy says"


def _rungs(rule: dict[str, Any]) -> list[str]:
    first = {
        "remedy": rule["remedy"],
        "attempts": rule["attempts"],
        "within_seconds": rule["attempts_within_seconds"],
    }
    return [
        one["remedy"]
        + (f" (×{one['attempts']} in {span(one['within_seconds'])})" if one["attempts"] else "")
        for one in (first, *rule["if_fails"])
    ]


def _modes(rule: dict[str, Any], modes: Modes) -> str:
    own = modes.get(rule["id"], {})
    told = [f"{said['mode']} on {group}" if group else said["mode"] for group, said in own.items()]
    return str(rule["mode"]) + (f"; set to {', '.join(told)}" if told else "")


def run_explain(arguments: argparse.Namespace) -> int:
    """Why each rule that speaks of the class fires, or does not."""
    if bool(arguments.incident) == bool(arguments.event):
        raise CommandError("name an incident, or a file with --event", code=Exit.USAGE)
    if arguments.incident:
        path = f"/incidents/{part(arguments.incident)}/rules"
        found: dict[str, Any] = Client.of(arguments).get(path)
    else:
        found = _of_file(arguments)
    if arguments.output == "json":
        show.as_json(found)
        return Exit.OK
    fault = found["fault"]
    where = f"{fault['node']} {fault['device']}"
    print(f"{fault['fault_class']} ({fault['severity']}) on {where}, count {fault['count']}")
    for rule in found["rules"]:
        _print_rule(rule)
    if not found["rules"]:
        print("no rule speaks of this class: Aegis tells people")
    if found.get("decision"):
        print(f"\ndecided: {found['decision']['reason']}")
    return Exit.OK


def _of_file(arguments: argparse.Namespace) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  not for --help

    from aegis.model.fault import Fault  # noqa: PLC0415
    from aegis.rules.explain import Explained  # noqa: PLC0415

    try:
        text = arguments.event.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{arguments.event} cannot be read: {error}") from error
    form = read(FaultForm, str(arguments.event), text)
    rules, fault = load(folders_of(arguments)), form.fault()
    explained = explain(rules, fault, form)
    return {
        "digest": rules.digest,
        "fault": TypeAdapter(Fault).dump_python(fault, mode="json"),
        "rules": TypeAdapter(tuple[Explained, ...]).dump_python(explained, mode="json"),
    }


def _print_rule(rule: dict[str, Any]) -> None:
    mark = "▶" if rule["decides"] else " "
    print(f"\n{mark} {rule['rule']} ({rule['place']}) → {rule['remedy']}: {rule['why']}")
    for one in rule["parts"]:
        print(f"    {_part(one)}")
    for exception in rule["unless"]:
        print("    unless")
        for one in exception:
            print(f"      {_part(one)}")


def _part(one: dict[str, Any]) -> str:
    return f"{_MARKS[one['holds']]} {one['name']}: {one['found']}; wanted {one['wanted']}"


def run_mode(arguments: argparse.Namespace) -> int:
    """Say how far a rule may go."""
    mode = None if arguments.mode == "policy" else arguments.mode
    body = {"mode": mode, "group": arguments.group, "reason": arguments.reason}
    found = Client.of(arguments).post(f"/rules/{part(arguments.rule)}:mode", body)
    rule = next(one for one in found["rules"] if one["id"] == arguments.rule)
    if arguments.output == "json":
        show.as_json({**rule, "modes": found["modes"].get(rule["id"], {})})
        return Exit.OK
    where = f"on nodes of the group {arguments.group}" if arguments.group else "everywhere"
    said = "goes as far as the policy lets it" if mode is None else f"may {mode}"
    print(f"rule {rule['id']} {said} {where}; at most: {_modes(rule, found['modes'])}")
    return Exit.OK


def run_reload(arguments: argparse.Namespace) -> int:
    """Let the controller read its rules and its policy anew."""
    try:
        found = Client.of(arguments).post("/rules:reload", {})
    except CommandError as error:
        if error.code is not Exit.USAGE:
            raise
        # The mistake is in a file, and not on the command line.
        raise CommandError(str(error), error.hint, Exit.FAILURE) from error
    if arguments.output == "json":
        show.as_json({"digest": found["digest"], "rules": len(found["rules"])})
    else:
        print(f"{len(found['rules'])} rules are in force; version {found['digest']}")
    return Exit.OK
