"""What systemd does for a service: hands over sockets, is told when it is ready, and watches it."""

import socket
import subprocess

import httpx

from aegis.cli.demo.fleet import activated


def test_it_serves_every_socket_it_is_handed(make, cleanup):
    """The demo's nodes reach it on one, the browser on the other; both outlive its restarts."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for listener in listeners:
        listener.set_inheritable(True)
        cleanup.callback(listener.close)
    program = make()
    process = subprocess.Popen(
        activated(program.command(), listeners),
        pass_fds=[listener.fileno() for listener in listeners],
        stdout=subprocess.PIPE,
        text=True,
    )
    program.process = process
    said = process.stdout.readline()
    for listener in listeners:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert f"{url}/" in said
        assert httpx.get(f"{url}/livez").text == "ok"


def test_it_says_when_it_is_ready_and_that_it_is_alive(make, tmp_path, cleanup, monkeypatch):
    """The watchdog is fed by the loop itself, so a stuck loop is restarted."""
    listener = cleanup.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(60)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "600000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    program = make().start()
    assert listener.recv(100) == b"READY=1"
    assert listener.recv(100) == b"WATCHDOG=1"
    assert listener.recv(100) == b"WATCHDOG=1"
    program.stop()
    said = b""
    while said != b"STOPPING=1":
        said = listener.recv(100)
