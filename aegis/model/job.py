"""A training job, its launchers, and the generation of ranks that runs it now."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """Where a job is between two generations."""

    WAITING = "waiting"  # too few nodes; no ranks anywhere
    STARTING = "starting"  # launchers are told to start their ranks
    RUNNING = "running"  # every rank of the generation is alive
    STOPPING = "stopping"  # launchers are told to stop their ranks
    DONE = "done"  # every rank exited with 0
    FAILED = "failed"  # given up, see reason


class RankPhase(StrEnum):
    """What a rank is doing."""

    STARTING = "starting"  # the process exists
    LOADING = "loading"  # reading its checkpoint
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"  # told by the script: no step is expected meanwhile
    ENDING = "ending"  # training is over; what the script still does takes as long as it takes
    EXITED = "exited"


class LauncherPhase(StrEnum):
    """What a launcher is doing. A launcher without ranks is a spare."""

    IDLE = "idle"  # no ranks
    STARTING = "starting"  # ranks are being started
    RUNNING = "running"  # all its ranks are alive
    STOPPING = "stopping"
    FAILED = "failed"  # a rank of the generation failed; none is left alive
    DONE = "done"  # all its ranks exited with 0


class StopKind(StrEnum):
    """How to stop: `drain_saving` or `drain_now`."""

    SAVING = "saving"  # SIGTERM, a checkpoint at the next step boundary within the grace, then kill
    NOW = "now"  # kill at once: a save would keep corrupt tensors with perfect hashes


class Tier(StrEnum):
    """Where a rank found what it restored."""

    MEMORY = "memory"  # of its own launcher
    PEER = "peer"  # memory of another node
    DISK = "disk"  # a local disk
    FOLDER = "folder"  # the checkpoint folder


def tiers(found: Iterable[Tier | None]) -> tuple[Tier, ...]:
    """Each of them once, the nearest first."""
    known = set(found)
    return tuple(tier for tier in Tier if tier in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank as its launcher sees it. Times are the node's clock, 0.0 for not yet."""

    rank: int
    local_rank: int
    pid: int
    phase: RankPhase
    step: int = 0
    loss: float | None = None
    started_at: float = 0.0
    loaded_at: float = 0.0  # state restored (or initialised), about to train
    first_step_at: float = 0.0  # first optimizer step of this generation completed
    last_step_at: float = 0.0
    exit_code: int | None = None
    signal: int | None = None
    loss_not_finite: str = ""  # "NaN", "inf" or "-inf", where `loss` cannot say it
    own_seconds: float = 0.0  # a step's time that is this rank's alone, lately; 0: not told


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """The first failure a launcher saw in a generation."""

    generation: int
    rank: int
    at: float  # the node's clock
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    last_step: int = 0
    text: str = ""  # one sentence: "rank 2 was killed by SIGKILL"
    error: str = ""  # traceback from the error file, or the last lines of stderr
    victim: bool = False  # it says itself that it lost another rank
    victims: tuple[int, ...] = ()  # ranks of this node that ended of it, before they were killed


class HangCause(StrEnum):
    """Why a launcher says that its ranks hang."""

    STOPPED = "stopped"  # a process is stopped by a signal (state T)
    UNINTERRUPTIBLE = "uninterruptible"  # a process waits in the kernel for too long (state D)
    SILENT = "silent"  # no step, for much longer than steps of this job take


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """What a rank looked like when its launcher took it for stuck."""

    rank: int
    phase: RankPhase
    step: int
    state: str  # the kernel's letter: R runs, S sleeps, D waits in the kernel, T is stopped
    silent_seconds: float  # since it last completed a step or entered a phase
    kernel: str = ""  # where it waits in the kernel, or the system call
    stack: tuple[str, ...] = ()  # of its main thread, innermost first: "train.py:31 train_one"
    moves: bool = False  # its stack was another one shortly before: it works, or goes round
    text: str = ""  # the whole of what was taken, of all threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A launcher's word that its ranks do not come on, with what they looked like."""

    generation: int
    cause: HangCause
    at: float  # the node's clock
    limit_seconds: float = 0.0  # how long it waited
    step_seconds: float = 0.0  # what a step took before; 0: not known
    observed: bool = False  # --no-hang-detection: told, and never acted upon
    ranks: tuple[RankView, ...] = ()
    folder: str = ""  # on its node: stacks and flight recordings


