"""Links that are real: veth pairs in a network namespace of their own, their changes pushed.

`bench/agent.py` starts this under `unshare --net --mount`, where that is possible. The far end of a
pair is switched off, and the near end, which the agent watches, loses its carrier.
"""

import argparse
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from latency import link_edges
from rig import Hardware, running

_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sH14x")


def measure(events: int, nics: int) -> dict[str, Any]:
    """In a namespace of its own; why not, where that cannot be made."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return {"events": 0, "why": "it needs root, unshare and ip"}
    done = subprocess.run(
        [
            *("unshare", "--net", "--mount", sys.executable, __file__),
            *("--events", str(events), "--nics", str(nics)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"events": 0, "why": "see above"}
    return json.loads(done.stdout)


def main() -> int:
    """Inside the namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--nics", type=int, required=True)
    chosen = parser.parse_args()
    # /sys shows the network of whoever mounted it.
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for number in range(chosen.nics):
        pair = ["ip", "link", "add", f"fab{number}", "type", "veth", "peer", "name"]
        subprocess.run([*pair, f"far{number}"], check=True)
        for end in ("fab", "far"):
            subprocess.run(["ip", "link", "set", f"{end}{number}", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        hardware = Hardware(Path(folder), 1, chosen.nics)
        hardware.tree = Path("/sys")
        with running(hardware, 1.0) as (_, controller):
            time.sleep(3.0)
            found = link_edges(controller, chosen.events, chosen.nics, _set_far)
    print(json.dumps(found | {"through": "netlink, real veth pairs"}))
    return 0


def _set_far(port: str, *, up: bool) -> None:
    name = port.replace("fab", "far").encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        answer = fcntl.ioctl(question, _GET_FLAGS, _REQUEST.pack(name, 0))
        flags = _REQUEST.unpack(answer)[1]
        flags = flags | _IS_UP if up else flags & ~_IS_UP
        fcntl.ioctl(question, _SET_FLAGS, _REQUEST.pack(name, flags))


if __name__ == "__main__":
    sys.exit(main())
