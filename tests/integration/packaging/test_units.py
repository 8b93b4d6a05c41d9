"""The systemd units, judged by systemd itself, without starting anything."""

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[3] / "packaging"
UNITS = sorted(file.name for file in (PACKAGING / "systemd").iterdir())
HOST_UNITS = Path("/usr/lib/systemd/system")

pytestmark = pytest.mark.skipif(
    not shutil.which("systemd-analyze") or not HOST_UNITS.is_dir(),
    reason="systemd-analyze is not installed",
)


@pytest.fixture
def root(tmp_path):
    """A root folder in which everything is installed that the units name."""
    units = tmp_path / "etc/systemd/system"
    shutil.copytree(PACKAGING / "systemd", units)
    shutil.copytree(HOST_UNITS, tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for program in ("opt/aegis/bin/aegis", "opt/aegis/bin/python", "bin/sh"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    return tmp_path


def verify(root):
    """What systemd has to say against the units; it exits with 0 even on a key it does not know."""
    names = [name.replace("@.", "@trainer.") for name in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"--root={root}", *names],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


def test_systemd_has_nothing_against_the_units(root):
    """A key that systemd does not know would silently protect nothing."""
    assert verify(root) == ""


def test_a_misspelt_key_would_be_noticed(root):
    """The check above can fail."""
    unit = root / "etc/systemd/system/aegis-agent.service"
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHomes="))
    assert "ProtectHomes" in verify(root)


@pytest.mark.parametrize(
    ("unit", "exposure_max"),
    [
        ("aegis-controller.service", 2.0),
        ("aegis-agent.service", 2.5),
        ("aegis-helper@.service", 3.0),
    ],
)
def test_a_service_is_exposed_little(unit, exposure_max):
    """The measure is systemd's own, from 0 to 10; the agent has devices, the helper is root."""
    done = subprocess.run(
        [
            "systemd-analyze", "security", "--offline=true", "--no-pager",
            f"--threshold={exposure_max * 10:.0f}", PACKAGING / "systemd" / unit,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_every_user_and_group_of_the_units_is_made():
    """A unit does not start while its user or a group of it is missing."""
    made = {
        line.split()[1]
        for line in (PACKAGING / "sysusers.d/aegis.conf").read_text().splitlines()
        if line and not line.startswith("#")
    }
    wanted = set()
    for unit in UNITS:
        for line in (PACKAGING / "systemd" / unit).read_text().splitlines():
            key, _, value = line.partition("=")
            if key in ("User", "Group", "SupplementaryGroups"):
                wanted |= set(value.split())
    assert wanted - {"%i"} <= made
