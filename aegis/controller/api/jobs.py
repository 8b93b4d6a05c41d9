"""Jobs."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from fastapi import APIRouter

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.api.paging import Cursor, Limit, page
from aegis.controller.problems import RESPONSES, not_found
from aegis.controller.services import Services
from aegis.controller.tokens import Token
from aegis.controller.views import Exclusion, JobPage, JobVerb, Reason, Restart
from aegis.core import history, job_plan
from aegis.model.event import Event, JobNodeExcluded, JobRestarted, JobStopped
from aegis.model.job import Job

router = APIRouter(tags=["jobs"], responses=RESPONSES, route_class=OnceRoute)


@router.get("/jobs")
async def list_jobs(here: Here, limit: Limit = 200, cursor: Cursor = "") -> JobPage:
    """All jobs, by name."""
    names, following = page(sorted(here.cluster.jobs), limit, cursor)
    return JobPage(items=tuple(here.cluster.jobs[name] for name in names), next=following)


@router.get("/jobs/{name}")
async def show_job(name: str, here: Here) -> Job:
    """One job with its members and attempts."""
    return _job(here, name)


@router.get("/jobs/{name}/history")
async def tell_history(name: str, here: Here) -> history.History:
    """Its generations: how far each came, the steps lost with it, the downtime by phase."""
    return history.of_job(here.cluster, _job(here, name))


@router.get("/jobs/{name}/plan")
async def tell_plan(
    name: str, verb: JobVerb, here: Here, node: str = "", *, at_once: bool = False
) -> job_plan.JobPlan:
    """What a verb would do to the job now, or why it would be refused. Nothing is done."""
    _job(here, name)
    said: dict[str, Any] = {"at": time.time(), "job": name, "actor": "", "reason": ""}
    match verb:
        case JobVerb.STOP:
            return job_plan.plan(here.cluster, JobStopped(**said))
        case JobVerb.RESTART:
            return job_plan.plan(here.cluster, JobRestarted(**said, at_once=at_once))
        case JobVerb.EXCLUDE_NODE | JobVerb.INCLUDE_NODE:
            excluded = verb is JobVerb.EXCLUDE_NODE
            event = JobNodeExcluded(**said, node=node, excluded=excluded)
            return job_plan.plan(here.cluster, event)
        case _:
            assert_never(verb)


@router.post("/jobs/{name}:stop")
async def stop_job(name: str, body: Reason, here: Here, token: Operator) -> Job:
    """End the job for good."""
    return await _do(here, name, JobStopped, token, body.reason)


@router.post("/jobs/{name}:restart")
async def restart_job(name: str, body: Restart, here: Here, token: Operator) -> Job:
    """Start its ranks anew, after a save where there is time for one."""
    verb = partial(JobRestarted, at_once=body.at_once)
    return await _do(here, name, verb, token, body.reason)


@router.post("/jobs/{name}:exclude-node")
async def exclude_node(name: str, body: Exclusion, here: Here, token: Operator) -> Job:
    """Keep the job off a node; ranks that it has there are moved, saving first."""
    verb = partial(JobNodeExcluded, node=body.node)
    return await _do(here, name, verb, token, body.reason)


@router.post("/jobs/{name}:include-node")
async def include_node(name: str, body: Exclusion, here: Here, token: Operator) -> Job:
    """Let the job go to a node again that it was kept off."""
    verb = partial(JobNodeExcluded, node=body.node, excluded=False)
    return await _do(here, name, verb, token, body.reason)


async def _do(
    here: Services, name: str, verb: Callable[..., Event], token: Token, reason: str
) -> Job:
    _job(here, name)
    await here.loop.command(lambda at: verb(at=at, job=name, actor=token.name, reason=reason))
    return _job(here, name)


def _job(here: Services, name: str) -> Job:
    job = here.cluster.jobs.get(name)
    if job is None:
        raise not_found("job", name, sorted(here.cluster.jobs))
    return job
