"""AMD's node-scraper over lines, for `bench/classify.py`: runs in an interpreter that has it.

Reads one JSON object on standard input, {"lines": […]} or {"text": "…", "seconds": S}, and writes
one: the messages of its own error expressions that match each line, or how many times a second it
goes through the text. Both use the expressions of its `DmesgAnalyzer`, the second through its own
`check_all_regexes`, which is what it runs over a log.
"""

import importlib.metadata
import json
import logging
import sys
import time
from typing import Any

from nodescraper.models import SystemInfo
from nodescraper.plugins.inband.dmesg.dmesg_analyzer import DmesgAnalyzer


def main() -> None:
    """Answer one question."""
    asked = json.load(sys.stdin)
    answer = _named(asked["lines"]) if "lines" in asked else _timed(asked["text"], asked["seconds"])
    json.dump({"version": importlib.metadata.version("amd-node-scraper"), **answer}, sys.stdout)


def _named(lines: list[str]) -> dict[str, Any]:
    """Each line alone, with the prefix that its own collector's `dmesg` gives."""
    prefix = "kern  :err   : 2038-01-19T00:00:00,000000+00:00 "
    return {
        "messages": [
            [
                known.message
                for known in DmesgAnalyzer.ERROR_REGEX
                if known.regex.search(prefix + line)
            ]
            for line in lines
        ]
    }


def _timed(text: str, seconds: float) -> dict[str, Any]:
    analyzer = DmesgAnalyzer(system_info=SystemInfo(), logger=logging.getLogger("bench"))
    passes, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds or not passes:
        analyzer.check_all_regexes(text, "dmesg", list(DmesgAnalyzer.ERROR_REGEX))
        passes += 1
    return {"passes_per_second": passes / elapsed}


if __name__ == "__main__":
    main()
