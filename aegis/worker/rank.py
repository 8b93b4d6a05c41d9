"""Becoming a rank: what a forked child does so that an unchanged script sees what it expects.

A session and process group of its own, the kernel's promise to end it with its parent, the usual
signal handlers, its own output files, environment, folder, `sys.argv` and `sys.path`, and random
states that differ from its siblings' where they would under torchrun.
"""

import faulthandler
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from aegis.worker import stacks
from aegis.worker.lifeline import end_with

channel: socket.socket | None = None  # this process's line to the ranks' parent
_HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """All that a rank needs to begin."""

    generation: int
    local_rank: int
    kind: str  # "script", "module" or "program"
    target: str
    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    stdout: str
    stderr: str


def detach(order: RankOrder, parent: int) -> None:
    """Stop being a copy of the parent. Called at once after the fork."""
    end_with(parent)
    os.setsid()
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    redirect(1, order.stdout)
    redirect(2, order.stderr)
    os.environ.update(order.environment)
    os.chdir(order.folder)


def redirect(descriptor: int, path: str) -> None:
    """Have what is written there go into this file."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(opened, descriptor)
    os.close(opened)


def be_seen(order: RankOrder) -> None:
    """Leave what this rank says when it is asked beside its output."""
    stacks.answer(Path(order.stderr).parent)
    stacks.record_flights(Path(order.stderr).parent)


def run(order: RankOrder, tell: Callable[[BaseException], None] | None = None) -> int:
    """Run the user's script as if Python had been started on it; its exit status."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()
    _draw_anew()
    sys.argv = [order.target, *order.arguments]
    try:
        _become(order)
    except SystemExit as error:
        return _status(error.code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001  whatever a script raises is its failure
        (tell or tell_failure)(error)
        return 1
    return 0


def _become(order: RankOrder) -> None:
    match order.kind:
        case "program":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; programs do not
            os.execvp(order.target, sys.argv)  # noqa: S606  as torchrun does
        case "module":
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(order.target, run_name="__main__", alter_sys=True)
        case _:
            sys.path.insert(0, str(Path(order.target).resolve().parent))
            runpy.run_path(order.target, run_name="__main__")


def _draw_anew() -> None:
    """Forked ranks would all draw the same numbers; Python's own `random` sees to itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)  # noqa: T201  as Python does
    return 1


def tell_failure(error: BaseException) -> None:
    """Print the traceback as Python would, and keep it where the launcher looks for the cause."""
    trace = from_script(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    path = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if not path or Path(path).exists():  # @record was first
        return
    lines = traceback.format_exception(type(error), error, trace)
    last = traceback.format_exception_only(error)[-1].strip()
    extra = {"py_callstack": "".join(lines), "timestamp": str(int(time.time()))}
    message = {"message": {"message": last, "extraInfo": extra}}
    try:
        Path(path).write_text(json.dumps(message))
    except OSError as trouble:
        print(f"the error file was not written: {trouble}", file=sys.stderr)  # noqa: T201


def from_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that led to the script; none where it never ran."""
    ours = {__file__, "<frozen runpy>", runpy.__file__}
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace
