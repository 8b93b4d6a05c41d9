"""What `aegis.worker.step()` costs a training loop, on the page of a launcher, as JSON.

    python bench/step.py

Single calls are timed, so that the median is one of calls and not of averages; the clock's own
cost is measured in the same way and taken off. The promise: at most 3 microseconds, median.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aegis.wire.page import blank, read

CALLS = 100_000
WARM_CALLS = 2_000
LIMIT_MICROSECONDS = 3.0


def main() -> int:
    """Measure, print, and fail where the promise is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "rank.page")
        page.write_bytes(blank())
        os.environ |= {"AEGIS_PROGRESS_PAGE": str(page), "AEGIS_JOB": "bench"}
        os.environ |= {"AEGIS_GENERATION": "1", "AEGIS_EPOCH": "1"}
        from aegis.worker import step  # noqa: PLC0415  it reads the environment

        clock = statistics.median(_microseconds(lambda _: None))
        found = [one - clock for one in _microseconds(lambda number: step(number, 2.5))]
        written = read(page.read_bytes())
        assert written is not None
        assert written.step == CALLS + WARM_CALLS - 1
    ordered = sorted(found)
    median = statistics.median(ordered)
    print(
        json.dumps(
            {
                "calls": CALLS,
                "median_us": round(median, 3),
                "p99_us": round(ordered[CALLS * 99 // 100], 3),
                "max_us": round(ordered[-1], 1),
                "limit_us": LIMIT_MICROSECONDS,
                "kept": median <= LIMIT_MICROSECONDS,
            }
        )
    )
    return 0 if median <= LIMIT_MICROSECONDS else 1


def _microseconds(call: Callable[[int], object]) -> list[float]:
    clock = time.perf_counter_ns
    found = []
    for number in range(CALLS + WARM_CALLS):
        begun = clock()
        call(number)
        found.append((clock() - begun) / 1000)
    return found[WARM_CALLS:]


if __name__ == "__main__":
    raise SystemExit(main())
