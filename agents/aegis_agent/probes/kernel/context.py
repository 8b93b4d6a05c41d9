"""Lines without a fault of their own that belong to the line before: which, and what they tell."""

import re
from collections.abc import Mapping

_ADDRESS = re.compile(r"[\w-]+ ((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_HARDWARE_ERROR = re.compile(r"(?:mce: )?(\{\d{1,20}\})?\[Hardware Error\]:")
DETAIL_LENGTH_MAX, VALUES_MAX = 200, 4

# What a line of context tells: name of the detail, and how it stands there.
_DETAILS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        # Of PCIe, as in "device [1002:74a1] error status/mask=00000040/00002000" and "[ 6] BadTLP".
        ("errors", r": +\[ *\d+\] *(\w[\w -]*?) *(?:\(First\))?$"),
        ("status_mask", r"error status/mask=([0-9a-f]+/[0-9a-f]+)"),
        ("tlp_header", r"TLP Header: (.+)$"),
        # Of APEI, as in "{359}[Hardware Error]:   section_type: PCIe error".
        ("event_severity", r"\[Hardware Error\]: *event severity: (.+)$"),
        ("section", r"\[Hardware Error\]: *section_type: (.+)$"),
        ("part", r"\[Hardware Error\]: *fru_text: (.+)$"),
        ("port", r"\[Hardware Error\]: *port_type: (.+)$"),
        ("pci", r"\[Hardware Error\]: *device_id: ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"),
        ("error", r"\[Hardware Error\]: *error_type: (.+)$"),
        ("address", r"\[Hardware Error\]: *physical_address: (0x[0-9a-f]+)"),
        ("place", r"\[Hardware Error\]: *(?:DIMM location: (?:not present\. )?)?(node: ?\d.+)$"),
        # Of MCE, as in "[Hardware Error]: CPU:0 (17:31:0) MC15_STATUS[Over|CE|…]: 0xdc20…011b".
        ("bank", r"\[Hardware Error\]: CPU:?.* (MC\d+)_STATUS|\[Hardware Error\]: .*Bank (\d+):"),
        ("status", r"\[Hardware Error\]: .*(?:_STATUS\[.*\]: |Bank \d+: )(?:0x)?([0-9a-f]+)"),
        ("address", r"\[Hardware Error\]: Error Addr: (0x[0-9a-f]+)"),
        ("ipid", r"\[Hardware Error\]: .*IPID: (0x[0-9a-f]+)"),
        ("syndrome", r"\[Hardware Error\]: .*Syndrome: (0x[0-9a-f]+)"),
        ("error", r"\[Hardware Error\]: .*(?:Ext\. Error Code: \d+, |Error Code: \d+, )(.+)$"),
        # Of a page fault or a ring time-out, whose it was.
        ("process", r"[Pp]rocess (?!information)(\S+ pid \d+)"),
        ("fault_status", r"PROTECTION_FAULT_STATUS: ?(0x[0-9a-fA-F]+)"),
    )
)


def thread(text: str) -> str:
    """What its neighbours of the same event have in common with this line; empty: nothing.

    That is the device's address, or of the host's records their number.
    """
    found = _ADDRESS.match(text)
    if found is not None:
        return found[1]
    found = _HARDWARE_ERROR.match(text)
    return f"hardware error {found[1] or ''}" if found is not None else ""


def details(text: str) -> dict[str, str]:
    """What the line tells beside the fault."""
    told: dict[str, str] = {}
    for name, pattern in _DETAILS:
        found = pattern.search(text)
        if found is not None and name not in told:
            told[name] = next(group for group in found.groups() if group)[:DETAIL_LENGTH_MAX]
    return told


def merge(into: dict[str, str], more: Mapping[str, str]) -> None:
    """Add what is new; of a detail that is there already keep both, up to a bound."""
    for name, value in more.items():
        known = into.get(name)
        if known is None:
            into[name] = value
        elif len(values := known.split(", ")) < VALUES_MAX and value not in values:
            into[name] = f"{known}, {value}"
