"""Jobs."""

from fastapi import APIRouter

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.api.paging import Cursor, Limit, page
from aegis.controller.problems import RESPONSES, not_found
from aegis.controller.services import Services
from aegis.controller.views import JobPage, Reason
from aegis.model.event import JobStopped
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


@router.post("/jobs/{name}:stop")
async def stop_job(name: str, body: Reason, here: Here, token: Operator) -> Job:
    """End the job for good."""
    _job(here, name)
    await here.loop.command(
        lambda at: JobStopped(at=at, job=name, actor=token.name, reason=body.reason)
    )
    return _job(here, name)


def _job(here: Services, name: str) -> Job:
    job = here.cluster.jobs.get(name)
    if job is None:
        raise not_found("job", name, sorted(here.cluster.jobs))
    return job
