"""`aegis nodes`: list, show, and what operators do with them."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded, part

_EPILOG = """\
examples:
  aegis nodes
  aegis nodes show gpu-0001
  aegis nodes drain gpu-0001 --reason "reseat OAM 3"
  aegis nodes return gpu-0001 --reason "module replaced" --validate full
  aegis nodes token gpu-0001 > node.token
"""
_VERBS = {
    "cordon": ("let it get no new ranks; the ones it has go on", "is cordoned"),
    "uncordon": ("undo a cordon", "takes ranks again"),
    "drain": ("save, then move its ranks away", "is being drained"),
    "return": ("put it back to service after a repair", "is back"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """List nodes, show one, take one out of service, put it back."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run_list))
    verbs = parser.add_subparsers(metavar="VERB")
    _verb(verbs, "list", "all nodes (without a verb: the same)", run_list)
    _verb(verbs, "show", "one node with its devices", run_show).add_argument("node")
    for name, (help_text, _done) in _VERBS.items():
        verb = _verb(verbs, name, help_text, run_verb)
        verb.add_argument("node")
        verb.add_argument("--reason", required=True, help="why; kept in the record")
        verb.set_defaults(verb=name)
        if name == "return":
            verb.add_argument(
                "--validate",
                choices=("none", "light", "full"),
                help="how closely it is looked at first (default: as the policy says)",
            )
    token = _verb(verbs, "token", "mint a token for its agent and launchers", run_token)
    token.add_argument("node")


def _verb(verbs: Any, name: str, help_text: str, run: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=help_text, description=help_text)
    add_options(verb, of_verb=True)
    verb.set_defaults(run=guarded(run))
    return verb


def run_list(arguments: argparse.Namespace) -> int:
    """All nodes."""
    client = Client.of(arguments)
    nodes = list(client.items("/nodes"))
    if arguments.output == "json":
        show.as_json(nodes)
        return Exit.OK
    holders = {
        member["node"]: job["spec"]["name"]
        for job in client.items("/jobs")
        if job["state"] in ("starting", "running", "stopping")
        for member in job["members"]
    }
    titles = ("NODE", "STATE", "FOR", "JOB", "GPUS", "HEARD", "REASON")
    show.table(
        titles,
        [
            (
                node["name"],
                node["state"],
                show.ago(node["since"]),
                holders.get(node["name"], "spare" if node["launchers"] else "-"),
                _gpus(node),
                show.ago(node["seen_at"]),
                show.shortened(node["reason"], 60),
            )
            for node in nodes
        ],
        "no node has reported yet: `aegis nodes token NAME` mints a token for its agent",
    )
    return Exit.OK


def run_show(arguments: argparse.Namespace) -> int:
    """One node."""
    node = Client.of(arguments).get(f"/nodes/{part(arguments.node)}")
    if arguments.output == "json":
        show.as_json(node)
        return Exit.OK
    _print(node)
    _print_validation(node)
    show.table(
        ("DEVICE", "HEALTH", "COUNTERS ABOVE ZERO", "DETAIL"),
        [
            (
                device["name"],
                device["health"],
                " ".join(f"{name}={value}" for name, value in device["counters"] if value),
                show.shortened(device["detail"], 200),
            )
            for device in node["devices"]
        ],
        "no device has been reported",
    )
    return Exit.OK


def run_verb(arguments: argparse.Namespace) -> int:
    """Cordon, uncordon, drain or return a node."""
    path = f"/nodes/{part(arguments.node)}:{arguments.verb}"
    body = {"reason": arguments.reason}
    if getattr(arguments, "validate", None):
        body["validate"] = arguments.validate
    node = Client.of(arguments).post(path, body)
    if arguments.output == "json":
        show.as_json(node)
        return Exit.OK
    _help, done = _VERBS[arguments.verb]
    if arguments.verb == "return" and node["state"] == "repairing":
        print(f"{node['name']} is being validated: `aegis nodes show {node['name']}` tells how")
        return Exit.OK
    print(f"{node['name']} {done} (state: {node['state']})")
    return Exit.OK


def run_token(arguments: argparse.Namespace) -> int:
    """A new token for a node, alone on stdout so that it can go into a file."""
    minted = Client.of(arguments).post("/tokens", {"role": "node", "node": arguments.node})
    if arguments.output == "json":
        show.as_json(minted)
    else:
        print(minted["token"])
    return Exit.OK


def _print(node: dict[str, Any]) -> None:
    labels = " ".join(f"{name}={value}" for name, value in node["labels"])
    conditions = ", ".join(f"{one['fault_class']} {one['device']}" for one in node["conditions"])
    show.pairs(
        [
            ("node", node["name"] + (" (simulated hardware)" if node["simulated"] else "")),
            ("state", f"{node['state']} for {show.ago(node['since'])}"),
            ("reason", node["reason"]),
            ("held by", node["held_by"]),
            ("incident", node["incident"]),
            ("conditions", conditions),
            ("heard", f"{show.ago(node['seen_at'])} ago, agent {node['version']}"),
            ("labels", labels),
            ("launchers", ", ".join(_launcher(one) for one in node["launchers"])),
            *((f"reads {kind}", text) for kind, text in node["sources"]),
            ("suppressed", "; ".join(_suppressed(one) for one in node["suppressed"])),
        ]
    )
    print()


def _print_validation(node: dict[str, Any]) -> None:
    """The last one, step by step."""
    if not node["validations"]:
        return
    last = node["validations"][-1]
    asked = (
        f"{last['order']['depth']}, asked for by {last['actor']} {show.ago(last['given_at'])} ago"
    )
    state = last["state"] or "no word of it yet"
    if last["ended_at"] is None:
        state = f"under way ({state})"
    show.pairs([("validation", asked), ("came to", state), ("which means", last["text"])])
    rows = [
        (one["name"], one["state"], one["value"], one["gate"], f"{one['seconds']:.1f}", one["text"])
        for one in last["steps"]
    ]
    if rows:
        print()
        show.table(("STEP", "CAME TO", "MEASURED", "WANTED", "SECONDS", "WHAT"), rows, "")
    print()


def _suppressed(one: dict[str, Any]) -> str:
    told = [
        f"{one[how]} {how}{where}"
        for how, where in (("merged", " into the count of others"), ("dropped", ""))
        if one[how]
    ]
    return f"{one['fault_class']}: {', '.join(told)}"


def _launcher(launcher: dict[str, Any]) -> str:
    alive = sum(rank["phase"] != "exited" for rank in launcher["ranks"])
    ranks = f"{alive} rank{'' if alive == 1 else 's'}" if alive else "spare"
    return f"{launcher['spec']['name']} ({launcher['phase']}, {ranks})"


def _gpus(node: dict[str, Any]) -> str:
    """How many GPUs, and how many of them are not known to be healthy."""
    health = [device["health"] for device in node["devices"] if device["kind"] == "gpu"]
    notes = [
        f"{health.count(state)} {state}"
        for state in ("unhealthy", "unknown")
        if health.count(state)
    ]
    return f"{len(health)}" + (f" ({', '.join(notes)})" if notes else "")
