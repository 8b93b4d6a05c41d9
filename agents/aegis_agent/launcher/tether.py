"""`python -m aegis_agent.launcher.tether LAUNCHER_PID COMMAND…`: a command on a lead.

The kernel is asked to kill it when the launcher ends, and it then becomes the command.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie the knot and become the command."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        return
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  it becomes the command it was given


if __name__ == "__main__":
    main()
