"""Makes docs/faults/: one page for each class of fault, and their index.

    python docs/generate.py

The catalogue (`aegis.model.catalogue`) says what a class is, the shipped rules what is done about
it, the patterns of the kernel log how it looks there. A test compares the pages with what this
makes.
"""

import importlib
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from aegis.core.words import REMEDIES
from aegis.model.catalogue import CATALOGUE, Entry
from aegis.model.fault import FaultClass
from aegis.rules import Rule, RuleSet, parse
from aegis.rules.match import Match, conditions_of
from aegis_agent.probes import kernel
from aegis_agent.probes.kernel.pattern import Pattern, Table
from aegis_agent.probes.kernel.xid import XIDS

DOCS = Path(__file__).parent
FAULTS = DOCS / "faults"
RULES = DOCS.parent / "rules"
RUNBOOKS = {
    FaultClass.GPU_ECC_UNCORRECTABLE: "AegisGPUUncorrectableECC",
    FaultClass.GPU_PROBE_STALLED: "AegisGPUHealthUnknown",
    FaultClass.NIC_LINK_DOWN: "AegisNICLinkDown",
    FaultClass.NIC_LINK_FLAP: "AegisNICLinkDown",
    FaultClass.NODE_LOST: "AegisAgentsSilent",
    FaultClass.JOB_WORKER_EXITED: "AegisRestartLoop",
    FaultClass.JOB_HANG: "AegisJobNoProgress",
    FaultClass.JOB_CHECKPOINT_CORRUPT: "AegisCheckpointVerifyFailed",
    FaultClass.JOB_CHECKPOINT_STALE: "AegisCheckpointStale",
}
EXAMPLES_MAX = 4
COMPONENTS = {
    "gpu": "GPU",
    "nic": "Network",
    "pcie": "PCI Express",
    "host": "Host",
    "node": "Node",
    "job": "Job",
}
_ASKED = (
    "The shipped rules, in the order in which they are asked; what may really be done is for the "
    "policy's mode and its limits to say."
)
_MADE = "<!-- made by `python docs/generate.py`; a test compares -->"


def pages() -> dict[Path, str]:
    """Every page by its path."""
    rules = parse({path.name: path.read_text() for path in sorted(RULES.glob("*.yaml"))})
    made = {FAULTS / "README.md": _index(rules)}
    for fault_class, entry in CATALOGUE.items():
        made[FAULTS / f"{fault_class}.md"] = _page(fault_class, entry, rules)
    return made


def _index(rules: RuleSet) -> str:
    lines = [
        "# Faults",
        "",
        "Every class of fault that Aegis knows, one page each: what it is, what it does to the",
        "work, what Aegis does, what to look at. A class has one name in rules, metrics, logs and",
        "pages.",
        "",
        _MADE,
    ]
    by_component: dict[str, list[FaultClass]] = defaultdict(list)
    for fault_class in CATALOGUE:
        by_component[fault_class.split(".")[0]].append(fault_class)
    for component, classes in by_component.items():
        lines += ["", f"## {COMPONENTS[component]}", ""]
        lines += ["| class | what it is | severity | shipped remedy |", "|---|---|---|---|"]
        for fault_class in classes:
            entry = CATALOGUE[fault_class]
            remedies = dict.fromkeys(str(rule.remedy) for rule in _rules_of(fault_class, rules))
            lines.append(
                f"| [{fault_class}]({fault_class}.md) | {entry.title} | {entry.severity} "
                f"| {', '.join(f'`{one}`' for one in remedies)} |"
            )
    return "\n".join(lines) + "\n"


def _page(fault_class: FaultClass, entry: Entry, rules: RuleSet) -> str:
    raised = f"; {entry.raised}" if entry.raised else ""
    parts = [
        f"# {fault_class}",
        f"**{entry.title}.** {entry.description}",
        _MADE,
        _table(
            {
                "What it does to the work": entry.effect,
                "Severity": f"{entry.severity}{raised}",
                "What it takes with it": entry.scope,
                "Seen through": ", ".join(entry.seen),
                "AMD field id (AFID)": _numbers(entry.afids),
                "NVIDIA Xid": _numbers(_xids(fault_class, entry)),
            }
        ),
        "## What to do",
        entry.answer,
        "## What to look at",
        "\n".join(f"{number}. {step}" for number, step in enumerate(entry.check, 1)),
        "## What Aegis does",
        _ASKED,
        _rules_table(_rules_of(fault_class, rules)),
    ]
    if examples := _examples(fault_class):
        parts += ["## In the kernel log", "\n".join(["```text", *examples, "```"])]
    if runbook := RUNBOOKS.get(fault_class):
        parts += [f"Runbook of its alert: [{runbook}](../runbooks/{runbook}.md)."]
    parts += [
        "## Read on",
        "\n".join(f"- [{one.title}]({one.url})" for one in entry.references)
        + "\n- [All classes](README.md), [how to write a rule](../how-to/write-a-rule.md)",
    ]
    return "\n\n".join(parts) + "\n"


def _xids(fault_class: FaultClass, entry: Entry) -> list[int]:
    known = {number for number, xid in XIDS.items() if xid.fault_class is fault_class}
    return sorted(known.union(entry.xids))


def _numbers(numbers: Iterable[int]) -> str:
    """Numbers, runs of them in short: "1 to 12, 19"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def _examples(fault_class: FaultClass) -> list[str]:
    """How the kernel's drivers say it."""
    found: dict[str, None] = {}
    for module in sorted(one.name for one in pkgutil.iter_modules(kernel.__path__)):
        for value in vars(importlib.import_module(f"{kernel.__name__}.{module}")).values():
            if isinstance(value, tuple | Table):
                for one in value:
                    if isinstance(one, Pattern) and one.fault_class is fault_class:
                        found |= dict.fromkeys(one.example.splitlines())
    return list(found)[:EXAMPLES_MAX]


def _rules_of(fault_class: FaultClass, rules: RuleSet) -> list[Rule]:
    return [rule for rule in rules.rules if fault_class in rule.classes]


def _rules_table(rules: Iterable[Rule]) -> str:
    rows = [
        f"| `{rule.id}` ([{rule.file}](../../rules/{rule.file})) | {_when(rule)} "
        f"| {'; then '.join(f'`{rung.remedy}`: {REMEDIES[rung.remedy]}' for rung in rule.ladder)} |"
        for rule in rules
    ]
    return "\n".join(["| rule | when | remedy |", "|---|---|---|", *rows])


def _when(rule: Rule) -> str:
    conditions = [
        f"{one.name} {one.wanted(rule)}" for one in conditions_of(rule) if one.name != "class"
    ]
    conditions += [f"unless {_stated(one)}" for one in rule.unless]
    if rule.waits:
        conditions.append("it lasts longer than the hold-down")
    return ", ".join(conditions).replace("|", "\\|") or "always"


def _stated(match: Match) -> str:
    return " and ".join(f"{one.name} {one.wanted(match)}" for one in conditions_of(match))


def _table(rows: Mapping[str, str]) -> str:
    told = [f"| {name} | {text} |" for name, text in rows.items() if text]
    return "\n".join(["| | |", "|---|---|", *told])


def main() -> int:
    """Write the pages, and remove those of classes that are no more."""
    FAULTS.mkdir(exist_ok=True)
    made = pages()
    for path in FAULTS.glob("*.md"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
