"""Each test is a rank that nobody launched."""

import sys
from pathlib import Path

import pytest

from aegis.worker import progress

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_training


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.delenv("AEGIS_PROGRESS_PAGE", raising=False)
    monkeypatch.delenv("AEGIS_CHECKPOINT_FOLDER", raising=False)
    monkeypatch.setattr(progress, "_opened", [])