class SignalKind(StrEnum):
    """What a launcher noticed of a rank that goes on."""

    LOSS_NAN = "loss_nan"
    LOSS_SPIKE = "loss_spike"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSignal:
    """Something to tell people of a rank, once in a generation."""

    kind: SignalKind
    rank: int
    step: int
    at: float  # the node's clock
    text: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCheckpoint:
    """A checkpoint that failed verification and was passed over."""

    step: int
    path: str
    reason: str  # names the shard: "shard 1 of rank 2: hash differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asked for, the same from every launcher of the job."""

    name: str
    nodes: int  # --nnodes
    ranks_per_node: int  # --nproc-per-node
    spares: int = 0
    restarts_max: int = 3  # restarts without progress
    owner: str = ""
    command: str = ""
    checkpoint_folder: str = ""
    log_pattern: str = ""  # reads progress from lines, which may be printed on one node only


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherState:
    """A launcher's whole state."""

    spec: JobSpec
    launcher: str  # drawn at its start: a launcher that died and came back is another one
    address: str  # where ranks of other nodes reach this node
    store_port: int = 0  # an unused store, another after each generation (started or refused)
    phase: LauncherPhase = LauncherPhase.IDLE
    generation: int = 0  # the newest generation it has started (or refused)
    epoch: int = 0
    standbys: int = 0  # pre-imported processes ready to become ranks
    ranks: tuple[RankState, ...] = ()
    stopped_at: float = 0.0  # when the last rank of the generation was gone, node's clock
    failure: RankFailure | None = None
    resumed_step: int | None = None  # what its ranks restored in this generation; None: not yet
    resumed_from: tuple[Tier, ...] = ()  # where they found it; (): nowhere, or they do not say
    checkpoint_step: int = 0  # newest committed and verified checkpoint it knows of
    checkpoint_at: float = 0.0
    checkpoint_stall_seconds: float = 0.0  # for which the newest kept the loop waiting; 0: unknown
    checkpoint_durable_seconds: float = 0.0  # and from then until it was complete on disk
    rejected: tuple[RejectedCheckpoint, ...] = ()  # in this generation
    hang: Hang | None = None  # of this generation, for as long as it lasts
    signals: tuple[RankSignal, ...] = ()  # of this generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's place in a generation, in rank order."""

    node: str
    launcher: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All a launcher needs to start its ranks of a generation."""

    members: tuple[Member, ...]
    ranks_per_node: int
    master_address: str
    master_port: int  # the first member's store, fresh for this generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a launcher should be running, whole. `world=None` means no ranks.

    A launcher starts a generation once, only if it is greater than any it started before and it is
    itself among the members; ranks of an older generation are stopped first. It ignores an
    assignment with a smaller (epoch, sequence) than one it has obeyed, and one that was meant for
    another launcher: an agent may still hold what the one before it was told. One without a world
    makes it refuse the generation: it never starts it, reports it as its own `generation`, and
    opens a fresh store, since other members may have been told of the one it had.
    """

    job: str
    launcher: str = ""  # whom it is meant for; "": whoever runs the job here
    epoch: int  # of the controller: the fencing token
    sequence: int  # grows with every assignment of this job
    generation: int
    world: World | None = None
    stop: StopKind = StopKind.NOW
    stop_grace_seconds: float = 0.0
    take_stacks: bool = False  # of the ranks, before they are killed
    finished: bool = False  # the job is done, failed or stopped: the launcher may exit
    exit_code: int = 0  # what the launcher should exit with when finished; 93: do not requeue
    reason: str = ""
    labels: tuple[tuple[str, str], ...] = ()  # of the node: where copies of its memory must not go
    suspect_since: float = 0.0  # checkpoints taken from then on are passed over; 0: none is
    suspect_generation: int = 0  # if this generation or an older one took them


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One generation of a job, kept as its history."""

    generation: int
    nodes: tuple[str, ...]
    started_at: float
    resumed_step: int | None = None
    resumed_from: tuple[Tier, ...] = ()  # where its ranks found that; (): they do not say
    ended_at: float | None = None
    last_step: int = 0
    reason: str = ""  # why it ended
    incident: str | None = None  # the one that it answers
    stop_at: float = 0.0  # its end was ordered
    first_step_at: float = 0.0  # every rank has completed a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the controller believes about one job."""

    spec: JobSpec
    state: JobState = JobState.WAITING
    since: float = 0.0
    submitted_at: float = 0.0
    reason: str = ""
    generation: int = 0
    sequence: int = 0  # of the last assignment
    members: tuple[Member, ...] = ()
    master_port: int = 0
    awaiting: frozenset[str] = frozenset()  # nodes whose launcher does not yet agree
    stop: StopKind = StopKind.NOW
    excluded: tuple[str, ...] = ()  # nodes that people keep it off
    suspect_since: float = 0.0  # checkpoints taken from then on are passed over; 0: none is
    suspect_generation: int = 0  # if this generation or an older one took them
    stop_requested: bool = False  # an operator wants it stopped for good
    giving_up: bool = False  # once its ranks are gone it is failed
    incident: str | None = None  # the incident that the next generation answers
    step: int = 0  # newest step seen on every rank
    loss: float | None = None
    loss_not_finite: str = ""  # "NaN", "inf" or "-inf": then `loss` is the last number before
    progress_at: float = 0.0
    step_at: float = 0.0  # when the newest step was first seen
    step_seconds: float = 0.0  # a step takes so long, lately; 0: not yet known
    trained_at: float = 0.0  # when its first generation was first seen to train
    checkpoint_step: int = 0
    checkpoint_at: float = 0.0
    checkpoint_seconds: float = 0.0  # between two checkpoints, lately; 0: not yet known
    checkpoint_stall_seconds: float = 0.0  # for which one keeps the loop waiting; 0: unknown
    checkpoint_durable_seconds: float = 0.0  # and from then until it is complete on disk
    best_step: int = 0  # highest verified checkpoint of any generation: what counts as progress
    restarts_without_progress: int = 0
    restarts: int = 0
    exit_code: int = 0  # what launchers exit with once it is done or failed
    ended_launchers: frozenset[str] = frozenset()  # they belong to a run of this name that is over
    ended_exit_code: int = 0  # of that run
    hang_since: float = 0.0  # when a launcher was first heard to say so; 0: none does
    signalled: tuple[str, ...] = ()  # what people were told of this generation: "3 loss_nan"
    slow: tuple[tuple[int, float], ...] = ()  # ranks slower than their peers, and since when
    attempts: tuple[Attempt, ...] = ()  # the newest 50
