"""Progress without and with a launcher."""

import json

import pytest

from aegis.model.job import RankPhase, RejectedCheckpoint, Tier
from aegis.wire.page import blank, in_words, read
from aegis.worker import progress


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(progress, "_opened", [])


def test_without_a_launcher_progress_goes_nowhere(opened, monkeypatch) -> None:
    """A script that uses it runs anywhere."""
    monkeypatch.delenv("AEGIS_PROGRESS_PAGE", raising=False)
    with progress.session() as session:
        assert not session.launched
        session.step(1, loss=2.0)
        progress.step(2)
        session.reject([RejectedCheckpoint(step=1, path="p", reason="r")])
        assert session.progress.step == 2


def test_with_one_it_is_on_the_page(opened, monkeypatch, tmp_path) -> None:
    """Phases, steps, and the checkpoints that were passed over in a file beside."""
    path = tmp_path / "rank.page"
    path.write_bytes(blank())
    for name, value in {"PROGRESS_PAGE": path, "JOB": "j", "GENERATION": 4, "EPOCH": 2}.items():
        monkeypatch.setenv(f"AEGIS_{name}", str(value))
    with progress.session() as session:
        assert session.fence.height == (4, 2)
        assert read(path.read_bytes()).phase is RankPhase.LOADING
        session.reject([RejectedCheckpoint(step=20, path="p", reason="r")])
        session.loaded(10, Tier.PEER)
        session.step(11, loss=float("nan"))
        written = read(path.read_bytes())
        assert (written.phase, written.step, written.resumed_step) == (RankPhase.TRAINING, 11, 10)
    assert read(path.read_bytes()).phase is RankPhase.ENDING
    assert (written.rejected, written.resumed_from) == (1, Tier.PEER)
    assert (in_words(written.loss), written.bad_loss_step) == ("NaN", 11)
    assert written.loaded_at <= written.first_step_at
    told = json.loads(progress.rejected_path(path).read_text())
    assert told == [{"step": 20, "path": "p", "reason": "r"}]


def test_the_first_step_is_remembered(opened, monkeypatch) -> None:
    """It is when the job trains again."""
    monkeypatch.delenv("AEGIS_PROGRESS_PAGE", raising=False)
    session = progress.current()
    session.step(1)
    first = session.progress.first_step_at
    session.step(2)
    assert session.progress.first_step_at == first <= session.progress.last_step_at
