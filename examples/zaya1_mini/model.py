"""A small mixture-of-experts model in the way of ZAYA1: layers of compressed attention and experts.

What is published and what is ours stands in the README. Shapes in the comments: B batch, T time,
D width, H query heads, K key/value heads, W width of a head, E experts, R width of the router.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """The sizes; the proportions are ZAYA1's."""

    vocabulary: int = 256
    width: int = 128
    layers: int = 3
    query_heads: int = 8
    key_heads: int = 2
    head_width: int = 8
    kernel: int = 2  # of both convolutions, in time
    experts: int = 8
    expert_width: int = 64
    router_width: int = 16
    rotary_base: float = 10_000.0


class CompressedAttention(nn.Module):
    """Attention in a compressed space, its queries and keys mixed by short causal convolutions."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.key_heads = config.query_heads, config.key_heads
        self.head_width, self.kernel = config.head_width, config.kernel
        queries, keys = self.heads * self.head_width, self.key_heads * self.head_width
        self.down_query = nn.Linear(config.width, queries, bias=False)
        self.down_key = nn.Linear(config.width, keys, bias=False)
        self.down_value_now = nn.Linear(config.width, keys // 2, bias=False)
        self.down_value_before = nn.Linear(config.width, keys // 2, bias=False)
        both = queries + keys
        self.over_time = nn.Conv1d(both, both, config.kernel, groups=both)
        self.over_channels = nn.Conv1d(
            both, both, config.kernel, groups=self.heads + self.key_heads
        )
        self.temperature = nn.Parameter(torch.ones(self.key_heads))
        self.up = nn.Linear(queries, config.width, bias=False)
        self.rotary_base = config.rotary_base

    def forward(self, x):
        """(B, T, D) to (B, T, D), no position seeing a later one."""
        batch, time, _ = x.shape
        query, key = self._queries_and_keys(x)
        query, key = self._normalise(query), self._normalise(key)
        key = key * self.temperature[:, None]
        query, key = rotate(query, self.rotary_base), rotate(key, self.rotary_base)
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            self._values(x).transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        return self.up(mixed.transpose(1, 2).reshape(batch, time, -1))

    def _queries_and_keys(self, x):
        """What the convolutions make of them, plus the mean of query and key from before."""
        query, key = self.down_query(x), self.down_key(x)
        queries = query.shape[-1]
        mixed = torch.cat([query, key], dim=-1).transpose(1, 2)
        mixed = self.over_time(F.pad(mixed, (self.kernel - 1, 0)))
        # The second convolution sees zeros before the beginning, not the first one's bias.
        mixed = self.over_channels(F.pad(mixed, (self.kernel - 1, 0))).transpose(1, 2)
        query, key = self._in_heads(query), self._in_heads(key)
        group = self.heads // self.key_heads
        mean = (query + key.repeat_interleave(group, dim=2)) / 2
        mean_of_group = mean.unflatten(2, (self.key_heads, group)).mean(dim=3)
        return (
            self._in_heads(mixed[..., :queries]) + mean,
            self._in_heads(mixed[..., queries:]) + mean_of_group,
        )

    def _values(self, x):
        """The first half of the channels from this position, the other from the one before."""
        before = F.pad(self.down_value_before(x)[:, :-1], (0, 0, 1, 0))
        return self._in_heads(torch.cat([self.down_value_now(x), before], dim=-1))

    def _in_heads(self, x):
        return x.unflatten(-1, (-1, self.head_width))

    def _normalise(self, x):
        """To the length of the root of its width."""
        return F.normalize(x, dim=-1) * self.head_width**0.5


def rotate(x, base):
    """Rotary positions on the first half of each head. (B, T, heads, W)."""
    turned, kept = x.chunk(2, dim=-1)
    pairs = turned.shape[-1] // 2
    rates = base ** -(torch.arange(pairs, device=x.device, dtype=x.dtype) / pairs)
    angles = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None, None] * rates
    first, second = turned.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
    return torch.cat([turned, kept], dim=-1)


class Router(nn.Module):
    """Sends each position to one expert.

    The stream is projected down, the state of the router before is added to it (exponential depth
    averaging, learned factors), and an MLP of three layers says how well each expert suits. The
    balancing biases shift the choice and never the weight; their gradient is the load, see `Load`.
    """

    def __init__(self, config, *, first):
        super().__init__()
        width = config.router_width
        self.down = nn.Linear(config.width, width)
        self.depth = None if first else nn.Parameter(torch.ones(width))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.mlp = nn.Sequential(
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, config.experts, bias=False),
        )
        self.balance = nn.Parameter(torch.zeros(config.experts))
        self.register_buffer("load", torch.zeros(config.experts), persistent=False)

    def forward(self, x, before):
        """For each position its expert, that one's weight, and the state for the next router."""
        state = self.down(x)
        if self.depth is not None:
            state = state + self.depth * before
        suits = self.mlp(self.norm(state)).softmax(dim=-1)
        chosen = (suits.detach() + self.balance.detach()).argmax(dim=-1)
        weight = suits.gather(-1, chosen[..., None])
        if self.training:
            self.load += F.one_hot(chosen, len(self.load)).sum(dim=(0, 1))
        return chosen, weight, state


