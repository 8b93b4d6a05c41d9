"""What systemd and a service say to each other: inherited sockets, readiness, watchdog."""

import os
import socket
import time

_FIRST = 3


def inherited_sockets() -> list[socket.socket]:
    """The listening sockets of a socket unit; none when started otherwise."""
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for number in range(_FIRST, _FIRST + int(count)):
        os.set_inheritable(number, False)
        found.append(socket.socket(fileno=number))
    return found


class Watchdog:
    """Tells systemd that the service is ready and alive. Does nothing without systemd."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        pid = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        microseconds = os.environ.pop("WATCHDOG_USEC", "0")
        mine = pid == str(os.getpid()) and microseconds.isdigit()
        self._every_seconds = int(microseconds) / 3e6 if mine else 0.0
        self._next = 0.0

    def say(self, message: str) -> None:
        """Send one state, such as READY=1."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message.encode(), address)

    def beat(self) -> None:
        """Called on each round of the loop: alive, often enough."""
        if self._every_seconds and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_seconds
            self.say("WATCHDOG=1")
