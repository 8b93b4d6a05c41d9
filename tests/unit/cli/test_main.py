"""The one command: quick, and helpful when it is used wrongly."""

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

from aegis.cli import main as cli
from aegis.cli import show

AEGIS = [sys.executable, "-m", "aegis.cli.main"]
COMMANDS = sorted(point.name for point in entry_points(group=cli.GROUP))


def aegis(*words):
    return subprocess.run([*AEGIS, *words], capture_output=True, text=True, check=False)


def test_help_lists_every_command_with_a_line():
    """Read from the sources, without importing the commands."""
    done = aegis("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"    {name}" in done.stdout


def test_help_imports_no_command():
    """That is what keeps it quick: no web framework, no HTTP client, no torch."""
    probe = (
        "import sys; from aegis.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'fastapi', 'httpx', 'pydantic', 'torch', 'yaml', 'websockets', 'amdsmi'}\n"
        "sys.exit(f'imported: {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["controller", "status", "nodes", "jobs", "incidents"])
def test_every_command_helps_with_examples(command):
    """And quotes its own flags."""
    done = aegis(command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert f"aegis {command}" in done.stdout


def test_the_version_is_the_package_s():
    """One number, in one place."""
    assert aegis("--version").stdout == f"aegis {version('aegis-supervisor')}\n"


def test_a_verb_alone_is_answered_with_its_command():
    """`aegis stop` ends nothing; it says what does."""
    done = aegis("stop", "llama")
    assert done.returncode == 2
    assert "did you mean `aegis jobs stop NAME`?" in done.stderr


def test_an_unknown_command_is_guessed():
    """The nearest one is named."""
    done = aegis("incident")
    assert done.returncode == 2
    assert "did you mean `aegis incidents`?" in done.stderr


def test_a_wrong_flag_is_one_sentence():
    """It names the flag and where the right ones are listed."""
    done = aegis("run", "--frobnicate", "train.py")
    assert done.returncode == 2
    assert done.stderr == "aegis run: there is no --frobnicate; see `aegis run --help`\n"
    done = aegis("run", "--spares", "x", "train.py")
    assert done.returncode == 2
    told = "argument --spares: invalid int value: 'x'"
    assert done.stderr == f"aegis run: {told}; see `aegis run --help`\n"


def test_no_command_is_a_mistake():
    """With the exit code for it."""
    assert aegis().returncode == 2


def test_a_missing_extra_is_named(monkeypatch, capsys):
    """A package that is not installed is a sentence with the command that installs it."""

    class Point:
        name, module, attr = "controller", "aegis.controller.command", "configure"

        def load(self):
            raise ModuleNotFoundError(name="fastapi")

    monkeypatch.setattr(cli, "entry_points", lambda group: [Point()])
    assert cli.main(["controller"]) == 1
    assert "pip install 'aegis-supervisor[controller]'" in capsys.readouterr().err


def test_options_before_and_after_the_verb_mean_the_same():
    """A verb's defaults do not undo what stood before it."""
    for words in (
        ("nodes", "--controller", "http://127.0.0.1:9", "list"),
        ("nodes", "list", "--controller", "http://127.0.0.1:9"),
    ):
        done = aegis(*words)
        assert done.returncode == 5
        assert "http://127.0.0.1:9" in done.stderr


def test_a_table_is_as_wide_as_it_must_be(capsys):
    """And an empty one is a sentence."""
    show.table(("A", "B"), [("x", 1), ("long", 22)], "nothing")
    show.table(("A",), [], "nothing")
    assert capsys.readouterr().out == "A     B\nx     1\nlong  22\nnothing\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (864000, "10 d")],
)
def test_how_long_ago_is_short(monkeypatch, seconds, text):
    """One number and its unit."""
    monkeypatch.setattr(show.time, "time", lambda: 1_000_000.0)
    assert show.ago(1_000_000.0 - seconds) == text
