"""What a checkpoint holds: everything that is needed to go on exactly where it was taken.

Model and optimizer by the names of their parameters, so that another world size can read them; and
for each rank its random states and whatever else has a state of its own (data, scheduler).
"""

import io
import pickle
import random
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class Stateful(Protocol):
    """Has a state that can be taken and put back: a data loader, a learning rate schedule."""

    def state_dict(self) -> dict[str, Any]:
        """The state, whole."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Go on from this state."""


RANDOM = "random"  # the name of the random states among what each rank keeps


class Contents:
    """The objects of one rank, to be taken from and put back into."""

    def __init__(
        self, model: Any, optimizers: list[Any], each_rank: Mapping[str, Stateful]
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._each_rank = each_rank

    def take(self, rank: int) -> dict[str, Any]:
        """The state to save; tensors are those of the model, not copies."""
        return {**self._shared(), f"rank_{rank}": _seal(self._own())}

    def place(self, rank: int, saved_by: int) -> dict[str, Any]:
        """The state to load into. A rank that was not there then takes another's own state."""
        return {**self._shared(), f"rank_{rank % saved_by}": b""}

    def put(self, state: dict[str, Any], rank: int, saved_by: int) -> None:
        """Put what was loaded back where it belongs."""
        set_state_dict(
            self._model,
            self._optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        own = _unseal(state[f"rank_{rank % saved_by}"])
        for name, one in self._each_rank.items():
            if name in own:
                one.load_state_dict(own[name])
        _restore_random(own[RANDOM])

    def _shared(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizers)
        return {"model": model, "optimizer": optimizer}

    def _own(self) -> dict[str, Any]:
        states = {name: one.state_dict() for name, one in self._each_rank.items()}
        return {**states, RANDOM: _random()}


def _seal(state: dict[str, Any]) -> bytes:
    """One rank's own state as one object, which the planner neither flattens nor shares."""
    written = io.BytesIO()
    torch.save(state, written)
    return written.getvalue()


def _unseal(sealed: bytes) -> dict[str, Any]:
    opened: dict[str, Any] = torch.load(io.BytesIO(sealed), weights_only=False)
    return opened


def _random() -> dict[str, Any]:
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "torch": torch.get_rng_state(),
        "python": pickle.dumps(random.getstate()),
        "numpy": np.random.get_state(),  # noqa: NPY002  scripts still draw from it
        "devices": devices,
    }


def _restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(pickle.loads(state["python"]))  # noqa: S301  its hash was verified
    np.random.set_state(state["numpy"])  # noqa: NPY002
    if state["devices"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["devices"])
