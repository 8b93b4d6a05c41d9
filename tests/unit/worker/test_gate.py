"""What a script may do before it asks for its rank; each in a process of its own."""

import subprocess
import sys

import pytest

BEFORE = """
import os, sys, threading
from aegis.worker.gate import Gate

told = []
def settle(order):
    os.environ["RANK"] = order
gate = Gate(
    is_gated={"RANK"}.__contains__, folders=(sys.argv[1],),
    ask=lambda: told.append(1) or "3", settle=settle,
)
gate.close()
"""


def run(script, folder):
    command = [sys.executable, "-c", BEFORE + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "asks",
    [
        "os.environ['RANK']",
        "os.environ.get('RANK', '0')",
        "os.getenv('RANK')",
        "'RANK' in os.environ",
        "os.environ.setdefault('RANK', '0')",
        "os.environ.__setitem__('RANK', '0')",
        "dict(os.environ)",
        "os.environ.copy()",
        "os.listdir(sys.argv[1])",
        "os.path.exists(sys.argv[1] + '/newest')",
        "__import__('pathlib').Path(sys.argv[1], 'newest').exists()",
        "list(__import__('pathlib').Path(sys.argv[1]).glob('*'))",
        "open(sys.argv[1] + '/known')",
        "os.waitpid(os.fork() or os._exit(0), 0)",
    ],
)
def test_whatever_needs_a_rank_waits(asks, tmp_path) -> None:
    """Once; then nothing is in the way."""
    (tmp_path / "known").touch()
    script = f"""
assert not told
{asks}
print(len(told), gate.passed, type(os.environ).__name__)
{asks}
print(len(told))
"""
    assert run(script, tmp_path) == ["1", "True", "_Environ", "1"]


def test_what_needs_none_does_not_wait(tmp_path) -> None:
    """Other variables, other folders, threads, programs."""
    script = """
import subprocess
os.environ["OTHER"] = "1"
assert os.environ.get("OTHER") == os.getenv("OTHER") == "1"
assert "NOTHING" not in os.environ
os.environ.pop("OTHER")
os.listdir("/")
open(os.devnull).close()
os.path.exists(sys.argv[1] + "-else")
subprocess.run(["true"], check=True)
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
print(len(told), gate.passed)
"""
    assert run(script, tmp_path / "folder") == ["thread", "0", "False"]


def test_all_threads_wait_for_the_same_place(tmp_path) -> None:
    """One asks, the others go on when it has an answer."""
    script = """
seen = []
ask = gate.ask
def slow():
    __import__("time").sleep(0.2)
    return ask()
gate.ask = slow
threads = [threading.Thread(target=lambda: seen.append(os.environ["RANK"])) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
print(len(told), *seen)
"""
    assert run(script, tmp_path) == ["1", "3", "3", "3", "3"]
