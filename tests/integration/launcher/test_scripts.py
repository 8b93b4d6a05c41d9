"""Scripts as people have them: what they find, and what is said when they fail."""

import json

from aegis.model.job import LauncherPhase
from aegis.worker.fence import Fence, raise_fence

PLAIN = """\
import json, os, random, sys
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
import beside

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return float(index)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    loaders = [DataLoader(Numbers(), num_workers=1),
               DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")]
    total = torch.tensor([sum(float(x) for loader in loaders for x in loader)])
    dist.all_reduce(total)
    told = {"argv": sys.argv[1:], "beside": beside.VALUE, "total": total.item(),
            "file": __file__, "cwd": os.getcwd(), "draws": [float(torch.rand(1)), random.random()],
            **{name: os.environ[name] for name in os.environ if name.startswith(
                ("RANK", "LOCAL_", "WORLD_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_"))}}
    print(json.dumps(told))
"""


def told(stage, rank, stream="stdout"):
    return (
        stage.folder / f"a/logs/generation-{stage.generation}/rank-{rank}/{stream}.log"
    ).read_text()


def test_an_unchanged_script_finds_what_torchrun_gives_it(stage, script):
    """Environment, arguments, neighbours on the path, data loaders, collectives."""
    script("VALUE = 11\n", name="beside.py")
    path = script(PLAIN)
    stage.launch("a", path, "--lr", "0.1")
    stage.ready("a")
    stage.begin("a")
    stage.phase("a", LauncherPhase.DONE)
    zero, one = (json.loads(told(stage, rank)) for rank in (0, 1))
    assert zero["argv"] == ["--lr", "0.1"]
    assert (zero["beside"], zero["total"], zero["file"]) == (11, 24.0, str(path))
    assert zero["cwd"] == str(stage.folder)
    assert zero["draws"][0] == one["draws"][0]  # torch's generator has a fixed seed
    assert zero["draws"][1] != one["draws"][1]
    assert (one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) == (
        "1", "1", "2", "2",
    )  # fmt: skip
    assert one["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    assert one["TORCHELASTIC_RUN_ID"] == "test"
    assert one["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert "[rank0] {" in stage.log("a")  # the first rank's output is shown
    assert "[rank1]" not in stage.log("a")


FAILING = {
    "raise ValueError('no such corpus')": (1, "ValueError: no such corpus"),
    "import sys; sys.exit(7)": (7, "exited with code 7"),
    "import sys; sys.exit('no corpus')": (1, "no corpus"),
    "print('": (1, "SyntaxError: unterminated string literal"),
    "import ctypes; ctypes.string_at(0)": (None, "killed by SIGSEGV"),
}


def test_a_script_that_fails_says_why(stage, script):
    """In one sentence, with the traceback of the script and nothing of ours in it."""
    stage.launch("a", script(""), ranks=1)
    stage.ready("a")
    for text, (exit_code, sentence) in FAILING.items():
        script(text + "\n")
        stage.begin("a")
        failure = stage.phase("a", LauncherPhase.FAILED).failure
        assert failure.exit_code == exit_code
        assert sentence in failure.text
        if exit_code is not None:  # the interpreter's own dump of a crash shows every frame
            assert "aegis" not in failure.error
            assert "runpy" not in failure.error


def test_a_module_and_a_program(stage, script):
    """-m and --no-python, as torchrun has them."""
    script("import sys; print('module', sys.argv[1:], __name__)\n", name="some_module.py")
    stage.launch("a", "some_module", "x", flags=("-m",), ranks=1)
    stage.launch("b", "env", flags=("--no-python",), ranks=1)
    for node in ("a", "b"):
        stage.ready(node)
        stage.generation = 0
        stage.begin(node)
        stage.phase(node, LauncherPhase.DONE)
    assert told(stage, 0) == "module ['x'] __main__\n"
    printed = (stage.folder / "b/logs/generation-1/rank-0/stdout.log").read_text()
    assert "\nLOCAL_RANK=0\n" in printed


def test_a_generation_that_was_replaced_commits_nothing(stage, train):
    """The fence is up for a newer one: its ranks end at their next save, and no older starts."""
    stage.launch("a", *train(every=5))
    stage.ready("a")
    stage.begin("a")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 5)
    raise_fence(stage.checkpoints, Fence(job="test", generation=9, epoch=1))
    failed = stage.phase("a", LauncherPhase.FAILED)
    assert "generation 9 (epoch 1) has begun" in failed.failure.text
    markers = [json.loads(path.read_text()) for path in stage.checkpoints.glob("*/complete.json")]
    assert {marker["generation"] for marker in markers} == {1}
    stage.begin("a")
    failed = stage.phase("a", LauncherPhase.FAILED)
    assert "generation 2 of job test (epoch 1) may no longer commit" in failed.failure.text
    assert failed.ranks == ()


def test_a_checkpoint_is_read_by_another_number_of_ranks(stage, train):
    """Two ranks saved it, three go on from it."""
    stage.launch("a", *train(steps=10, every=5), ranks=2)
    stage.ready("a")
    stage.begin("a")
    stage.phase("a", LauncherPhase.DONE)
    stage.finish("a")
    stage.launch("b", *train(steps=15, every=5), ranks=3)
    stage.ready("b")
    stage.begin("b")
    done = stage.phase("b", LauncherPhase.DONE)
    assert (done.resumed_step, done.checkpoint_step) == (10, 15)
