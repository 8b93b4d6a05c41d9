"""A tiny training with a Checkpointer, which several test files save and restore."""

import random

import numpy as np
import torch

from aegis.worker import Checkpointer
from aegis.worker.folder import candidates


def seed(number):
    """All that a script may draw from."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  scripts still do
    torch.manual_seed(number)


class Count:
    """Where a loader is in its data."""

    def __init__(self):
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Run:
    """A tiny training that draws from every source of random numbers."""

    def __init__(self, folder, **fields):
        seed(7)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.data = Count()
        self.checkpointer = Checkpointer(
            folder, model=self.model, optimizer=self.optimizer, data=self.data, **fields
        )

    def train(self, steps):
        losses = []
        for _ in range(steps):
            noise = random.random() + np.random.random()  # noqa: NPY002
            loss = (self.model(torch.randn(8, 4)) + noise).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.data.at += 1
            losses.append(loss.item())
        return losses

    def state(self):
        """What a checkpoint of this moment is to hold."""
        values = {name: value.clone() for name, value in self.model.state_dict().items()}
        return values, [one["exp_avg"].clone() for one in self.optimizer.state.values()]

    def holds(self, state):
        """Whether this is that moment, to the last bit."""
        values, moments = self.state()
        return all(torch.equal(values[name], one) for name, one in state[0].items()) and all(
            map(torch.equal, moments, state[1])
        )


def steps(folder):
    return [one.step for one in candidates(folder)]
