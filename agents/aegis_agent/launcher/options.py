"""What the user asked for: torchrun's flags, and a few of our own."""

import argparse
import getpass
import ipaddress
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from urllib.parse import urlsplit

from aegis.model.job import JobSpec
from aegis_agent.launcher import ahead, log_progress
from aegis_agent.launcher.ahead import Ahead
from aegis_agent.launcher.errors import UsageError
from aegis_agent.launcher.world_size import at_least, read_nodes, read_ranks_per_node

SCRIPT, MODULE, PROGRAM = "script", "module", "program"
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What each rank runs."""

    kind: str
    target: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        flag = {SCRIPT: [], MODULE: ["-m"], PROGRAM: ["--no-python"]}[self.kind]
        return shlex.join([*flag, self.target, *self.arguments])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that a launcher must know."""

    spec: JobSpec
    command: Command
    node: str
    address: str
    log_folder: Path | None  # None: a temporary one
    checkpoint_folder: Path | None
    tee: str
    agent_socket: Path | None
    controller: str | None
    token_file: Path | None
    isolation_seconds: float
    stop_grace_seconds: float
    hang_floor_seconds: float
    hang_detection: bool
    ahead: Ahead
    resume_pattern: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def embeds_controller(self) -> bool:
        """Whether there is nobody to ask and the launcher brings its own controller."""
        return self.agent_socket is None and self.controller is None


class _Ignored(argparse.Action):
    """A flag of torchrun's that has no meaning here; it is accepted, and said to be ignored."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.ignored = [*(getattr(namespace, "ignored", None) or []), option_string]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, the script, and everything after it."""
    _add_job(parser)
    _add_node(parser)
    ahead.add_arguments(parser)
    log_progress.add_argument(parser)
    _add_ignored(parser)
    parser.add_argument("script", metavar="SCRIPT", help="the training script (or module, program)")
    parser.add_argument("script_arguments", nargs=argparse.REMAINDER, metavar="...")


def _torchrun(name: str, default: str) -> str:
    """What the environment says of a flag: torchrun reads PET_NNODES and its like."""
    return os.environ.get(f"PET_{name}", default)


def _add_job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the job")
    add = group.add_argument
    add("--job", metavar="NAME", help="its name (default: the script's)")
    add(
        "--nnodes",
        default=_torchrun("NNODES", "1"),
        metavar="N",
        help="nodes that train (default: 1)",
    )
    add(
        "--nproc-per-node",
        "--nproc_per_node",
        default=_torchrun("NPROC_PER_NODE", "1"),
        metavar="N",
        help="ranks on each: a number, gpu, cpu or auto (default: 1)",
    )
    add("--spares", type=int, default=0, metavar="N", help="further nodes that stand by")
    add(
        "--max-restarts",
        "--max_restarts",
        type=int,
        default=_torchrun("MAX_RESTARTS", "3"),
        metavar="N",
        help="restarts without progress before giving up (default: %(default)s)",
    )
    add("--checkpoint-folder", type=Path, metavar="DIR", help="the job's, on shared storage")
    add("--resume-pattern", default="", metavar="GLOB", help="the script's own checkpoint files")
    add("-m", "--module", action="store_true", help="SCRIPT is a module's name")
    add("--no-python", "--no_python", action="store_true", help="SCRIPT is a program")
    add(
        "--print",
        action="store_true",
        dest="print_only",
        help="print what would be run, and do nothing",
    )


