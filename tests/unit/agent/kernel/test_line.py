"""One record of the kernel log in each of its forms."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis_agent.probes.kernel.line import Line, parse_line

TEXT = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"
AT = 1741089601.0  # 2025-03-04T12:00:01Z


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        # /dev/kmsg
        (f"6,339,5140900,-;{TEXT}", {"uptime": 5.1409, "sequence": 339, "priority": 6}),
        (f"12,340,1,-,caller=T7;{TEXT}\n", {"uptime": 1e-06, "sequence": 340, "priority": 4}),
        (
            f"3,7,2000000,c;{TEXT}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n",
            {"uptime": 2.0, "sequence": 7, "priority": 3, "device": "0000:c1:00.0"},
        ),
        # dmesg: plain, with a caller, -x, -r, -T, -e, -d, --time-format=iso, coloured
        (f"[   12.345678] {TEXT}", {"uptime": 12.345678}),
        (f"[   12.345678][  T123] {TEXT}", {"uptime": 12.345678}),
        (f"[   12.345678] [    C1] {TEXT}", {"uptime": 12.345678}),
        (f"kern  :warn  : [   12.345678] {TEXT}", {"uptime": 12.345678, "priority": 4}),
        (f"kern  :err   : [Tue Mar  4 12:00:01 2025] {TEXT}", {"priority": 3}),
        (f"<4>[   12.345678] {TEXT}", {"uptime": 12.345678, "priority": 4}),
        (f"[Tue Mar  4 12:00:01 2025] {TEXT}", {}),
        (f"[Mar 4 12:00] {TEXT}", {}),
        (f"[  +0.000012] {TEXT}", {}),
        (f"[   12.345678 <    0.000012>] {TEXT}", {"uptime": 12.345678}),
        (f"2025-03-04T12:00:01,000000+00:00 {TEXT}", {"at": AT}),
        (f"\x1b[32m[   12.345678] \x1b[0m{TEXT}", {"uptime": 12.345678}),
        # journalctl
        (f"Mar 04 12:00:01 n1 kernel: {TEXT}", {}),
        (f"Mar 04 12:00:01.123456 n1 kernel: {TEXT}", {}),
        (f"2025-03-04T12:00:01+0000 n1 kernel: {TEXT}", {"at": AT}),
        (f"2025-03-04T14:00:01.500000+02:00 n1 kernel: {TEXT}", {"at": AT + 0.5}),
        (f"Tue 2025-03-04 12:00:01 UTC n1 kernel: {TEXT}", {"at": AT}),
        (f"Tue 2025-03-04 13:00:01 CET n1 kernel: {TEXT}", {}),
        (f"[   12.345678] n1 kernel: {TEXT}", {"uptime": 12.345678}),
        (f"1741089601.000000 n1 kernel: {TEXT}", {"at": AT}),
        # syslog
        (f"<4>Mar  4 12:00:01 n1 kernel: {TEXT}", {"priority": 4}),
        (f"Mar  4 12:00:01 n1 kernel: [   12.345678] {TEXT}", {"uptime": 12.345678}),
        (f"Mar  4 12:00:01 n1 user.warn kernel: {TEXT}", {}),
        (f"2025-03-04T12:00:01.250000+00:00 n1 kernel: {TEXT}", {"at": AT + 0.25}),
        (f"<4>1 2025-03-04T12:00:01Z n1 kernel - - - {TEXT}", {"at": AT, "priority": 4}),
        (
            f'<11>1 2025-03-04T12:00:01Z n1 kernel - - [x@1 a="]"][y@1] \ufeff{TEXT}',
            {"at": AT, "priority": 3},
        ),
        # bare
        (TEXT, {}),
        (TEXT + "\r\n", {}),
        (f"\0\0\0Mar  4 12:00:01 n1 kernel: {TEXT}", {}),  # after a crash
        (f"[  T123] {TEXT}", {}),
        (f"<3>{TEXT}", {"priority": 3}),
    ],
)
def test_every_form_of_one_message(raw, told):
    """The message is the same however it was printed; stamps are told apart from it."""
    assert parse_line(raw) == Line(text=TEXT, **told)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[drm] amdgpu kernel modesetting enabled",
        "[Hardware Error]: System Fatal error.",
        "[ 5] Surprise Down Error    (First)",
        "{1}[Hardware Error]: event severity: fatal",
        "{359}[Hardware Error]:   section_type: PCIe error}",
        "x86/amd: Previous system reset reason [0x08000800]: an uncorrected error",
        "pcieport 0000:00:02.0:    [ 5] Surprise Down Error    (First)",
        "1 of 8 GPUs",
        "Mar is a month",
    ],
)
def test_what_looks_like_a_stamp_and_is_none_stays(text):
    """Brackets, braces and numbers begin many a message."""
    assert parse_line(text) == Line(text=text)
    assert parse_line(f"[    1.000000] {text}") == Line(text=text, uptime=1.0)


def test_kmsg_escapes_what_cannot_be_printed():
    """A record of two lines, a letter of two bytes, a backslash."""
    line = parse_line(r"3,8,1000000,-;first\x0asecond caf\xc3\xa9 C:\x5ctmp \xff")
    assert line.text == "first\nsecond café C:\\tmp \ufffd"


def test_a_program_that_quotes_the_kernel_keeps_its_name():
    """A test rig that logs "GPU reset begin!" has reset nothing."""
    for raw in (
        f"Aug 17 00:00:24 n1 rig[42]: {TEXT}",
        f"<14>1 2025-03-04T12:00:01Z n1 rig 42 - - {TEXT}",
    ):
        line = parse_line(raw)
        assert (line.text, line.program) == (f"rig[42]: {TEXT}", "rig")
    line = parse_line(json.dumps({"MESSAGE": TEXT, "SYSLOG_IDENTIFIER": "rig"}))
    assert (line.text, line.program) == (f"rig: {TEXT}", "rig")


def test_the_journals_json():
    """It knows both clocks and the boot; its message may be bytes, or missing."""
    entry = {
        "MESSAGE": TEXT,
        "__REALTIME_TIMESTAMP": "1741089601000000",
        "_SOURCE_MONOTONIC_TIMESTAMP": "12345678",
        "PRIORITY": "4",
        "_BOOT_ID": "0123abcd",
        "_KERNEL_DEVICE": "+pci:0000:c1:00.0",
        "SYSLOG_IDENTIFIER": "kernel",
    }
    assert parse_line(json.dumps(entry)) == Line(
        text=TEXT, at=AT, uptime=12.345678, priority=4, boot_id="0123abcd", device="0000:c1:00.0"
    )
    assert parse_line(json.dumps({"MESSAGE": list(TEXT.encode())})).text == TEXT
    assert parse_line('{"MESSAGE": null}').text == ""
    assert parse_line('{"MESSAGE": [1000]}').text == ""
    assert parse_line('{"OTHER": 1}').text == '{"OTHER": 1}'
    assert parse_line("{" * 5000 + "}").text.startswith("{")


_PIECES = st.sampled_from(
    ["6,1,2,-;", "[", "]", "12.5", "<4>", "kern :warn : ", "{", "}", '{"MESSAGE":', " ", "٣",
     "Mar  4 12:00:01 ", "2025-13-44T99:99:99+9999 ", "n1 kernel: ", "\\x", "\\xff",
     "1 - - - - - ", "\n DEVICE=+pci:", "\x1b[0m", "9" * 30]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.one_of(_PIECES, st.text(max_size=3))).map("".join)))
def test_nothing_is_refused(raw):
    """Whatever a log holds, it is a line."""
    assert isinstance(parse_line(raw), Line)
