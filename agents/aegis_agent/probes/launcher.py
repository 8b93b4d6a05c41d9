"""Which changes of a launcher's state can wait for the next heartbeat."""

from dataclasses import replace

from aegis.model.job import LauncherState


def is_progress_only(before: LauncherState, after: LauncherState) -> bool:
    """Whether nothing but steps, losses and checkpoints differ."""
    return _standing(before) == _standing(after)


def _standing(state: LauncherState) -> LauncherState:
    ranks = tuple(
        replace(rank, step=0, loss=None, loss_not_finite="", last_step_at=0.0, own_seconds=0.0)
        for rank in state.ranks
    )
    return replace(state, ranks=ranks, checkpoint_step=0, checkpoint_at=0.0)