def _add_node(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("this node")
    add = group.add_argument
    add("--node", metavar="NAME", help="its name (default: the host's)")
    add(
        "--address",
        "--local-addr",
        "--local_addr",
        metavar="ADDRESS",
        help="where ranks of other nodes reach this one (default: towards the controller)",
    )
    add(
        "--agent-socket",
        type=Path,
        metavar="PATH",
        default=os.environ.get("AEGIS_AGENT_SOCKET") or None,
        help="where this node's agent listens",
    )
    add(
        "--controller",
        metavar="URL",
        default=os.environ.get("AEGIS_CONTROLLER") or None,
        help="asked directly while the agent is away ($AEGIS_CONTROLLER)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        default=os.environ.get("AEGIS_TOKEN_FILE") or None,
        help="this node's token",
    )
    add(
        "--log-dir",
        "--log_dir",
        type=Path,
        default=_torchrun("LOG_DIR", "") or None,
        metavar="DIR",
        help="where ranks' output goes",
    )
    add(
        "-t",
        "--tee",
        default=_torchrun("TEE", ""),
        metavar="SPEC",
        help="whose output is shown too: 0 none, 1 stdout, 2 stderr, 3 both, of all ranks; "
        "0:3,1:2 by local rank (default: both of rank 0)",
    )
    add(
        "--isolation-seconds",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="stop the ranks when nobody has answered and nothing has moved for so long "
        "(default: %(default)s)",
    )
    add(
        "--stop-grace-seconds",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for ranks to save when this command is interrupted (default: %(default)s)",
    )
    add(
        "--hang-floor",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="ranks without a step for so long, and for five times the usual step, hang "
        "(default: %(default)s)",
    )
    add(
        "--no-hang-detection",
        action="store_false",
        dest="hang_detection",
        help="tell of ranks that hang, and restart nothing for it",
    )


def _add_ignored(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("torchrun's flags that have no meaning here")
    for flag in (
        "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "node-rank", "master-addr",
        "master-port", "monitor-interval", "start-method", "role", "redirects", "logs-specs",
        "signals-to-handle", "local-ranks-filter", "duplicate-stdout-filters",
        "duplicate-stderr-filters", "event-log-handler", "numa-binding", "shutdown-timeout",
    ):  # fmt: skip
        names = [f"--{flag}", f"--{flag.replace('-', '_')}"]
        names += ["-r"] if flag == "redirects" else []
        group.add_argument(*names, action=_Ignored, help=argparse.SUPPRESS, dest="ignored")
    for flag in ("standalone", "run-path"):
        names = [f"--{flag}", f"--{flag.replace('-', '_')}"]
        group.add_argument(*names, nargs=0, action=_Ignored, help=argparse.SUPPRESS, dest="ignored")


def read(arguments: argparse.Namespace) -> Options:
    """The options, or UsageError with a sentence that says what to change."""
    command = _command(arguments)
    folder = _absolute(arguments.checkpoint_folder)
    spec = JobSpec(
        name=_job_name(arguments.job or _default_name(command)),
        nodes=read_nodes(arguments.nnodes),
        ranks_per_node=read_ranks_per_node(arguments.nproc_per_node),
        spares=at_least(arguments.spares, 0, "--spares"),
        restarts_max=at_least(arguments.max_restarts, 0, "--max-restarts"),
        owner=getpass.getuser(),
        command=str(command),
        checkpoint_folder=str(folder or ""),
        log_pattern=log_progress.checked(arguments.log_pattern),
    )
    options = Options(
        spec=spec,
        command=command,
        node=arguments.node or socket.gethostname(),
        address=arguments.address or _address(spec, arguments),
        log_folder=_absolute(arguments.log_dir),
        checkpoint_folder=folder,
        resume_pattern=arguments.resume_pattern,
        tee=arguments.tee,
        agent_socket=_absolute(arguments.agent_socket),
        controller=arguments.controller,
        token_file=_absolute(arguments.token_file),
        isolation_seconds=arguments.isolation_seconds,
        stop_grace_seconds=arguments.stop_grace_seconds,
        hang_floor_seconds=_hang_floor(arguments.hang_floor),
        hang_detection=arguments.hang_detection,
        ahead=ahead.read(arguments, spec.ranks_per_node, [import_folder(command), *sys.path]),
        ignored=tuple(dict.fromkeys(arguments.ignored or ())),
    )
    _check_whole(options)
    return options


def _check_whole(options: Options) -> None:
    spec = options.spec
    wanted = spec.nodes + spec.spares
    if options.embeds_controller and wanted > 1:
        raise UsageError(
            f"{wanted} nodes need a controller they can all reach: name it with --controller URL "
            "--token-file FILE, or this node's agent with --agent-socket PATH"
        )
    parts = urlsplit(options.controller or "http://embedded")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--controller {options.controller}: say its URL, as http://10.0.0.1:8500")
    if options.controller and options.agent_socket is None and options.token_file is None:
        raise UsageError(
            "the controller wants this node's token: "
            f"`aegis nodes token {options.node}` mints one; pass it with --token-file"
        )


def _absolute(path: Path | str | None) -> Path | None:
    return None if path is None else Path(path).absolute()


def _command(arguments: argparse.Namespace) -> Command:
    if arguments.module and arguments.no_python:
        raise UsageError("-m and --no-python exclude each other")
    kind = MODULE if arguments.module else PROGRAM if arguments.no_python else SCRIPT
    target = _found(kind, arguments.script)
    return Command(kind=kind, target=target, arguments=tuple(arguments.script_arguments))


def _found(kind: str, target: str) -> str:
    """What the ranks are to run, once it is sure that it is there."""
    if kind == PROGRAM:
        if shutil.which(target) is None:
            raise UsageError(f"there is no program {target} that can be run; name one on the PATH")
        return target
    if kind == MODULE:
        # Only the top of it: to look further would run the package's own code here.
        top = target.partition(".")[0]
        if PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
            raise UsageError(
                f"there is no module {target}: {top} is neither in this folder nor among this "
                "Python's packages; name one of them, or a Python file without -m"
            )
        return target
    path = Path(target)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(f"the script {target} {what}; name a Python file, or a module with -m")
    return str(path.absolute())


def import_folder(command: Command) -> str:
    """Where Python looks first for what the ranks import."""
    script = command.kind == SCRIPT
    return str(Path(command.target).resolve().parent if script else Path.cwd())


def _default_name(command: Command) -> str:
    name = command.target if command.kind == MODULE else Path(command.target).stem
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip("._-") or "job"


def _job_name(name: str) -> str:
    if not _JOB_NAME.fullmatch(name):
        raise UsageError(
            f"--job {name!r}: a job's name is made of letters, digits, dots, dashes and underscores"
        )
    return name


def _hang_floor(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--hang-floor {seconds:g}: say seconds, more than 0")
    return seconds


def _address(spec: JobSpec, arguments: argparse.Namespace) -> str:
    """This machine's address on the way to the controller; itself when it is alone."""
    if spec.nodes + spec.spares == 1:
        return "127.0.0.1"
    host = urlsplit(arguments.controller or "").hostname or socket.gethostname()
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])  # sends nothing: it only asks which way it would go
            address = str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(
            f"no address of this node was found ({error}); say one with --address"
        ) from error
    by_name = arguments.agent_socket and not arguments.controller
    if by_name and ipaddress.ip_address(address).is_loopback:  # Debian's 127.0.1.1
        raise UsageError(
            f"{host} is {address} to this node, where no other node reaches it: "
            "say its address with --address, or the way there with --controller URL"
        )
    return address


def parse_tee(text: str, local_ranks: Sequence[int], first: int | None) -> dict[int, int]:
    """Which streams of which local rank are shown: 1 stdout, 2 stderr, 3 both."""
    if not text:
        return {} if first is None else {first: 3}
    try:
        if ":" not in text:
            shown = dict.fromkeys(local_ranks, int(text))
        else:
            pairs = [part.split(":") for part in text.split(",")]
            shown = {int(rank): int(streams) for rank, streams in pairs}
    except ValueError:
        shown = {-1: -1}
    if any(streams not in range(4) for streams in shown.values()):
        raise UsageError(f"--tee {text}: say 0, 1, 2 or 3, or a list like 0:3,1:2")
    return {rank: streams for rank, streams in shown.items() if streams and rank in local_ranks}
