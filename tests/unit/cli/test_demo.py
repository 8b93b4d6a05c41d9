"""The demo's refusals, each one sentence that says what to do, and its report."""

import argparse
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from aegis.cli.demo import command, show
from aegis.cli.demo.acts import Act
from aegis.cli.demo.fleet import DemoFailedError, Fleet, read_losses, training_script
from aegis.cli.demo.network import Namespaces, NetworkUnavailableError, SimulatedSysfs

PHASES = {
    "opened_at": 12.0, "decided_at": 12.5, "stopped_at": 13.0,
    "started_at": 14.0, "loaded_at": 15.0, "first_step_at": 16.0,
}  # fmt: skip
INCIDENT = {
    "id": "inc-000001", "phases": PHASES, "nodes_before": ["node-1"], "nodes_after": ["node-3"],
    "resumed_step": 20, "last_step_before": 25, "steps_lost": 5,
    "seconds": {"decide": 0.5, "stop": 0.5, "provision": 1.0, "load": 1.0, "first_step": 1.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def signals():
    """The demo takes what would end it; the tests give it back."""
    before = {number: signal.getsignal(number) for number in command._ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(*words):
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


def test_without_a_compiler(tmp_path, monkeypatch, capsys):
    """The simulated GPU library is built on the spot."""
    monkeypatch.setattr("aegis.cli.demo.command.shutil.which", lambda _: None)
    assert run("--folder", tmp_path / "demo") == 1
    assert "there is none: apt-get install gcc" in capsys.readouterr().err


def test_without_torch(tmp_path, monkeypatch, capsys):
    """Nothing is started for a job that cannot train."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run("--folder", tmp_path / "demo") == 1
    assert "no torch here); `make setup` installs it" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_folder_of_somebody_elses_is_not_emptied(tmp_path):
    """Only what a demo made is thrown away by the next."""
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DemoFailedError, match="not a demo's; choose another with --folder"):
        command.prepare_folder(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    with command.prepare_folder(tmp_path / "mine"):
        (tmp_path / "mine" / "old.log").touch()
    with command.prepare_folder(tmp_path / "mine"):
        assert not (tmp_path / "mine" / "old.log").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path):
    """It is named, and left alone."""
    file = tmp_path / "thesis.tex"
    file.write_text("precious")
    with pytest.raises(DemoFailedError, match=r"thesis\.tex is a file; name a folder"):
        command.prepare_folder(file)
    assert file.read_text() == "precious"


def test_the_folder_of_a_demo_that_runs_is_not_emptied(tmp_path):
    """`aegis demo --keep` in one terminal must outlive `aegis demo` in the next."""
    folder = tmp_path / "demo"
    with command.prepare_folder(folder):
        (folder / "controller.log").touch()
        with pytest.raises(DemoFailedError, match="another demo runs in"):
            command.prepare_folder(folder)
        assert (folder / "controller.log").exists()


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_what_is_no_port(port, capsys):
    """Said before anything starts."""
    with pytest.raises(SystemExit) as ended:
        run(f"--port={port}")
    assert ended.value.code == 2
    assert f"'{port}' is no port" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_impatient_second_interruption_stops_no_clean_up(number, tmp_path, monkeypatch, capsys):
    """What the demo started is ended in any case, and only then it says so."""
    monkeypatch.setattr(command, "_check_machine", lambda: None)
    monkeypatch.setattr(command, "_play", lambda *_, **__: signal.raise_signal(number))
    ended = []

    def close(_fleet):
        signal.raise_signal(signal.SIGINT)
        assert "has been ended" not in capsys.readouterr().err
        ended.append("all")

    monkeypatch.setattr(Fleet, "close", close)
    assert run("--folder", tmp_path / "demo", "--network", "sysfs") == 130
    assert ended == ["all"]
    assert "everything it started has been ended" in capsys.readouterr().err


@pytest.mark.skipif("os.geteuid() != 0", reason="network namespaces need root")
def test_an_interruption_while_the_network_is_built_leaves_no_namespace(monkeypatch):
    """Neither those that were made, nor the one in the making."""
    cabled = []

    def cable(*_):
        cabled.append(sorted(Path("/run/netns").glob(f"aegis-demo-{os.getpid()}-*")))
        raise KeyboardInterrupt

    monkeypatch.setattr(Namespaces, "_cable", cable)
    try:
        Namespaces(["node-1", "node-2"])
    except NetworkUnavailableError as error:
        pytest.skip(str(error))
    except KeyboardInterrupt:
        pass
    assert len(cabled[0]) == 2
    assert not list(Path("/run/netns").glob(f"aegis-demo-{os.getpid()}-*"))


def test_without_the_right_to_make_namespaces_it_says_so_and_goes_on(monkeypatch, tmp_path, capsys):
    """The link is simulated then; one who asked for real ones is refused."""
    monkeypatch.setattr("aegis.cli.demo.network.os.geteuid", lambda: 1000)
    assert isinstance(command._network("auto", tmp_path), SimulatedSysfs)
    assert "need root): the fabric link is simulated instead" in capsys.readouterr().out
    with pytest.raises(DemoFailedError, match="without --network the demo does without"):
        command._network("namespaces", tmp_path)


def test_a_taken_port(tmp_path, monkeypatch, capsys):
    """Found at the start, and everything begun is ended."""
    monkeypatch.setattr(command, "_check_machine", lambda: None)
    monkeypatch.setattr(command, "simulate", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run("--folder", tmp_path / "demo", "--network", "sysfs", "--port", port) == 1
    said = capsys.readouterr().err
    assert f"cannot listen on port {port} (Address already in use); choose another" in said


def test_a_full_disk(tmp_path, monkeypatch, capsys):
    """One sentence, no traceback."""
    monkeypatch.setattr(command, "_check_machine", lambda: None)

    def full(*_):
        raise OSError(28, "No space left on device", "/data/losses.jsonl")

    monkeypatch.setattr(command, "simulate", full)
    assert run("--folder", tmp_path / "demo", "--network", "sysfs") == 1
    said = capsys.readouterr().err
    assert "aegis demo: No space left on device (/data/losses.jsonl); the demo is over" in said


def test_a_line_that_was_half_written_is_no_loss(tmp_path):
    """Its rank was killed in the middle of it."""
    losses = tmp_path / "losses.jsonl"
    losses.write_text('{"step": 1, "loss": 5.5, "generation": 1}\n{"step": 2, "lo')
    assert [(one.step, one.loss) for one in read_losses(losses)] == [(1, 5.5)]
    assert read_losses(tmp_path / "none") == []


def test_the_report_has_what_it_promises(tmp_path):
    """Other programs read it; times are seconds since the start."""
    act = Act(name="ecc", fault_class="gpu.ecc.uncorrectable", injected_at=11.0, incident=INCIDENT)
    show.report(tmp_path / "report.json", [act], 10.0, "sysfs", 0.0)
    report = json.loads((tmp_path / "report.json").read_text())
    (told,) = report.pop("acts")
    assert report == {
        "losses_equal": True, "max_loss_difference": 0.0, "simulated": True, "network": "sysfs",
    }  # fmt: skip
    assert told == {
        "name": "ecc", "class": "gpu.ecc.uncorrectable", "injected_at": 1.0, "detected_at": 2.0,
        "decided_at": 2.5, "stopped_at": 3.0, "started_at": 4.0, "loaded_at": 5.0,
        "first_step_at": 6.0, "nodes_before": ["node-1"], "nodes_after": ["node-3"],
        "resumed_from_step": 20, "last_step_before": 25, "steps_lost": 5, "incident": "inc-000001",
    }  # fmt: skip


def test_the_example_is_found_where_it_is_kept():
    """In the source tree here; an installed package carries its own beside the demo."""
    assert training_script().is_file()
    assert training_script().parent.name == "bytes_lm"
