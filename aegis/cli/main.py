"""`aegis`: finds the command that is asked for, and imports nothing of the others.

Each command is an entry point in the group `aegis.commands` that names a function
`configure(parser)`. The first line of that function's docstring is its help; it is read from the
source, because importing every command only to list them would take a second.
"""

import argparse
import ast
import difflib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NoReturn

GROUP = "aegis.commands"
_ORDER = (
    "demo",
    "controller",
    "agent",
    "run",
    "status",
    "nodes",
    "jobs",
    "job",
    "checkpoints",
    "incidents",
    "forecast",
    "windows",
    "rules",
    "pause",
    "resume",
    "tokens",
    "scan",
    "faults",
)
_EXTRAS = {"controller": "controller", "agent": "agent", "run": "agent", "demo": "controller,agent"}
_VERBS = {
    "stop": "jobs stop NAME",
    "restart": "jobs restart NAME",
    "exclude-node": "jobs exclude-node NAME NODE",
    "include-node": "jobs include-node NAME NODE",
    "verify": "checkpoints JOB verify",
    "prune": "checkpoints JOB prune",
}
_EPILOG = """\
examples:
  aegis demo                          a training job survives three faults, no GPU needed
  aegis status                        one sentence; exit code 0 ok, 10 degraded, 11 critical
  aegis incidents show inc-000001     what broke, what was decided, what it cost

Commands that ask a controller take --controller (AEGIS_CONTROLLER) and --token-file
(AEGIS_TOKEN_FILE). `aegis COMMAND --help` tells more.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {point.name: point for point in entry_points(group=GROUP)}
    wanted = next((word for word in words if not word.startswith("-")), "")
    if wanted and wanted not in commands:
        return _unknown(wanted, commands)
    parser = _Parser(
        prog="aegis",
        description="Keeps long training runs alive on hardware that breaks.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    lists = not wanted and any(word in ("-h", "--help") for word in words)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in sorted(commands, key=_place):
        point = commands[name]
        if name == wanted:
            if (error := _configure(subparsers.add_parser(name), point)) is not None:
                return error
        elif lists:
            subparsers.add_parser(name, help=summary(point))
    return _run(parser, words, wanted)


def _run(parser: argparse.ArgumentParser, words: list[str], wanted: str) -> int:
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        told = f"aegis {wanted}: there is no {unknown[0]}; see `aegis {wanted} --help`\n"
        parser.exit(2, told)
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has enough of it, as `head` does.
        sys.stderr.close()
        return 0


def _configure(parser: argparse.ArgumentParser, point: EntryPoint) -> int | None:
    """Let the command describe itself; an exit code when it cannot be imported."""
    try:
        configure = point.load()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(point.name, "controller,agent")
        print(
            f"aegis {point.name}: the Python package {error.name} is missing: "
            f"pip install 'aegis-supervisor[{extra}]'",
            file=sys.stderr,
        )
        return 1
    parser.description = (configure.__doc__ or "").splitlines()[0]
    configure(parser)
    return None


def _unknown(wanted: str, commands: dict[str, EntryPoint]) -> int:
    close = difflib.get_close_matches(wanted, commands, n=1)
    meant = _VERBS.get(wanted) or next(iter(close), "")
    hint = f"did you mean `aegis {meant}`?" if meant else "see `aegis --help`"
    print(f"aegis: there is no command {wanted!r}\nhint: {hint}", file=sys.stderr)
    return 2


def summary(point: EntryPoint) -> str:
    """The first line of the docstring of the command's `configure`, read without importing it."""
    spec = importlib.util.find_spec(point.module)
    if spec is None or not spec.origin:
        return ""
    for node in ast.parse(Path(spec.origin).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == point.attr:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and not the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        """End with it."""
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


class _Version(argparse.Action):
    """Prints the version, which is looked up only when asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        """Print it and end."""
        from importlib.metadata import version  # noqa: PLC0415  rarely asked for

        print(f"aegis {version('aegis-supervisor')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
