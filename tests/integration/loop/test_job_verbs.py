"""What people ask of a job that trains, on real ranks."""

import httpx
import pytest

from aegis.cli.demo.fleet import JOB, read_losses

pytestmark = pytest.mark.slow


def ask(fleet, verb, **body):
    """Ask it of the controller, as the command line does."""
    admin = fleet.admin_token.read_text().strip()
    answer = httpx.post(
        f"{fleet.url}/api/v1/jobs/{JOB}:{verb}",
        json={"reason": "a test", **body},
        headers={"Authorization": f"Bearer {admin}"},
    )
    return answer.raise_for_status().json()


def goes_on(fleet, generation):
    """Wait until a later generation trains."""
    fleet.wait(
        lambda: (
            (job := fleet.job())
            and job["state"] == "running"
            and job["generation"] > generation
            and job["attempts"][-1]["first_step_at"]
        ),
        120,
        "the job to go on",
    )
    return fleet.job()


def test_a_planned_move_costs_no_step(fleet):
    """The ranks save at the step at which they stop, and go on at exactly that one, elsewhere."""
    before = fleet.job()
    left = before["members"][-1]["node"]
    ask(fleet, "exclude-node", node=left)
    after = goes_on(fleet, before["generation"])
    assert left not in [member["node"] for member in after["members"]]
    told = fleet.get(f"/api/v1/jobs/{JOB}/history")
    lap = next(one for one in told["laps"] if one["generation"] == before["generation"])
    assert lap["steps_lost"] == 0
    assert lap["downtime"]["stop"] is not None
    assert after["restarts"] == before["restarts"]
    trained = [one.step for one in read_losses(fleet.losses)]
    assert len(trained) == len(set(trained)), "a step was trained twice"


def test_a_restart_without_a_save_goes_back_to_the_newest_checkpoint(fleet):
    """For a job that hangs; it says what it has cost."""
    before = fleet.job()
    fleet.wait(lambda: fleet.job()["step"] > before["step"] + 12, 60, "some steps")
    generation = fleet.job()["generation"]
    ask(fleet, "restart", at_once=True)
    after = goes_on(fleet, generation)
    told = fleet.get(f"/api/v1/jobs/{JOB}/history")
    lap = next(one for one in told["laps"] if one["generation"] == generation)
    assert lap["steps_lost"] == max(0, lap["last_step"] - after["attempts"][-1]["resumed_step"])
    assert told["downtime_seconds"] > 0
