"""Why a rank ended, said from its traceback or its last words."""

from aegis_agent.launcher.failure import describe, read_error

NOTE = "[rank0] [W1202 06:18:22.933017654 socket.cpp:207] [c10d] The hostname cannot be retrieved."


def test_a_warning_of_the_library_is_no_cause(tmp_path):
    """A killed rank whose stderr holds only torch's notes has said nothing."""
    stderr = tmp_path / "stderr"
    stderr.write_text(f"{NOTE}\n{NOTE.removeprefix('[rank0] ')}\n")
    assert read_error(tmp_path / "none", stderr) == ""


def test_the_last_words_are_kept(tmp_path):
    """What the script itself wrote stays, the library's notes around it do not."""
    stderr = tmp_path / "stderr"
    stderr.write_text(f"{NOTE}\nRuntimeError: out of cheese\n{NOTE}\n")
    assert read_error(tmp_path / "none", stderr) == "RuntimeError: out of cheese"


def test_a_signal_and_a_code_are_told_in_words():
    """The sentence names the signal, or the code with the last line of the error."""

    def told(status, error=""):
        return describe(
            generation=1, rank=2, at=0.0, status=status, last_step=7, oom_killed=False, error=error
        ).text

    assert told(-9) == "rank 2 was killed by SIGKILL"
    assert told(1, "Traceback …\nValueError: no") == "rank 2 exited with code 1: ValueError: no"
