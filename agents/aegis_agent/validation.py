"""Looks closely at this node before it serves again: on the controller's order, or by a command.

Orders are levels, as those to the root helper are: each stands in the controller's answers until it
has ended, and its result is told in every report until then. An agent that died in the middle
begins anew, for what it had found is only worth something whole.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from aegis.model.node import Device
from aegis.model.validation import (
    Depth,
    Step,
    ValidationOrder,
    ValidationResult,
    ValidationState,
    outcome,
    refusal,
)
from aegis_agent.book import Book
from aegis_agent.probes import validation as judging
from aegis_agent.probes.baseline import Baseline, compare, learn
from aegis_agent.probes.check_entry import Check
from aegis_agent.settings import Settings
from aegis_agent.sources import checks as runs
from aegis_agent.sources import loopback

_log = logging.getLogger(__name__)
_RESULT, _BASELINE = TypeAdapter(ValidationResult), TypeAdapter(Baseline)
_KEY, BASELINE_KEY = "validation ", "baseline"
_SETTLE_POLLS = 60  # what is here is not learned while the agent is still finding it
_LEARN_SECONDS = 60.0
_POLLS_AFTER = 3  # until the senses have read what the trial has counted up
_CHILD_SECONDS = {Depth.LIGHT: 50.0, Depth.FULL: 300.0}
_RANKS_SECONDS = {Depth.LIGHT: 35.0, Depth.FULL: 270.0}
_GPU_FRACTION = {Depth.LIGHT: 0.25, Depth.FULL: 0.9}
_STANDING = (ValidationState.WORKING,)


def read_baseline(memory: str | None) -> Baseline | None:
    """As the spool remembers it; None: nothing is known yet, or it cannot be read."""
    try:
        return _BASELINE.validate_json(memory) if memory else None
    except ValueError:  # written by another version
        return None


async def steps(
    settings: Settings,
    depth: Depth,
    look: Callable[[], tuple[tuple[Device, ...], Step]],
    baseline: Baseline | None,
    look_again: Callable[[], Awaitable[None]],
) -> AsyncIterator[Step]:
    """Every step of a validation, each as it ends.

    `look` gives the devices and what lasts on them, as of the last look; `look_again` waits for one
    that is newer.
    """
    before, lasting = look()
    for step in (*compare(baseline, before), lasting):
        yield step
    gates = dict(settings.gates)
    ports = _ports(before)
    if ports:
        began_at = time.monotonic()
        measured = await loopback.measure(ports)
        spent = round(time.monotonic() - began_at, 3)
        yield judging.looped(measured, gates.get("loopback_gbps"), spent)
    gpus = sum(one.kind == "gpu" and one.used for one in before)
    for step in await _child(settings, depth, gpus):
        yield step
    if depth is Depth.FULL:
        for check in settings.checks:
            if check.on_return:
                yield await _checked(settings.node, check)
    await look_again()
    after, _ = look()
    yield judging.quiet(before, after)


def _ports(devices: Iterable[Device]) -> dict[str, str]:
    """The RDMA device of each port that training uses."""
    nics = [one for one in devices if one.kind == "nic" and one.used]
    return {one.name: dict(one.facts)["rdma"] for one in nics if dict(one.facts).get("rdma")}


async def _child(settings: Settings, depth: Depth, gpus: int) -> tuple[Step, ...]:
    """What needs torch, in a disposable process."""
    gates = [f"--gate={name}={gate:g}" for name, gate in settings.gates]
    check = Check(
        name="validate",
        command=(
            *(settings.validation_python or sys.executable, "-m", "aegis.worker.validate"),
            *("--parent", str(os.getpid()), "--gpus", str(gpus)),
            *("--seconds", f"{_RANKS_SECONDS[depth]:g}"),
            *("--gpu-memory-fraction", f"{_GPU_FRACTION[depth]:g}"),
            *gates,
        ),
        deadline_seconds=_CHILD_SECONDS[depth],
        user=settings.validation_user,
    )
    ended = await runs.Runner(node=settings.node).run(check, lambda: True)
    found = []
    for line in ended.output.splitlines():
        try:
            found.append(judging.parsed(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a library's own words
    return (*found, *judging.unsaid(found, ended, gpus))


async def _checked(node: str, check: Check) -> Step:
    began_at = time.monotonic()
    if check.file:
        ended = await asyncio.to_thread(runs.read_file, check)
    else:
        ended = await runs.Runner(node=node).run(check, lambda: True)
    return judging.checked(check, ended, round(time.monotonic() - began_at, 3))


@dataclass
class Validations:
    """What this node was told to validate, and what came of it."""

    settings: Settings
    book: Book
    now: Callable[[], float]
    _results: dict[str, ValidationResult] = field(default_factory=dict)  # by id
    _running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _baseline: Baseline | None = None
    _epoch: int = 0
    _settled_at: float = 0.0  # by the monotonic clock
    _learned_at: float = 0.0

    def __post_init__(self) -> None:
        self._results = self.book.recall(_KEY, _RESULT)
        self._baseline = read_baseline(self.book.spool.recall().get(BASELINE_KEY))
        self._settled_at = time.monotonic() + _SETTLE_POLLS * self.settings.poll_seconds

    @property
    def able(self) -> bool:
        """Whether there is something here that a validation tells more of than the senses do."""
        kinds = {one.kind for one in self.book.devices()}
        known = {one.kind for one in self._baseline.devices} if self._baseline else set()
        return "gpu" in kinds | known

    def results(self) -> tuple[ValidationResult, ...]:
        """What is known of every order that stands, by id."""
        return tuple(self._results[name] for name in sorted(self._results))

    def tick(self) -> None:
        """While a job trains here and all is well, what is here is what should be here."""
        clock = time.monotonic()
        if clock < self._settled_at or clock < self._learned_at + _LEARN_SECONDS or self._running:
            return
        trained = self.book.training is True
        if not trained and self._baseline is not None:
            return
        self._learned_at = clock
        found = learn(self.book.devices(), self.now(), trained=trained)
        known = self._baseline
        if found is None or (known and found == replace(known, at=found.at)):
            return
        self._baseline = found
        self.book.spool.remember({BASELINE_KEY: _BASELINE.dump_json(found).decode()})

    def take(
        self, orders: Iterable[ValidationOrder], *, epoch: int, sent_at: float, asked_at: float
    ) -> None:
        """The orders that stand, by an answer that was sent then, to a report of that time."""
        standing = {order.id: order for order in orders}
        self._epoch = max(self._epoch, epoch)
        for name in self._running.keys() - standing.keys():
            self._running[name].cancel()
        for name in [name for name in self._results if name not in standing]:
            del self._results[name]
            self.book.spool.erase(_KEY + name)
        for order in standing.values():
            known = self._results.get(order.id)
            if order.id in self._running or (known and known.state not in _STANDING):
                continue
            local = replace(order, expires_at=asked_at + order.expires_at - sent_at)
            self._running[order.id] = asyncio.create_task(self._see_to(local))

    def close(self) -> None:
        """What runs is ended; it begins anew with the next agent."""
        for task in self._running.values():
            task.cancel()

    async def _see_to(self, order: ValidationOrder) -> None:
        found: list[Step] = []
        try:
            reason = refusal(
                order,
                node=self.settings.node,
                boot_id=self.book.boot_id,
                epoch=self._epoch,
                now=self.now(),
            )
            if reason:
                self._tell(order, ValidationState.ABORTED, reason, found)
                return
            async with asyncio.timeout(order.expires_at - self.now()):
                await self._try(order, found)
            self._tell(order, *outcome(tuple(found)), found)
        except TimeoutError:
            text = f"its time was up after {len(found)} steps"
            self._tell(order, ValidationState.ABORTED, text, found)
        finally:
            self._running.pop(order.id, None)

    async def _try(self, order: ValidationOrder, found: list[Step]) -> None:
        self._tell(order, ValidationState.WORKING, "it has begun", found)
        tried = steps(self.settings, order.depth, self._look, self._baseline, self._look_again)
        async for step in tried:
            found.append(step)
            words = "1 step has" if len(found) == 1 else f"{len(found)} steps have"
            self._tell(order, ValidationState.WORKING, f"{words} ended", found)

    def _look(self) -> tuple[tuple[Device, ...], Step]:
        return self.book.devices(), judging.live(self.book.conditions())

    async def _look_again(self) -> None:
        """The senses look by themselves."""
        await asyncio.sleep(_POLLS_AFTER * self.settings.poll_seconds)

    def _tell(
        self, order: ValidationOrder, state: ValidationState, text: str, found: list[Step]
    ) -> None:
        """In every report from now on, and after a restart."""
        result = ValidationResult(
            id=order.id,
            depth=order.depth,
            state=state,
            text=text,
            at=self.now(),
            steps=tuple(found),
        )
        self._results[order.id] = result
        self.book.spool.remember({_KEY + order.id: _RESULT.dump_json(result).decode()})
        if state is not ValidationState.WORKING or not found:
            fields = {"validation": order.id, "depth": order.depth, "state": state, "reason": text}
            _log.warning("A validation is being seen to.", extra=fields)
        self.book.urge()
