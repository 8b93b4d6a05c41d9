"""Asking a controller: its address, the token, and errors as one sentence with an exit code."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

CONTROLLER = "http://127.0.0.1:8500"
ADMIN_TOKEN = Path("/var/lib/aegis/admin.token")
ANSWER_SECONDS = 15.0
BLOCK_BYTES = 1 << 16


class Exit(IntEnum):
    """Exit codes, the same in every command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    UNREACHABLE = 5
    CONFLICT = 6
    BLOCKED = 7
    DEGRADED = 10
    CRITICAL = 11


_EXITS = {
    401: Exit.DENIED,
    403: Exit.DENIED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    422: Exit.USAGE,
}


class CommandError(Exception):
    """A command that failed: a sentence, what to do, and its exit code."""

    def __init__(self, sentence: str, hint: str = "", code: Exit = Exit.FAILURE) -> None:
        super().__init__(sentence)
        self.hint, self.code = hint, code


def add_options(parser: argparse.ArgumentParser, *, of_verb: bool = False) -> None:
    """The options of every command that asks a controller.

    A verb takes them too, but must not put its defaults in the place of what stood before it.
    """
    token_file = os.environ.get("AEGIS_TOKEN_FILE")
    parser.add_argument(
        "--controller",
        default=argparse.SUPPRESS if of_verb else os.environ.get("AEGIS_CONTROLLER", CONTROLLER),
        metavar="URL",
        help=f"default: AEGIS_CONTROLLER, or {CONTROLLER}",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        default=argparse.SUPPRESS if of_verb else (Path(token_file) if token_file else None),
        metavar="FILE",
        help=f"needed to change something; default: AEGIS_TOKEN_FILE, or {ADMIN_TOKEN}",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=["table", "json"],
        default=argparse.SUPPRESS if of_verb else "table",
        help="default: table",
    )


def guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command, its errors printed as a sentence and a hint on stderr."""

    def guard(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except CommandError as error:
            print(f"aegis: {error}", file=sys.stderr)
            if error.hint:
                print(f"hint: {error.hint}", file=sys.stderr)
            return error.code

    return guard


@dataclass(frozen=True, slots=True)
class Client:
    """One controller's API."""

    url: str
    token_file: Path | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Client":
        """The controller that the command line names."""
        return cls(arguments.controller.rstrip("/"), arguments.token_file)

    def get(self, path: str, **query: object) -> Any:
        """What the controller answers."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self._ask("GET", path + (f"?{urlencode(given)}" if given else ""))

    def get_private(self, path: str) -> Any:
        """What it answers to those who show a token."""
        return self._ask("GET", path, is_private=True)

    def items(self, path: str, **query: object) -> Iterator[Any]:
        """All items of a list, page by page."""
        cursor = ""
        while True:  # ends with the last page
            answer = self.get(path, cursor=cursor, **query)
            yield from answer["items"]
            cursor = answer["next"]
            if not cursor:
                return

    def lines(self, path: str) -> Iterator[bytes]:
        """What the controller sends line by line."""
        import httpx  # noqa: PLC0415  not for --help

        try:
            with httpx.stream("GET", f"{self.url}/api/v1{path}", timeout=ANSWER_SECONDS) as answer:
                if not answer.is_success:
                    raise self._refused(answer.status_code, answer.read().decode())
                rest = b""
                for block in answer.iter_bytes(BLOCK_BYTES):
                    *whole, rest = (rest + block).split(b"\n")
                    yield from whole
                if rest:
                    yield rest
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise CommandError(
                f"there is no controller at {self.url} ({_cause(error)})",
                "start one with `aegis controller`, or name it with --controller",
                Exit.UNREACHABLE,
            ) from error

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What the controller answers to a change. A request that is repeated is done once."""
        return self._ask("POST", path, body)

    def delete(self, path: str) -> None:
        """Take something away."""
        self._ask("DELETE", path)

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        is_private: bool = False,
    ) -> Any:
        import httpx  # noqa: PLC0415  not for --help

        headers = {}
        if method != "GET":
            headers["idempotency-key"] = secrets.token_hex(16)
        if (method != "GET" or is_private) and (token := self._token()):
            headers["authorization"] = f"Bearer {token}"
        address = f"{self.url}/api/v1{path}"
        try:
            answer = httpx.request(
                method, address, json=body, headers=headers, timeout=ANSWER_SECONDS
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise CommandError(
                f"there is no controller at {self.url} ({_cause(error)})",
                "start one with `aegis controller`, or name it with --controller",
                Exit.UNREACHABLE,
            ) from error
        if answer.is_success:
            return _json(answer.text, address) if answer.text else None
        raise self._refused(answer.status_code, answer.text)

    def _refused(self, status: int, text: str) -> CommandError:
        try:
            problem = json.loads(text)
            detail, hint = str(problem["detail"]), str(problem.get("hint", ""))
        except (ValueError, KeyError, TypeError):
            detail, hint = f"{self.url} answered with status {status}", ""
        if status == 401 and self.token_file is None:
            hint = "name a file that holds a token with --token-file or AEGIS_TOKEN_FILE"
        return CommandError(detail, hint, _EXITS.get(status, Exit.FAILURE))

    def _token(self) -> str:
        """The token of the file that was named, or the admin's where it can be read."""
        file = self.token_file or ADMIN_TOKEN
        try:
            token = file.read_text(errors="replace").strip()
        except OSError as error:
            if self.token_file is None:
                return ""
            reason = (error.strerror or "unknown").lower()
            raise CommandError(
                f"the token file {file} cannot be read: {reason}", code=Exit.DENIED
            ) from error
        if not (token.isascii() and token.isprintable()):
            raise CommandError(
                f"the token file {file} holds no token",
                "name a file that does with --token-file or AEGIS_TOKEN_FILE",
                Exit.DENIED,
            )
        return token


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _cause(error: Exception) -> str:
    text = str(error).removeprefix("[Errno 111] ")
    return text.lower() or type(error).__name__


def _json(text: str, address: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{address} is not an Aegis controller: it sent no JSON") from error
