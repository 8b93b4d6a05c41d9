"""NVLink: which links a GPU has, whether they are up, and what they have counted."""

from typing import Any

from aegis_agent.sources.nvml_calls import Calls

_LINKS_MAX = 36
_FIELDS = (161, 162, 163)  # replays, recoveries, checksum errors
_OLDER = (0, 1, 2)  # the same as counters of an older call


def read_links(
    calls: Calls, handle: Any, known: list[int] | None
) -> tuple[list[int] | None, dict[str, list[int]]]:
    """Which links there are, and of each: active, replays, recoveries, checksum errors."""
    states = _states(calls, handle, range(_LINKS_MAX) if known is None else known)
    if known is None and "nvlink_state" not in calls.failed:
        known = list(states)
    if not states:
        return known, {}
    counts = _counts(calls, handle, list(states))
    return known, {
        str(link): [active, *counts[link]] for link, active in states.items() if link in counts
    }


def _states(calls: Calls, handle: Any, numbers: Any) -> dict[int, int]:
    states: dict[int, int] = {}
    for link in numbers:
        state = calls.ask("nvlink_state", "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            # The numbers have no gaps: the first that does not answer is one too many.
            if states:
                calls.failed.pop("nvlink_state", None)
            break
        states[link] = int(state)
    return states


def _counts(calls: Calls, handle: Any, links: list[int]) -> dict[int, list[int]]:
    """All in one call where the GPU has them as fields, else one by one."""
    wanted = [(field, link) for link in links for field in _FIELDS]
    values = calls.ask("nvlink_errors", "nvmlDeviceGetFieldValues", handle, wanted)
    if values is not None and not any(value.nvmlReturn for value in values):
        numbers = [int(value.value.ullVal) for value in values]
        return {link: numbers[3 * place : 3 * place + 3] for place, link in enumerate(links)}
    function, counts = "nvmlDeviceGetNvLinkErrorCounter", {}
    for link in links:
        told = [calls.ask("nvlink_errors", function, handle, link, kind) for kind in _OLDER]
        if None not in told:
            counts[link] = told
    return counts
