"""The wheel: everything that an installed Aegis needs is in it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What is in the wheel."""
    if not (ROOT / "aegis/controller/static/index.html").is_file():
        pytest.skip("the dashboard is not built: make setup")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_carries_the_dashboard(names):
    """Who installs Aegis needs no Node."""
    assert "aegis/controller/static/index.html" in names
    assert any(name.startswith("aegis/controller/static/assets/") for name in names)


def test_the_wheel_carries_every_rule_file_and_their_tests(names):
    """The controller reads its rules from the package, and `aegis rules test` runs their tests."""
    shipped = {name for name in names if name.startswith("aegis/rules/shipped/")}
    files = [*ROOT.glob("rules/*.yaml"), *ROOT.glob("rules/tests/*.yaml")]
    assert shipped == {f"aegis/rules/shipped/{file.relative_to(ROOT / 'rules')}" for file in files}


def test_the_wheel_carries_the_demo_and_the_simulated_library(names):
    """`aegis demo` works from an installed package."""
    assert "aegis/cli/demo/bytes_lm/train.py" in names
    assert "aegis_agent/simulated/c/simulation.h" in names


def test_the_wheel_carries_no_tests_and_nothing_of_the_workshop(names):
    """Only the two packages and what describes them."""
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"aegis", "aegis_agent"}
