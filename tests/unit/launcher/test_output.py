"""What ranks print is shown with their names, also while a line is still being written."""

import io

from aegis_agent.launcher.output import Output


def test_a_progress_bar_is_seen_while_it_moves(tmp_path) -> None:
    """It goes back to the begin of its line; torchrun shows it live too."""
    path, shown, output = tmp_path / "stdout", io.BytesIO(), Output()
    path.write_bytes(b"one\n\r20%\r40%")
    output.follow(3, [(path, shown)])
    output._look()
    assert shown.getvalue() == b"[rank3] one\n[rank3] \r[rank3] 20%\r"
    output.start()
    output.close()
    assert shown.getvalue() == b"[rank3] one\n[rank3] \r[rank3] 20%\r[rank3] 40%\n"


def test_a_line_that_ends_as_windows_does_is_one_line(tmp_path) -> None:
    """No second, empty one follows."""
    path, shown, output = tmp_path / "stdout", io.BytesIO(), Output()
    path.write_bytes(b"one\r\ntwo\r\n")
    output.follow(0, [(path, shown)])
    output.start()
    output.close()
    assert shown.getvalue() == b"[rank0] one\r\n[rank0] two\r\n"
