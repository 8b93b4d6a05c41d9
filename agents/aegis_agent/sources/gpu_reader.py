"""The process of one GPU: calls amdsmi, tells what it answers, and ends with its process.

discovery      which GPUs are there, by address
a GPU's own    what it is; then error counters with each poll, and now and then its error records
               and the slow survey
"""

import argparse
import os
import time
import traceback
from collections import Counter
from typing import Any, NoReturn

from aegis_agent.sources.children import DISCOVERY, Child, Children
from aegis_agent.sources.gpu_calls import (
    HANDLES_MAX,
    NO_VALUE,
    UNKNOWN_STATUS,
    CallError,
    Calls,
    count,
    handle_label,
    number,
)
from aegis_agent.sources.gpu_cper import NOT_OFFERED, CperRing
from aegis_agent.sources.gpu_identity import identity
from aegis_agent.sources.gpu_library import Library
from aegis_agent.sources.gpu_survey import Survey

_DRIVER_NOT_LOADED = 34
_BLIND_SECONDS_MAX = 30.0  # then another process looks anew: the library may hold on to a lost GPU


class Reader:
    """A child."""

    def __init__(
        self, library: Library, options: argparse.Namespace, children: Children, child: Child
    ) -> None:
        self._library = library
        self._amdsmi = library.package
        self._options = options
        self._children = children
        self._report = children.report
        self._child = child
        self._calls = Calls(library.package, children.page, child.index, library.fit().refused)
        self._hung = set(child.without)  # calls that hung or crashed and have not answered since
        self._handle: Any = None
        self._read_at = time.monotonic()  # when anything was last read
        self._records: Counter[str] = Counter()  # that this process has seen, by age

    def run(self) -> NoReturn:
        """Never returns: what the prober has registered for its own end is not for us."""
        code = 1
        try:
            if self._child.index == DISCOVERY:
                self._discover()
                code = 0
            else:
                self._poll()
        except CallError as error:
            self._failed(error)
        # The last resort of a forked process: it must not go on as if it were the prober.
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)

    def _failed(self, error: CallError) -> None:
        reason = f"amdsmi {error}"
        if error.status == _DRIVER_NOT_LOADED:
            reason = f"the amdgpu driver is not loaded (amdsmi {error})"
        if self._child.index != DISCOVERY:
            self._report("failed", index=self._child.index, at=time.time(), reason=reason)
        elif not self._children.has_devices():
            self._report("unavailable", reason=reason, gpus=True)

    # discovery

    def _discover(self) -> None:
        self._report("library", **self._library.told())
        self._calls("init")
        addresses = self._addresses(self._calls("processor_handles"))
        found = [(place, address) for place, address in enumerate(addresses) if address]
        if not addresses:
            if not self._children.has_devices():
                self._report("unavailable", reason="amdsmi lists no GPU", gpus=False)
            os._exit(1)
        self._children.found(found, hidden=len(addresses) - len(found))

    def _addresses(self, handles: list[Any]) -> list[str]:
        """One for each handle, empty where it does not say: which may be the GPU that hangs."""
        return [self._address(handles, place) for place in range(len(handles[:HANDLES_MAX]))]

    def _address(self, handles: list[Any], place: int) -> str:
        label = handle_label(place)
        if self._is_left_out(label):
            return ""
        return self._calls.attempt("device_bdf", handles[place], label=label) or ""

    # polling

    def _poll(self) -> None:
        self._calls("init")
        self._handle = self._find()
        told = identity(self._child.address, self._calls, self._handle, self._ask)
        self._report("gpu", index=self._child.index, **told)
        survey, ring = Survey(self._amdsmi, self._ask), self._ring()
        blocks = self._enabled_blocks()
        self._calls.failed = {}
        poll = self._options.poll_seconds
        slow_every = max(1, round(self._options.slow_seconds / poll))
        while time.monotonic() - self._read_at < _BLIND_SECONDS_MAX:
            slow = self._calls.polls % slow_every == 0
            self._tell("reading", self._read(blocks, slow))
            if slow:
                self._tell_records(ring)
                self._tell("survey", survey.read())
            self._calls.done()
            # All children wake together, so that the agent wakes once.
            time.sleep(poll - time.monotonic() % poll)

    def _find(self) -> Any:
        """Our handle: at its place of last time, or wherever this start has put it."""
        handles = self._calls("processor_handles")
        places = sorted(range(len(handles)), key=lambda place: place != self._child.place)
        for place in places:
            if self._address(handles, place) == self._child.address:
                return handles[place]
        raise CallError(f"processor_handles without {self._child.address}", UNKNOWN_STATUS)

    def _enabled_blocks(self) -> dict[str, Any]:
        blocks = library_blocks(self._amdsmi)
        mask = self._ask("ecc_enabled")
        if not mask:  # so try them all
            return blocks
        return {name: block for name, block in blocks.items() if mask & block} or blocks

    def _tell(self, kind: str, answers: dict[str, Any]) -> None:
        failed, self._calls.failed = self._calls.failed, {}
        self._report(
            kind,
            index=self._child.index,
            at=time.time(),
            failed=failed,
            hung=sorted(self._hung),
            **answers,
        )

    def _ring(self) -> CperRing:
        return CperRing(
            lambda *arguments: self._ask("gpu_cper_entries", *arguments),
            self._decode_record,
            lambda: self._calls.failed.get("gpu_cper_entries"),
        )

    def _decode_record(self, record: bytes) -> Any:
        if self._is_left_out("afids_from_cper"):
            return None
        answer = self._calls.attempt("afids_from_cper", record)
        self._hung.discard("afids_from_cper")
        return answer

    def _tell_records(self, ring: CperRing) -> None:
        """A line each: together they may be longer than a line may be."""
        found, records = ring.look()
        self._calls.failed = {}  # it says nothing of the GPU's health
        status = ring.status if self._calls.offers("gpu_cper_entries") else NOT_OFFERED
        for record in records:
            self._report("record", index=self._child.index, **record)
        self._records.update(found)
        self._report("records", index=self._child.index, status=status, found=self._records)

    def _read(self, blocks: dict[str, Any], slow: bool) -> dict[str, Any]:  # noqa: FBT001
        counts = {}
        for name, block in blocks.items():
            answer = self._calls.attempt(
                "ecc_count", self._handle, block, label=f"ecc_count({name})"
            )
            if answer is not None and (told := _counts(answer)) is not None:
                counts[name] = told
            elif answer is not None:
                self._calls.failed[f"ecc_count({name})"] = NO_VALUE
        vram = self._ask("vram_usage") if slow or not counts else None
        if not counts and vram is not None:
            # The total answers zeros when it can read nothing: believed only beside a live call.
            total = self._calls.attempt("total_ecc_count", self._handle)
            summed = None if total is None else _counts(total)
            counts = {} if summed is None else {"all": summed}
        if counts or vram is not None:
            self._read_at = time.monotonic()
        used = None if vram is None else number(vram.get("vram_used"))
        return {"ecc": counts, "vram": vram is not None, "vram_used_mb": used}

    def _ask(self, call: str, *arguments: Any) -> Any:
        """An optional call; None where it fails, or is left out for a while because it hung."""
        if self._is_left_out(call):
            return None
        answer = self._calls.attempt(call, self._handle, *arguments)
        self._hung.discard(call)
        return answer

    def _is_left_out(self, label: str) -> bool:
        return label in self._hung and time.monotonic() < self._child.without[label]


def library_blocks(amdsmi: Any) -> dict[str, Any]:
    """Every block by its name: "umc"."""
    no_blocks = ("INVALID", "RESERVED")
    return {
        block.name.lower(): block for block in amdsmi.AmdSmiGpuBlock if block.name not in no_blocks
    }


def _counts(answer: dict[str, Any]) -> list[int] | None:
    """Correctable, uncorrectable, deferred; None where one of them is no number."""
    names = ("correctable_count", "uncorrectable_count", "deferred_count")
    counts = [count(answer[name]) for name in names]
    return None if None in counts else counts  # type: ignore[return-value]
