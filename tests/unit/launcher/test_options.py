"""torchrun's flags and our own; each mistake gives one sentence that says what to change."""

import argparse

import pytest

from aegis_agent.launcher import options
from aegis_agent.launcher.options import UsageError, parse_tee
from aegis_agent.launcher.world_size import count_gpus, read_ranks_per_node


@pytest.fixture
def read(tmp_path, monkeypatch):
    for name in ("AEGIS_CONTROLLER", "AEGIS_TOKEN_FILE", "AEGIS_AGENT_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = tmp_path / "train.py"
    script.touch()

    def read_words(*words, script=script):
        parser = argparse.ArgumentParser()
        options.add_arguments(parser)
        return options.read(parser.parse_args([*words, str(script), "--lr", "1", "-m", "x"]))

    return read_words


def test_a_script_keeps_its_own_flags(read) -> None:
    """All that follows the script is the script's."""
    wanted = read("--nproc_per_node=4", "--max-restarts", "5")
    assert wanted.command.arguments == ("--lr", "1", "-m", "x")
    assert (wanted.spec.ranks_per_node, wanted.spec.restarts_max) == (4, 5)
    assert wanted.spec.name == "train"
    assert wanted.embeds_controller


def test_torchruns_environment_counts_where_no_flag_is_given(read, monkeypatch, tmp_path) -> None:
    """Job scripts set PET_NPROC_PER_NODE; to train at another size would go unnoticed."""
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    monkeypatch.setenv("PET_MAX_RESTARTS", "7")
    monkeypatch.setenv("PET_LOG_DIR", str(tmp_path / "logs"))
    wanted = read()
    assert (wanted.spec.ranks_per_node, wanted.spec.restarts_max) == (2, 7)
    assert wanted.log_folder == tmp_path / "logs"
    assert read("--nproc-per-node", "3").spec.ranks_per_node == 3


def test_torchruns_rendezvous_flags_are_accepted_and_named(read) -> None:
    """A command line that worked with torchrun works, and says what it does without."""
    wanted = read("--rdzv-backend=c10d", "--rdzv_endpoint", "h:1", "--standalone", "-r", "3")
    assert wanted.ignored == ("--rdzv-backend", "--rdzv_endpoint", "--standalone", "-r")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nnodes", "1:4"], "the number of nodes is fixed here; to train on 1"),
        (["--nnodes", "0"], "--nnodes 0: say a number, 1 or more"),
        (["--nnodes", "-2"], "--nnodes -2: say a number, 1 or more"),
        (["--nnodes", "0:4"], "--nnodes 0: say a number, 1 or more"),
        (["--nnodes", "4:2"], "--nnodes 4:2: at least 4 and at most 2 is no size"),
        (["--nnodes", "2:"], "--nnodes : say a number, 1 or more"),
        (["--nproc-per-node", "0"], "--nproc-per-node 0: say a number, 1 or more"),
        (["--nproc-per-node", "-1"], "--nproc-per-node -1: say a number, 1 or more"),
        (["--nproc-per-node", "many"], "--nproc-per-node many: say a number"),
        (["--nproc-per-node", "9999"], "--nproc-per-node 9999: say 1024 or fewer"),
        (["--controller", "head:8500"], "--controller head:8500: say its URL, as http://"),
        (["--spares", "-1"], "--spares -1: say a number, 0 or more"),
        (["--nnodes", "2"], "2 nodes need a controller they can all reach"),
        (["--job", "a/b"], "a job's name is made of letters"),
        (["-m", "--no-python"], "exclude each other"),
        (["--controller", "http://c:1", "--node", "n7"], "aegis nodes token n7"),
    ],
)
def test_a_wrong_flag(read, words, said) -> None:
    """The sentence names the flag and what to say instead."""
    with pytest.raises(UsageError, match=said.replace("|", r"\|")):
        read(*words)


