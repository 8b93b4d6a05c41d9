"""`aegis tokens`: who may change something."""

import argparse
from typing import Any

from aegis.cli import show
from aegis.cli.client import Client, Exit, add_options, guarded, part

_EPILOG = """\
examples:
  aegis tokens
  aegis tokens add ada > ada.token              ada may approve, drain, return, pause
  aegis tokens add carol --role admin > carol.token
  aegis tokens revoke tok-1a2b3c4d

The name stands in every record of what its bearer does, and two people are two names. Tokens of
nodes are made by `aegis nodes token NAME`. All of it needs an admin's token.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """List who may change something; mint a token for a person or a program; revoke one."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_options(parser)
    parser.set_defaults(run=guarded(run_list))
    verbs = parser.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="all of them (without a verb: the same)")
    add_options(listed, of_verb=True)
    listed.set_defaults(run=guarded(run_list))
    added = verbs.add_parser("add", help="mint one; it is shown this once")
    add_options(added, of_verb=True)
    added.add_argument("name", help="who bears it")
    added.add_argument("--role", choices=["operator", "admin"], default="operator")
    added.set_defaults(run=guarded(run_add))
    revoked = verbs.add_parser("revoke", help="forget one: whoever bears it is refused")
    add_options(revoked, of_verb=True)
    revoked.add_argument("token", metavar="ID", help="as `aegis tokens` lists it")
    revoked.set_defaults(run=guarded(run_revoke))


def run_list(arguments: argparse.Namespace) -> int:
    """All of them, without their secrets."""
    tokens = Client.of(arguments).get_private("/tokens")["items"]
    if arguments.output == "json":
        show.as_json(tokens)
        return Exit.OK
    show.table(("ID", "ROLE", "NAME", "MADE"), [_row(one) for one in tokens], "there is none")
    return Exit.OK


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return one["id"], one["role"], one["name"], f"{show.ago(one['created_at'])} ago"


def run_add(arguments: argparse.Namespace) -> int:
    """A new one, alone on stdout so that it can go into a file."""
    body = {"role": arguments.role, "name": arguments.name}
    minted = Client.of(arguments).post("/tokens", body)
    if arguments.output == "json":
        show.as_json(minted)
    else:
        print(minted["token"])
    return Exit.OK


def run_revoke(arguments: argparse.Namespace) -> int:
    """Forget one."""
    Client.of(arguments).delete(f"/tokens/{part(arguments.token)}")
    print(f"{arguments.token} is revoked")
    return Exit.OK
