"""Muon on the matrices and AdamW on the rest, their state shared out over the ranks (ZeRO-1).

Each parameter has one rank that owns it: gradients are summed there, only it keeps optimizer state
for it, and it sends the new values to all others. Who owns what depends on the world size; the
state is kept by the parameters' names, so that another world size shares it out anew.
"""

import contextlib

import torch
import torch.distributed as dist


class Zero:
    """The optimizers of a model, each parameter's state on one rank.

    `optimizers` are plain torch optimizers that list all parameters on all ranks, so that their
    groups are the same everywhere; state comes to be only where a parameter is owned.
    """

    def __init__(self, model, *, matrix_rate=0.02, rate=3e-3, balance_rate=3e-3):
        self.rank, self.world_size = 0, 1
        matrices = model.matrices()
        balances = [one.balance for one in model.routers()]
        apart = {id(one) for one in (*matrices.values(), *balances)}
        rest = [one for one in model.parameters() if id(one) not in apart]
        muon = torch.optim.Muon(matrices.values(), lr=matrix_rate, weight_decay=0.01)
        adamw = torch.optim.AdamW(
            [
                {"params": rest, "lr": rate, "weight_decay": 0.0},
                {"params": balances, "lr": balance_rate, "weight_decay": 0.0},
            ],
            betas=(0.9, 0.95),
        )
        self.optimizers = [muon, adamw]
        self.routers = model.routers()
        self.parameters = list(model.parameters())
        self.owned_by = [self.parameters]
        self._rates = [[group["lr"] for group in one.param_groups] for one in self.optimizers]

    def share_out(self):
        """Once the process group is there: decide who owns what."""
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.owned_by = self._owners()

    def _owners(self):
        """For each rank its parameters: the largest first, to whoever has the least so far."""
        owned_by = [[] for _ in range(self.world_size)]
        for one in self.optimizers:
            load = [0] * self.world_size
            parameters = [each for group in one.param_groups for each in group["params"]]
            if len(parameters) < self.world_size:
                raise SystemExit(f"{self.world_size} ranks are more than there are parameters")
            for parameter in sorted(parameters, key=torch.numel, reverse=True):
                owner = load.index(min(load))
                load[owner] += parameter.numel()
                owned_by[owner].append(parameter)
        return owned_by

    def step(self, factor=1.0):
        """Gradients to their owners, their step at `factor` of the rates, new values to all."""
        self._balance()
        self._gather_gradients()
        for optimizer, rates in zip(self.optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            optimizer.step()
        self._spread_parameters()
        for one in self.parameters:
            one.grad = None

    @contextlib.contextmanager
    def owned_only(self):
        """Make a checkpointer ask this rank for the state of its own parameters only.

        torch.distributed.checkpoint expects optimizer state for every parameter that asks for a
        gradient; those of others do not, in here.
        """
        mine = {id(one) for one in self.owned_by[self.rank]}
        others = [one for one in self.parameters if id(one) not in mine]
        for one in others:
            one.requires_grad_(False)
        try:
            yield
        finally:
            for one in others:
                one.requires_grad_(True)

    def state_bytes(self):
        """What this rank keeps beside the model."""
        states = [state for one in self.optimizers for state in one.state.values()]
        tensors = [each for state in states for each in state.values() if torch.is_tensor(each)]
        return sum(one.numel() * one.element_size() for one in tensors)

    @torch.no_grad()
    def _balance(self):
        """The gradient of a balancing bias: how far its expert's load is above an even one."""
        loads = torch.stack([one.load for one in self.routers])
        if self.world_size > 1:
            dist.all_reduce(loads)
        for router, load in zip(self.routers, loads, strict=True):
            # Every rank has the whole sum; the mean over ranks that follows leaves it as it is.
            router.balance.grad = (load - load.mean()) / load.sum().clamp(min=1)
            router.load.zero_()

    @torch.no_grad()
    def _gather_gradients(self):
        """The mean over ranks, at the owner; the others let go of theirs."""
        if self.world_size == 1:
            return
        for owner, owned in enumerate(self.owned_by):
            flat = torch.cat([one.grad.flatten() for one in owned])
            dist.reduce(flat, owner)
            means = (flat / self.world_size).split([one.numel() for one in owned])
            for one, mean in zip(owned, means, strict=True):
                one.grad = mean.view_as(one) if owner == self.rank else None

    @torch.no_grad()
    def _spread_parameters(self):
        if self.world_size == 1:
            return
        for owner, owned in enumerate(self.owned_by):
            flat = torch.cat([one.flatten() for one in owned])
            dist.broadcast(flat, owner)
            if owner == self.rank:
                continue
            for one, value in zip(owned, flat.split([one.numel() for one in owned]), strict=True):
                one.copy_(value.view_as(one))