class Expert(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.width, config.expert_width, bias=False)
        self.up = nn.Linear(config.width, config.expert_width, bias=False)
        self.down = nn.Linear(config.expert_width, config.width, bias=False)

    def forward(self, x):
        """(positions, D) to the same."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each position through the expert that the router chose."""

    def __init__(self, config, *, first):
        super().__init__()
        self.router = Router(config, first=first)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))

    def forward(self, x, router_before):
        """(B, T, D) to the same, and the router's state."""
        chosen, weight, state = self.router(x, router_before)
        flat, chosen = x.flatten(0, 1), chosen.flatten()
        mixed = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            # An expert without a position still runs, on nothing: so its gradients are zeros.
            places = (chosen == number).nonzero()[:, 0]
            mixed = mixed.index_put((places,), expert(flat[places]))
        return mixed.view_as(x) * weight, state


class ResidualScale(nn.Module):
    """Learned gates and biases, per channel, on the stream and on what a branch adds to it."""

    def __init__(self, config):
        super().__init__()
        self.stream_gate = nn.Parameter(torch.ones(config.width))
        self.stream_bias = nn.Parameter(torch.zeros(config.width))
        self.branch_gate = nn.Parameter(torch.ones(config.width))
        self.branch_bias = nn.Parameter(torch.zeros(config.width))

    def forward(self, stream, branch):
        """The new stream."""
        kept = (stream + self.stream_bias) * self.stream_gate
        return kept + (branch + self.branch_bias) * self.branch_gate


class Layer(nn.Module):
    """Compressed attention, then experts."""

    def __init__(self, config, *, first):
        super().__init__()
        self.norm_attention = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = CompressedAttention(config)
        self.scale_attention = ResidualScale(config)
        self.norm_experts = nn.RMSNorm(config.width, eps=1e-5)
        self.mixture = Experts(config, first=first)
        self.scale_experts = ResidualScale(config)

    def forward(self, x, router_before):
        """One layer on the residual stream."""
        x = self.scale_attention(x, self.attention(self.norm_attention(x)))
        mixed, router_state = self.mixture(self.norm_experts(x), router_before)
        return self.scale_experts(x, mixed), router_state


class Zaya(nn.Module):
    """Predicts the next byte."""

    def __init__(self, config=None):
        super().__init__()
        config = config or Config()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.input_gate = nn.Parameter(torch.ones(config.width))
        self.input_bias = nn.Parameter(torch.zeros(config.width))
        self.layers = nn.ModuleList(
            Layer(config, first=number == 0) for number in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self._start()

    def forward(self, text):
        """The loss of predicting each byte of the text from those before it."""
        logits = self.logits(text[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    def logits(self, text):
        """What the model says of the byte after each; the embedding is the head as well."""
        x = (self.embedding(text) + self.input_bias) * self.input_gate
        router_state = None
        for layer in self.layers:
            x, router_state = layer(x, router_state)
        return F.linear(self.norm(x), self.embedding.weight)

    def routers(self):
        """The routers, from the first layer on."""
        return [layer.mixture.router for layer in self.layers]

    def matrices(self):
        """What Muon trains: the matrices between the embedding and the head."""
        return {
            name: one
            for name, one in self.named_parameters()
            if one.ndim == 2 and not name.startswith("embedding")
        }

    def _start(self):
        """Small normal weights, and smaller ones where a branch enters the stream."""
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, one in self.matrices().items():
            enters = name.endswith(("attention.up.weight", "down.weight")) and "router" not in name
            nn.init.normal_(one, std=0.02 / (2 * len(self.layers)) ** 0.5 if enters else 0.02)
