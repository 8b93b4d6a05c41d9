"""What `rdma -j statistic` prints: one object for each port of each RDMA device.

    [{"ifname": "ionic_0", "port": 1, "tx_rdma_ucast_bytes": 0, …}, …]

Where the driver gives sysfs no counters, as ionic's first releases, this has them.
"""

import json
from collections.abc import Mapping

_KEYS = ("ifindex", "ifname", "port")

PortKey = tuple[str, int]  # RDMA device, port


def parse(text: str) -> dict[PortKey, Mapping[str, int]]:
    """The counters of each port. What is no counter, or no JSON, is left out."""
    try:
        rows = json.loads(text)
    except ValueError:
        return {}
    found: dict[PortKey, Mapping[str, int]] = {}
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not isinstance(row.get("ifname"), str):
            continue
        port = row.get("port", 1)
        found[row["ifname"], port if isinstance(port, int) else 1] = {
            name: value
            for name, value in row.items()
            if name not in _KEYS and type(value) is int and value >= 0
        }
    return found
