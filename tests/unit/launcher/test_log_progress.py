"""Steps and losses out of the lines that torchtitan, Megatron-LM and Primus print."""

import pytest

from aegis.model.job import RankPhase
from aegis.wire.page import Progress
from aegis_agent.launcher.errors import UsageError
from aegis_agent.launcher.log_progress import LogProgress, compiled

# As they are printed: torchtitan's MetricsProcessor, Megatron-LM's training_log, Primus' trainer.
TORCHTITAN = (
    "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: 20  "
    "\x1b[32mloss:  7.4321  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36m"
    "memory: 10.11GiB(12.77%)  \x1b[34mtps: 8,123  \x1b[36mtflops: 47.5  \x1b[35mmfu: 15.22%"
)
TORCHTITAN_VALIDATION = "[titan] INFO - validate step: 20  loss:  7.9999  memory:  1.00GiB(1.00%)"
MEGATRON = (
    " [2026-01-02 03:04:05.678901] iteration       20/   15000 | consumed samples:         5120 | "
    "elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 400.1 | learning "
    "rate: 6.000000E-06 | global batch size:   256 | lm loss: 7.432100E+00 | loss scale: 1.0 | "
    "grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
MEGATRON_VALIDATION = (
    " validation loss at iteration 20 | lm loss value: 7.9E+00 | lm loss PPL: 2.6E+03 |"
)
PRIMUS = (
    "[20260102 03:04:05][rank-7/8][INFO ] [---trainer.py:2034] :  iteration       20/      50 | "
    "consumed samples:         5120 | elapsed time per iteration (ms): 1234.5/1230.1 | hip mem "
    "usage/free/total/usage_ratio: 100.00GB/91.98GB/191.98GB/52.09% | lm loss: 7.432100E+00 |"
)


class Node:
    """One rank's files, and what the launcher makes of them."""

    def __init__(self, folder, pattern):
        self.stdout, self.stderr = folder / "stdout.log", folder / "stderr.log"
        self.progress = Progress()
        self.lines = LogProgress(pattern)
        self.lines.begin([self])

    def prints(self, text, to="stdout"):
        with getattr(self, to).open("a") as file:
            file.write(text)
        self.lines.look([self])
        return self.progress.step, self.progress.loss


@pytest.mark.parametrize(
    ("pattern", "line", "ignored", "to"),
    [
        ("torchtitan", TORCHTITAN, TORCHTITAN_VALIDATION, "stderr"),
        ("megatron", MEGATRON, MEGATRON_VALIDATION, "stdout"),
        ("primus", PRIMUS, MEGATRON_VALIDATION, "stdout"),
        ("primus", TORCHTITAN, TORCHTITAN_VALIDATION, "stderr"),
        (
            r"epoch \d+ step (?P<step>\d+) (?P<loss>\S+)",
            "epoch 3 step 20 7.4321",
            "step 9",
            "stdout",
        ),
    ],
)
def test_a_line_tells_step_and_loss(tmp_path, pattern, line, ignored, to):
    """Wherever it is printed, colours or not; other lines, and half lines, tell nothing."""
    node = Node(tmp_path, pattern)
    assert node.prints(ignored + "\nstarting\n", to) == (0, None)
    assert node.prints(line, to) == (0, None)
    assert node.prints("\n", to) == (20, pytest.approx(7.4321))
    assert node.progress.phase is RankPhase.TRAINING
    assert node.progress.loaded_at
    assert node.progress.first_step_at
    assert not node.progress.moved_at  # its silence is not judged by its lines


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("torchtitan", "[titan] INFO - Training starts at step 101"),
        (
            "megatron",
            "  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 100",
        ),
        ("primus", "  successfully loaded checkpoint from /ckpt at iteration 100"),
    ],
)
def test_a_line_tells_what_was_resumed(tmp_path, pattern, line):
    """The step it goes on from is known before the first new one."""
    node = Node(tmp_path, pattern)
    node.prints(line + "\n")
    assert (node.progress.resumed_step, node.progress.step) == (100, 100)
    assert not node.progress.first_step_at


def test_a_line_without_a_loss_keeps_the_one_before(tmp_path):
    """Megatron leaves the loss out where every iteration of the interval was skipped."""
    node = Node(tmp_path, "megatron")
    node.prints(MEGATRON + "\n")
    assert node.prints(" iteration 30/ 15000 | loss scale: 1.0 |\n") == (30, pytest.approx(7.4321))


def test_a_rank_that_speaks_for_itself_is_believed(tmp_path):
    """Lines fill in only what the page leaves open; a flood is not read to its beginning."""
    node = Node(tmp_path, "megatron")
    node.progress = Progress(step=7, moved_at=1.0)
    node.prints(MEGATRON + "\n")
    assert node.progress.step == 7
    node.progress = Progress()
    node.prints("noise\n" * 200_000 + MEGATRON.replace("20/", "21/") + "\n")
    assert node.progress.step == 21


@pytest.mark.parametrize("pattern", ["step (\\d+)", "step (?P<step>"])
def test_a_pattern_that_tells_no_step_is_refused_in_words(pattern):
    """The message says what to write."""
    with pytest.raises(UsageError, match=r"name torchtitan, megatron or primus, or write"):
        compiled(pattern)
