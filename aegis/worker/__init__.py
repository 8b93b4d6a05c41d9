"""What a training script may use: progress that its launcher sees, and checkpoints that resume.

    with aegis.worker.session() as session:
        checkpointer = aegis.worker.Checkpointer(folder, model=model, optimizer=optimizer)
        for step in range(checkpointer.restore(), steps_max):
            loss = train_one(step)
            session.step(step + 1, loss=loss)
            checkpointer.save_every(1000, step + 1)

Without a launcher nothing of it is in the way: progress goes nowhere, checkpoints are written and
read as always. Importing this imports no torch; `Checkpointer` does.
"""

from typing import TYPE_CHECKING, Any

from aegis.worker.fence import StaleGenerationError
from aegis.worker.progress import Session, session, step
from aegis.worker.survive import inplace

if TYPE_CHECKING:
    from aegis.worker.checkpoint import Checkpointer

__all__ = ["Checkpointer", "Session", "StaleGenerationError", "inplace", "session", "step"]


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":
        from aegis.worker.checkpoint import Checkpointer  # noqa: PLC0415  it imports torch

        return Checkpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
