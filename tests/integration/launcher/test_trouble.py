"""Bad input and full disks: one clear sentence, and nothing is lost."""

import os
import subprocess
import sys

import pytest

from aegis.model.job import LauncherPhase

RUN = [sys.executable, "-m", "aegis.cli.main", "run"]


def run(*words, **environment):
    """`aegis run` to its end: (exit code, what it said)."""
    done = subprocess.run(
        [*RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=180,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip
    return done.returncode, done.stderr + done.stdout


def test_without_torch(tmp_path, script):
    """The sentence says what to install."""
    (tmp_path / "broken/torch").mkdir(parents=True)
    (tmp_path / "broken/torch/__init__.py").write_text("raise ModuleNotFoundError('No torch here')")
    socket = tmp_path / "no-agent.sock"
    code, said = run(
        "--agent-socket", socket, script("pass\n"), PYTHONPATH=str(tmp_path / "broken")
    )
    assert code == 1
    assert "this needs torch: pip install 'aegis-supervisor[train]'" in said
    assert "Traceback" not in said


def test_a_checkpoint_folder_that_cannot_be_written_to(tmp_path, script):
    """Found before anything is started, not at the first save."""
    (tmp_path / "file").touch()
    code, said = run("--checkpoint-folder", tmp_path / "file", script("pass\n"))
    assert code == 1
    assert "cannot be written to" in said
    assert "--checkpoint-folder" in said


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a small file system")
def test_a_checkpoint_folder_that_is_full(tmp_path, script):
    """Found before anything is started; it says what there is too little of."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        fill(folder / "filler")
        code, said = run("--checkpoint-folder", folder, script("pass\n"))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert code == 1
    assert f"the checkpoint folder {folder} is full (No space left on device)" in said
    assert "make room there, or name another with --checkpoint-folder" in said


@pytest.mark.parametrize("flag", ["--nnodes", "--nproc-per-node"])
@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_world_size_that_cannot_be(script, flag, number):
    """One sentence, the exit code of a wrong flag, and nothing is started."""
    code, said = run(flag, number, script("pass\n"))
    assert code == 2
    assert said == f"aegis run: {flag} {number}: say a number, 1 or more\n"


def test_a_missing_script(tmp_path):
    """A usage error."""
    code, said = run(tmp_path / "gone.py")
    assert code == 2
    assert "does not exist; name a Python file, or a module with -m" in said


def test_a_token_file_that_is_not_there(script, tmp_path):
    """Where nobody else can be asked, there is no use in waiting."""
    code, said = run(
        "--controller", "http://127.0.0.1:9", "--token-file", tmp_path / "gone", "--node", "n7",
        script("pass\n"),
    )  # fmt: skip
    assert code == 4
    assert "cannot be read" in said
    assert "`aegis nodes token n7` mints a token" in said


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "is empty"), (b"\xff\xfe\x00", "holds no token"), (b"a\nb", "holds no token")],
)
def test_a_token_file_of_no_use(script, tmp_path, content, what):
    """The sentence says what is wrong with it and how to get another."""
    file = tmp_path / "node.token"
    file.write_bytes(content)
    code, said = run(
        "--controller", "http://127.0.0.1:9", "--token-file", file, "--node", "n7",
        script("pass\n"),
    )  # fmt: skip
    assert code == 4
    assert f"the token file {file} {what}; `aegis nodes token n7` mints a token" in said


def test_print_shows_what_would_be_run(script):
    """And runs nothing."""
    code, said = run(
        "--print", "--nproc-per-node", "4", "--rdzv-id", "7", script("pass\n"), "--lr", "1"
    )
    assert code == 0
    assert "ranks        1 nodes x 4" in said
    assert "script.py --lr 1" in said
    assert "ignored      --rdzv-id" in said


def test_an_address_that_is_not_ours(script, tmp_path):
    """A store must listen where the other nodes look for it."""
    code, said = run(
        "--agent-socket", tmp_path / "a.sock", "--address", "192.0.2.1", script("pass\n")
    )
    assert code == 1
    assert "no rendezvous store can listen on 192.0.2.1" in said


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a small file system")
def test_a_disk_that_fills_up_costs_a_checkpoint_and_no_step(stage, train):
    """The save fails with a sentence, training goes on, and once there is room it saves again."""
    stage.checkpoints.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(stage.checkpoints)]
    subprocess.run(mount, check=True)
    try:
        stage.launch("a", *train(every=5))
        stage.ready("a")
        stage.begin("a")
        stage.wait(lambda: stage.state("a").checkpoint_step >= 5)
        filler = stage.checkpoints / "filler"
        fill(filler)
        stage.wait(lambda: "was not saved" in stage.log("a"))
        assert "no space is left in" in stage.log("a")
        last_good = stage.state("a").checkpoint_step
        step = stage.trained()[-1][0]
        stage.trains("a", beyond=step + 7)
        assert stage.state("a").checkpoint_step == last_good
        assert (stage.checkpoints / f"step-{last_good:08d}/complete.json").exists()
        filler.unlink()
        stage.wait(lambda: stage.state("a").checkpoint_step > last_good)
        stage.stop("a")
        stage.phase("a", LauncherPhase.IDLE)
    finally:
        stage.close()
        subprocess.run(["umount", str(stage.checkpoints)], check=True)


def fill(path):
    """Leave no room at all."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