def test_a_name_that_is_loopback_here_is_no_address_for_other_nodes(read, monkeypatch) -> None:
    """Their ranks would knock at themselves. A controller on this machine is another thing."""
    monkeypatch.setattr("socket.gethostname", lambda: "127.0.1.1")
    socket_of_agent = ("--agent-socket", "/run/aegis/agent.sock", "--nnodes", "2")
    with pytest.raises(UsageError, match="no other node reaches it: say its address with --addr"):
        read(*socket_of_agent)
    assert read(*socket_of_agent, "--address", "10.0.0.7").address == "10.0.0.7"
    assert read(*socket_of_agent, "--controller", "http://127.0.0.1:8500").address == "127.0.0.1"


def test_a_missing_script(read, tmp_path) -> None:
    """Found before anything is started."""
    with pytest.raises(UsageError, match="does not exist; name a Python file"):
        read(script=tmp_path / "gone.py")


def test_a_name_is_made_of_the_scripts(read, tmp_path) -> None:
    """Whatever its file is called."""
    script = tmp_path / "my train (2).py"
    script.touch()
    assert read(script=script).spec.name == "my-train--2"


def test_gpus_are_counted_without_a_library(tmp_path) -> None:
    """The kernel's own list: its first node is the processor and has no GPU."""
    for number, gpu in enumerate((0, 4711, 4712)):
        node = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu}\n")
    assert count_gpus(tmp_path) == 2
    assert count_gpus(tmp_path / "nowhere") == 0


@pytest.fixture
def two_gpus(tmp_path):
    """A machine's files."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


def test_more_ranks_than_gpus(two_gpus) -> None:
    """The second rank on a device would wait for ever, or fail far from the cause."""
    assert read_ranks_per_node("2", {}, two_gpus) == 2
    with pytest.raises(UsageError, match="3: this node shows 2 GPUs, and two ranks cannot have"):
        read_ranks_per_node("3", {}, two_gpus)
    with pytest.raises(UsageError, match=r"shows 1 GPU \(CUDA_VISIBLE_DEVICES=1\), .* say 1, or"):
        read_ranks_per_node("2", {"CUDA_VISIBLE_DEVICES": "1"}, two_gpus)
    assert read_ranks_per_node("gpu", {"CUDA_VISIBLE_DEVICES": "1"}, two_gpus) == 1


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_ranks_that_use_no_gpu_may_be_many(two_gpus, hidden) -> None:
    """Where there is none, or they are hidden."""
    assert read_ranks_per_node("3", {}, two_gpus / "nowhere") == 3
    assert read_ranks_per_node("3", {"HIP_VISIBLE_DEVICES": hidden}, two_gpus) == 3


def test_a_gpu_in_parts_takes_more_ranks(two_gpus) -> None:
    """Which part is whose is the ranks' own affair."""
    (two_gpus / "proc/driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    assert read_ranks_per_node("7", {}, two_gpus) == 7


def test_what_is_shown() -> None:
    """By default both streams of the job's first rank."""
    assert parse_tee("", range(2), first=0) == {0: 3}
    assert parse_tee("", range(2), first=None) == {}
    assert parse_tee("1", range(2), first=0) == {0: 1, 1: 1}
    assert parse_tee("1:2,7:3", range(2), first=0) == {1: 2}
    with pytest.raises(UsageError, match="--tee x"):
        parse_tee("x", range(2), first=0)


@pytest.mark.parametrize(
    ("flag", "target", "said"),
    [
        (
            "-m",
            "no_such_package.train",
            "there is no module no_such_package.train: no_such_package is neither",
        ),
        ("--no-python", "/nonexistent", "there is no program /nonexistent that can be run"),
        ("--no-python", "no-such-program", "there is no program no-such-program that can be run"),
    ],
)
def test_a_missing_module_or_program(read, flag, target, said) -> None:
    """Found before anything is started, not by four generations of ranks."""
    with pytest.raises(UsageError, match=said):
        read(flag, script=target)


def test_a_module_in_the_folder_is_found(read, tmp_path, monkeypatch) -> None:
    """As python -m finds it, and without running any of it."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was run')\n")
    monkeypatch.chdir(tmp_path)
    assert read("-m", script="mine.train").command.target == "mine.train"
    assert read("--no-python", script="env").command.target == "env"
