"""New wordings of the same kinds of kernel lines: a set that nobody looks at who writes patterns.

`tests/data/kernel_held_out.jsonl` holds kernel messages taken as facts from the kernel's own
formats, with invented addresses and numbers. This test tells how many of each class are named, and
never which, so that a pattern cannot be written for a line.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from aegis_agent.probes.kernel.classify import classify

HELD_OUT = Path(__file__).parents[3] / "data" / "kernel_held_out.jsonl"
RECALL_MIN = 0.9


def test_new_wordings_of_the_same_kinds_are_named() -> None:
    """Nine in ten new fault lines get their class, and no line that only looks dangerous gets one.

    Fails without a traceback: it would show the lines.
    """
    wanted: Counter[str] = Counter()
    named: Counter[str] = Counter()
    false_alarms = 0
    for text in HELD_OUT.read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        finding = classify(record["line"])
        told = None if finding is None else finding.fault_class.value
        if record["class"] is None:
            false_alarms += told is not None
        else:
            wanted[record["class"]] += 1
            named[record["class"]] += told == record["class"]
    for name in sorted(wanted):
        print(f"{named[name]:3} of {wanted[name]:3}  {name}")  # noqa: T201  a figure for whoever writes patterns
    recall = named.total() / wanted.total()
    summary = f"{recall:.3f} of {wanted.total()} fault lines named, {false_alarms} false alarms"
    print(summary)  # noqa: T201
    if recall < RECALL_MIN or false_alarms:
        pytest.fail(summary, pytrace=False)
