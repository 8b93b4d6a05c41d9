"""What the kernel says of a rank's process: its state, where it waits, what it would answer."""

from pathlib import Path

from aegis.wire.stacks import SIGNAL

GONE = ""
STOPPED, UNINTERRUPTIBLE = "T", "D"
_EXITING = 0x4  # PF_EXITING among the flags of /proc/PID/stat
_CALLS = 3  # of the kernel's own stack, innermost first


def state(pid: int) -> str:
    """The kernel's letter: R runs, S sleeps, D waits in the kernel, T is stopped, Z has ended.

    A debugger's stop is another letter, t: somebody is looking at the process already.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split(None, 1)[0].decode()
    except (OSError, IndexError):
        return GONE


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is not merely waiting to be buried."""
    return bool(pid) and state(pid) not in (GONE, "Z", "X")


def is_ending(pid: int) -> bool:
    """Whether the process is gone, or on its way out and will do nothing more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _EXITING)
    except (OSError, IndexError):
        return True


def answers(pid: int) -> bool:
    """Whether the process has a handler for the signal; without one the signal would end it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def kernel_wait(pid: int) -> str:
    """Where in the kernel it waits, as far as this user may know."""
    try:
        calls = Path(f"/proc/{pid}/stack").read_text().splitlines()
        names = [call.rpartition("] ")[2].partition("+")[0] for call in calls[:_CALLS]]
        if names:
            return " < ".join(names)
    except OSError:
        pass
    try:
        wait = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""
    return "" if wait == "0" else wait
