"""Rule files: YAML text in, rules out. An error names its place and says how to mend it.

    apiVersion: aegis/v1
    kind: RuleSet
    name: amd-gpu
    rules:
      - id: gpu.hang
        title: GPU ring time-out or scheduler hang
        class: [gpu.ring.timeout, gpu.scheduler.hang]   # one, a list, or a glob such as gpu.ecc.*
        severity: [error, fatal]        # any, when left out
        remedy: restart                 # the first rung of its ladder ...
        attempts: 1                     # ... tried so often ...
        attempts_within: 24h            # ... in this time ...
        if_fails: [{remedy: drain_now}] # ... before the next
        references: [amdgpu]

`form` has every key. Files come in layers, those that Aegis ships lowest. A layer's own rules are
asked before those of the layers below, in the order of file names; the first rule that matches a
fault decides about it. By `override` a rule takes the place of one below (`replace`), adds to it
(`append`) or takes it out (`disable`).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from aegis.rules import lint
from aegis.rules.layers import JOINT, Entry, Gathered
from aegis.rules.made import make
from aegis.rules.problem import Problem, RuleError
from aegis.rules.rule import Rule, RuleSet

_FILE = f"{JOINT}file: "
_LAYER = f"{JOINT}layer\n"
_SPLIT = re.compile(rf"^{_FILE}(.+)\n", re.MULTILINE)


def parse(*layers: Mapping[str, str], version: str = "") -> RuleSet:
    """The rules of some layers of files, lowest first. Raises RuleError with all that is wrong."""
    placed, problems = _read(layers, version)
    for rule, entry in placed:
        problems += lint.of_rule(rule, entry)
    if not problems:
        problems += lint.of_set(placed)
    if problems:
        raise RuleError(problems)
    return _set(layers, placed)


def parse_text(text: str) -> RuleSet:
    """The rule set whose `text` this is.

    It was checked when it was loaded: checks that have come since do not stand in the way of a log.
    """
    layers = [_files(part) for part in re.split(rf"^{_LAYER}", text, flags=re.MULTILINE)]
    placed, problems = _read(layers, "")
    if problems:
        raise RuleError(problems)
    return _set(layers, placed)


def _read(
    layers: Sequence[Mapping[str, str]], version: str
) -> tuple[list[tuple[Rule, Entry]], list[Problem]]:
    gathered = Gathered(version)
    for number, texts in enumerate(layers):
        gathered.add(number, texts)
    placed, problems = [], list(gathered.problems)
    for entry in gathered.entries:
        found = make(entry)
        if isinstance(found, Rule):
            placed.append((found, entry))
        else:
            problems += found
    return placed, problems


def _files(text: str) -> dict[str, str]:
    _, *parts = _SPLIT.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _set(layers: Sequence[Mapping[str, str]], placed: Sequence[tuple[Rule, Entry]]) -> RuleSet:
    text = _LAYER.join(
        "".join(f"{_FILE}{file}\n{texts[file].rstrip()}\n" for file in sorted(texts))
        for texts in layers
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return RuleSet(rules=tuple(rule for rule, _ in placed), text=text, digest=digest)
