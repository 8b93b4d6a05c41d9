"""The checkpoints of a job, where the controller sees their folder.

Looking is left to a process of its own (`aegis.worker.inspect`), so that the loop never waits for a
disk. What takes long is better done on a node: the command does so wherever it sees the folder.
"""

import asyncio
import json
import logging
import sys
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from pydantic import TypeAdapter

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.problems import RESPONSES, ProblemError, not_found
from aegis.controller.services import Services
from aegis.core.forecast import Interval, interval
from aegis.model.job import Job

router = APIRouter(tags=["checkpoints"], responses=RESPONSES, route_class=OnceRoute)

_LOOK_SECONDS_MAX = 12.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint, as far as it was looked at."""

    step: int
    path: str
    state: str
    reason: str
    bytes: int
    files: int
    at: float
    taken_at: float
    stall_seconds: float
    generation: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """All checkpoints of a job, the newest first, and how often it should save."""

    job: str
    folder: str
    interval: Interval
    items: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Which one; all of them without a step."""

    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequest:
    """How many stay, and why the others go."""

    reason: str
    keep: int = 3


_CHECKPOINTS = TypeAdapter(tuple[Checkpoint, ...])


@router.get("/jobs/{name}/checkpoints")
async def list_checkpoints(name: str, here: Here) -> CheckpointPage:
    """What lies in the job's folder: complete, bad, or unfinished. No shard is read."""
    return await _look(here, name, "list")


@router.get("/jobs/{name}/checkpoints/interval")
async def advise_interval(name: str, here: Here) -> Interval:
    """How often the job should save, by what saves cost it and how often it fails."""
    return interval(here.cluster, _job(here, name))


@router.post("/jobs/{name}/checkpoints:verify")
async def verify_checkpoints(
    name: str, body: VerifyRequest, here: Here, _token: Operator
) -> CheckpointPage:
    """Read every byte and compare it with the manifest."""
    words = [] if body.step is None else ["--step", str(body.step)]
    return await _look(here, name, "verify", *words)


@router.post("/jobs/{name}/checkpoints:prune")
async def prune_checkpoints(
    name: str, body: PruneRequest, here: Here, token: Operator
) -> CheckpointPage:
    """Delete those older than the newest that holds, but for some; the answer has the deleted."""
    _log.info(
        "Checkpoints are pruned.",
        extra={"job": name, "keep": body.keep, "actor": token.name, "reason": body.reason},
    )
    return await _look(here, name, "prune", "--keep", str(body.keep))


async def _look(here: Services, name: str, verb: str, *words: str) -> CheckpointPage:
    job = _job(here, name)
    items = await _ask(job, verb, *words) if verb != "list" or job.spec.checkpoint_folder else []
    return CheckpointPage(
        job=name,
        folder=job.spec.checkpoint_folder,
        interval=interval(here.cluster, job),
        items=tuple(_doubted(job, one) for one in _CHECKPOINTS.validate_python(items)),
    )


def _doubted(job: Job, one: Checkpoint) -> Checkpoint:
    """The next restore passes over what is suspect; only then is it marked in the folder."""
    by_suspect = one.files > 0 and one.generation <= job.suspect_generation
    if not job.suspect_since or not by_suspect or one.taken_at < job.suspect_since:
        return one
    return replace(one, state="suspect", reason="taken since a device was last read as good")


def _job(here: Services, name: str) -> Job:
    job = here.cluster.jobs.get(name)
    if job is None:
        raise not_found("job", name, sorted(here.cluster.jobs))
    return job


async def _ask(job: Job, verb: str, *words: str) -> list[dict[str, Any]]:
    folder = job.spec.checkpoint_folder
    if not folder:
        raise ProblemError(
            HTTPStatus.CONFLICT,
            f"job {job.spec.name} was started without a checkpoint folder",
            "start it with `aegis run --checkpoint-folder DIR`",
        )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aegis.worker.inspect", verb, folder, *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    on_a_node = f"on a node that sees the folder: `aegis checkpoints --folder {folder} {verb}`"
    try:
        said, _ = await asyncio.wait_for(process.communicate(), _LOOK_SECONDS_MAX)
        answer: dict[str, Any] = json.loads(said)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ProblemError(
            HTTPStatus.GATEWAY_TIMEOUT, f"this takes longer than {_LOOK_SECONDS_MAX:.0f} s here",
            f"do it {on_a_node}",
        ) from None  # fmt: skip
    except ValueError:
        raise ProblemError(
            HTTPStatus.NOT_IMPLEMENTED,
            "this controller cannot look into checkpoint folders",
            f"pip install 'aegis-supervisor[train]' there, or ask {on_a_node}",
        ) from None
    if "reason" in answer:
        raise ProblemError(HTTPStatus.CONFLICT, answer["reason"], f"ask {on_a_node}")
    items: list[dict[str, Any]] = answer["items"]
    return items
