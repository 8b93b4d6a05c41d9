"""Many invented fleets: whatever breaks, the promises hold."""

import os
import subprocess
import sys

import pytest

from aegis.sim.command import main
from aegis.sim.run import run

SEEDS = int(os.environ.get("AEGIS_SEEDS", "300"))
CHUNK = 10  # seeds in one test, so that several workers share them

# Each found a fault of the core. What a seed draws changes whenever the fleet learns something new;
# the stories that can be told in a few words stand in tests/scenarios, where they do not change.
FOUND = {
    119: "a node that was silent while its switch was down was taken for its link afterwards",
    184: "a lost node whose removal was held by a limit kept its job from going on",
    38: "a start that never ended was folded into the incident of the one before",
    98: "the first word after an outage condemned all who had not spoken yet",
    123: "a node that is out and speaks did not count as a witness",
    152: "a link that cleared and fell again was taken for one long outage",
    160: "an uncordoned silent node was taken while nobody could be heard",
    200: "a launcher that died while it spoke for itself was never missed",
    695: "ranks that failed while a person drained their node spent the last restart",
    1085: "a new controller acted on what it had been told in its life before",
    1450: "progress that was learned during a stop did not renew the budget",
    10442: "a late word from before a reboot displaced the launcher that came after",
    21180: "a reboot that was heard of twice started a generation beside one that ran",
    1581: "a link that was up again was taken for down after a restart",
    1580: "an agent that came back condemned the launcher that had not come back yet",
    611: "ranks that a controller without its log might adopt were told to stop by its answer",
    675: "ranks that were adopted on a node that a person was draining trained on there",
    1789: "a reboot whose restart people were asked about spent a second one when they had agreed",
    2454: "a node that was given up, and heard again in the same stop, was not waited for",
    3590: "a late word of a launcher of the run before displaced the launcher that trained",
    4305: "a switch was not suspected, since a link fell within the incident of a card's firmware",
    5409: "a generation that only a launcher without ranks knew was counted a second time",
    10644: "a node whose agent had not spoken since the log was lost was the third of its rack",
    10008: "after a restart a job was given up for a node that had not had the time to speak",
    5686: "a job was drained onto a spare that people were asked to take out as well",
    4859: "ranks that a controller without its log had not heard of were no excuse once it had",
    4811: "a moment of silence that was consent to the last bit was too short by rounding",
    12571: "ranks that were first heard of while an adoption was stopped were not waited for",
    13335: "a launcher that came late to a stop trained beside the generation that followed",
    12730: "what a launcher of an older generation trained on kept a stop from ending",
    19017: "steps of a generation that was over were taken for progress of the job",
    19661: "a job that failed within one event was held to have had no incident",
    16264: "a flood of other signals pushed out the fault that an incident was about",
    18093: "a rule asked for the cause of an incident that had forgotten it",
    6431: "an incident was looked at again when its own fault was no longer kept",
    830: "a node whose log was lost was quarantined while its launcher was stopping ranks",
}


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_promises_hold(first) -> None:
    """Safe at every moment; and once it is calm nothing is left halfway."""
    for seed in range(first, min(first + CHUNK, SEEDS)):
        _holds(seed)


@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: f"{seed}-{FOUND[seed].replace(' ', '-')}")
def test_seeds_that_once_failed(seed) -> None:
    """A seed that found something is run for ever."""
    _holds(seed)


def _holds(seed: int) -> None:
    result = run(seed)
    tail = "\n".join(result.lines[-40:])
    assert not result.broken, (
        f"seed {seed}: {result.broken}\n{tail}\naegis sim run --seeds 1 --first-seed {seed} --log"
    )


def test_same_seed_same_log() -> None:
    """A seed is the whole story: two runs of it leave the same log."""
    assert run(7).lines == run(7).lines


def test_same_seed_same_log_in_every_process() -> None:
    """Nothing hangs on the order of a set, which differs from one Python process to the next."""
    logs = {_log_of(seed=5, hash_seed=hash_seed) for hash_seed in ("1", "2")}
    assert len(logs) == 1


def _log_of(*, seed: int, hash_seed: str) -> str:
    words = [sys.executable, "-m", "aegis.sim", "run", "--seeds=1", f"--first-seed={seed}", "--log"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) > 10
    return "\n".join(lines[:-1])  # the last one says how long it took


def test_a_broken_promise_is_named_with_the_way_to_see_it_again(monkeypatch, capsys) -> None:
    """The command fails, names the seed, and prints what replays it with its log."""
    monkeypatch.setattr("aegis.core.recover.is_gone", lambda *_: True)
    assert main(["run", "--seeds", "4", "--first-seed", "1"]) == 1
    said = capsys.readouterr().out
    assert "broke a promise" in said
    assert "aegis sim run --seeds 1 --first-seed" in said


def test_what_the_core_dies_of_is_named_with_its_seed_and_the_others_are_run(
    monkeypatch, capsys
) -> None:
    """An exception ends one seed, not the whole run, and says where it was raised."""
    monkeypatch.setattr("aegis.core.recover.is_gone", lambda *_: "".index("x"))
    assert main(["run", "--seeds", "4", "--first-seed", "1"]) == 1
    said = capsys.readouterr().out
    assert "broke a promise: ValueError in " in said
    assert "substring not found" in said
    assert said.splitlines()[-1].startswith("4 seeds, ")


def test_seeds_that_hold_are_counted(capsys) -> None:
    """The command says how much it tried, and exits with 0."""
    assert main(["run", "--seeds", "2"]) == 0
    assert "2 seeds, 0 broke a promise" in capsys.readouterr().out
