"""The device that unit tests of the agent speak of."""

import pytest

from aegis_agent.probes.subject import Subject


@pytest.fixture
def subject() -> Subject:
    return Subject(node="n1", device="gpu3", boot_id="boot-1", identity="0000:75:00.0 uuid serial")
