"""The device that unit tests of the agent speak of."""

import pytest

from aegis_agent.probes.subject import Subject


@pytest.fixture
def subject() -> Subject:
    return Subject(node="n1", device="gpu3", boot_id="boot-1", identity="0000:75:00.0 uuid serial")


@pytest.fixture
def script(tmp_path):
    """Writes shell scripts that can be run."""

    def write(body, name="check.sh"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def agent_yaml(tmp_path):
    """Writes agent.yaml, and files beside it in checks.d."""

    def write(text, **dropped):
        (tmp_path / "agent.yaml").write_text(text)
        (tmp_path / "checks.d").mkdir(exist_ok=True)
        for name, drop in dropped.items():
            (tmp_path / "checks.d" / f"{name}.yaml").write_text(drop)
        return tmp_path / "agent.yaml"

    return write
