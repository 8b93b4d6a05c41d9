#!/usr/bin/env python3
"""The bandwidth of an all-reduce over this node's GPUs, by rccl-tests or nccl-tests, as a check.

rccl.py --limit 310 -- all_reduce_perf -b 8G -e 8G -g 8

The program's last lines are "# Out of bounds values : 0 OK" and "# Avg bus bandwidth    : 312.4".
One line of JSON comes out, with the bandwidth as a detail, and exit 0, 1 or 2 to match.
"""

import argparse
import json
import re
import subprocess
import sys

CODES = {"ok": 0, "fault": 1, "unknown": 2}


def say(status, message, **details):
    """One line, and the exit that goes with it."""
    print(json.dumps({"status": status, "message": message, "details": details}))
    sys.exit(CODES[status])


def main():
    """Run it, and judge what it printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, required=True, help="GB/s of bus bandwidth")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()
    program = wanted.command[0]
    try:
        done = subprocess.run(wanted.command, capture_output=True, text=True, check=False)
    except OSError as error:
        say("unknown", f"{program} cannot be run: {error.strerror}")
    bandwidth = re.search(r"# Avg bus bandwidth\s*:\s*([0-9.]+)", done.stdout)
    bounds = re.search(r"# Out of bounds values\s*:\s*(\d+)\s*(\w+)", done.stdout)
    if bounds and bounds[2] != "OK":
        say("fault", f"{bounds[1]} values of the all-reduce are wrong", wrong_values=bounds[1])
    if done.returncode or not bandwidth:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        say("unknown", f"{program} exited with {done.returncode}: {said[0]}")
    busbw = float(bandwidth[1])
    well = busbw >= wanted.limit
    text = f"all-reduce at {busbw:g} GB/s of bus bandwidth; {wanted.limit:g} are wanted"
    say("ok" if well else "fault", text, busbw=busbw, limit=wanted.limit)


if __name__ == "__main__":
    main()
