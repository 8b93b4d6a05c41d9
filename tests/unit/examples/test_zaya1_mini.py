"""Each part of the reference workload against its formula, written out plainly in loops."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run `make setup`")

FOLDER = Path(__file__).parents[3] / "examples" / "zaya1_mini"


def load(name):
    spec = importlib.util.spec_from_file_location(f"zaya1_mini_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


zaya, optimizers, text = load("model"), load("optimizers"), load("text")
SMALL = zaya.Config(
    vocabulary=256, width=12, layers=2, query_heads=4, key_heads=2, head_width=4,
    experts=3, expert_width=8, router_width=5,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _steady():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(before)


def stirred(module):
    """The module in double precision, nothing in it at its starting value."""
    module = module.double()
    with torch.no_grad():
        for one in module.parameters():
            one.add_(torch.randn_like(one), alpha=0.3)
    return module


def numbers(parameter):
    return parameter.detach().numpy()


def matrix_times(matrix, vector):
    return [sum(w * v for w, v in zip(row, vector, strict=True)) for row in matrix]


def rms_norm(vector, gain, eps=1e-5):
    root = math.sqrt(sum(v * v for v in vector) / len(vector) + eps)
    return [v / root * g for v, g in zip(vector, gain, strict=True)]


def gelu(v):
    return v * 0.5 * (1 + math.erf(v / math.sqrt(2)))


# ── compressed convolutional attention ──


def attention_by_hand(module, x):
    """One sequence, position by position, channel by channel."""
    config, time, heads, keys = SMALL, len(x), SMALL.query_heads, SMALL.key_heads
    width, queries = config.head_width, heads * config.head_width
    query = [matrix_times(numbers(module.down_query.weight), v) for v in x]
    key = [matrix_times(numbers(module.down_key.weight), v) for v in x]
    both = [q + k for q, k in zip(query, key, strict=True)]
    both = convolve(both, module.over_time, groups=len(both[0]))
    both = convolve(both, module.over_channels, groups=heads + keys)
    group, result = heads // keys, []
    mixed_query = [[None] * heads for _ in range(time)]
    mixed_key = [[None] * keys for _ in range(time)]
    for t in range(time):
        for k in range(keys):
            of_key = key[t][k * width : (k + 1) * width]
            means = []
            for h in range(k * group, (k + 1) * group):
                of_query = query[t][h * width : (h + 1) * width]
                mean = [(a + b) / 2 for a, b in zip(of_query, of_key, strict=True)]
                means.append(mean)
                convolved = both[t][h * width : (h + 1) * width]
                mixed_query[t][h] = turn(
                    unit([a + b for a, b in zip(convolved, mean, strict=True)]), t
                )
            convolved = both[t][queries + k * width : queries + (k + 1) * width]
            total = [a + sum(m[i] for m in means) / group for i, a in enumerate(convolved)]
            warmth = float(module.temperature.detach()[k])
            mixed_key[t][k] = turn([v * warmth for v in unit(total)], t)
    for t in range(time):
        out = []
        for h in range(heads):
            scores = [
                sum(a * b for a, b in zip(mixed_query[t][h], mixed_key[s][h // group], strict=True))
                / math.sqrt(width)
                for s in range(t + 1)
            ]
            weights = [math.exp(one - max(scores)) for one in scores]
            values = [value_by_hand(module, x, s)[h // group] for s in range(t + 1)]
            out += [
                sum(w * v[i] for w, v in zip(weights, values, strict=True)) / sum(weights)
                for i in range(width)
            ]
        result.append(matrix_times(numbers(module.up.weight), out))
    return np.array(result)


def convolve(signal, layer, groups):
    """Causal, with zeros before the beginning."""
    weight, bias = numbers(layer.weight), numbers(layer.bias)
    channels, kernel, size = len(bias), weight.shape[2], len(bias) // groups
    out = []
    for t in range(len(signal)):
        row = []
        for c in range(channels):
            total = bias[c]
            for i in range(size):
                for back in range(kernel):
                    if t - back >= 0:
                        source = signal[t - back][c // size * size + i]
                        total += weight[c, i, kernel - 1 - back] * source
            row.append(total)
        out.append(row)
    return out


def value_by_hand(module, x, t):
    """For each key head its value: half of all channels from this position, half from before."""
    now = matrix_times(numbers(module.down_value_now.weight), x[t])
    before = [0.0] * len(now)
    if t:
        before = matrix_times(numbers(module.down_value_before.weight), x[t - 1])
    flat, width = now + before, SMALL.head_width
    return [flat[k * width : (k + 1) * width] for k in range(SMALL.key_heads)]


def unit(vector):
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length * math.sqrt(len(vector)) for v in vector]


def turn(vector, t):
    """Rotary positions on the first half of the head."""
    half, out = len(vector) // 2, list(vector)
    pairs = half // 2
    for i in range(pairs):
        angle = t * SMALL.rotary_base ** (-i / pairs)
        a, b = vector[i], vector[i + pairs]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + pairs] = b * math.cos(angle) + a * math.sin(angle)
    return out


def test_compressed_attention_is_its_formula():
    """Down, convolved, the mean added, normalised, turned, attended to, up: number for number."""
    module = stirred(zaya.CompressedAttention(SMALL))
    x = torch.randn(2, 5, SMALL.width, dtype=torch.float64)
    by_hand = np.stack([attention_by_hand(module, one.tolist()) for one in x])
    np.testing.assert_allclose(numbers(module(x)), by_hand, rtol=1e-9, atol=1e-11)


def test_no_position_sees_a_later_one():
    """What comes later changes nothing before it: not in attention, convolutions or values."""
    model = stirred(zaya.Zaya(SMALL)).eval()
    one = torch.randint(0, 256, (1, 9))
    other = one.clone()
    other[0, 6:] = (other[0, 6:] + 1) % 256
    before, after = model.logits(one), model.logits(other)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


# ── router, experts, residual scaling ──


def route_by_hand(router, vector, before):
    state = matrix_times(numbers(router.down.weight), vector)
    state = [a + b for a, b in zip(state, numbers(router.down.bias), strict=True)]
    if before is not None:
        state = [s + d * b for s, d, b in zip(state, numbers(router.depth), before, strict=True)]
    hidden = rms_norm(state, numbers(router.norm.weight))
    for layer in (router.mlp[0], router.mlp[2]):
        hidden = matrix_times(numbers(layer.weight), hidden)
        hidden = [gelu(a + b) for a, b in zip(hidden, numbers(layer.bias), strict=True)]
    logits = matrix_times(numbers(router.mlp[4].weight), hidden)
    exponentials = [math.exp(one - max(logits)) for one in logits]
    suits = [one / sum(exponentials) for one in exponentials]
    biased = [a + b for a, b in zip(suits, numbers(router.balance), strict=True)]
    chosen = biased.index(max(biased))
    return chosen, suits[chosen], state


@pytest.mark.parametrize("first", [True, False])
def test_router_is_its_formula(first):
    """The state of the router before is added by learned factors; three layers; the best one."""
    router = stirred(zaya.Router(SMALL, first=first))
    x = torch.randn(2, 6, SMALL.width, dtype=torch.float64)
    before = torch.randn(2, 6, SMALL.router_width, dtype=torch.float64)
    chosen, weight, state = router(x, None if first else before)
    for b in range(2):
        for t in range(6):
            earlier = None if first else before[b, t].tolist()
            expert, suits, hidden = route_by_hand(router, x[b, t].tolist(), earlier)
            assert int(chosen[b, t]) == expert
            assert float(weight.detach()[b, t, 0]) == pytest.approx(suits, rel=1e-10)
            np.testing.assert_allclose(numbers(state[b, t]), hidden, rtol=1e-10)


def test_each_position_goes_through_its_expert_alone():
    """The output is the chosen expert's, times the router's weight."""
    module = stirred(zaya.Experts(SMALL, first=True))
    x = torch.randn(2, 6, SMALL.width, dtype=torch.float64)
    out, _ = module(x, None)
    for b in range(2):
        for t in range(6):
            vector = x[b, t].tolist()
            number, suits, _ = route_by_hand(module.router, vector, None)
            expert = module.experts[number]
            gate = matrix_times(numbers(expert.gate.weight), vector)
            up = matrix_times(numbers(expert.up.weight), vector)
            inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
            by_hand = [suits * one for one in matrix_times(numbers(expert.down.weight), inner)]
            np.testing.assert_allclose(numbers(out[b, t]), by_hand, rtol=1e-9, atol=1e-12)


def test_balancing_bias_shifts_the_choice_and_not_the_weight():
    """A biased expert is chosen, with the weight that it has without the bias."""
    router = stirred(zaya.Router(SMALL, first=True))
    x = torch.randn(1, 8, SMALL.width, dtype=torch.float64)
    suits = router.mlp(router.norm(router.down(x))).softmax(dim=-1)
    with torch.no_grad():
        router.balance.copy_(torch.tensor([0.0, 0.0, 5.0]))
    chosen, weight, _ = router(x, None)
    assert set(chosen.flatten().tolist()) == {2}
    torch.testing.assert_close(weight[..., 0], suits[..., 2])


def test_an_overloaded_experts_bias_falls_and_the_load_evens_out():
    """The biases' gradient is the load above an even one, and following it balances."""
    model = stirred(zaya.Zaya(SMALL))
    zero = optimizers.Zero(model, matrix_rate=0.0, rate=0.0, balance_rate=0.01)
    router = model.routers()[0]
    with torch.no_grad():
        router.balance.copy_(torch.tensor([1.0, 0.0, 0.0]))
    batch = torch.randint(0, 256, (4, 33))
    spread = []
    for _ in range(100):
        model(batch).backward()
        load = router.load.clone()
        spread.append(float(load.max() - load.min()))
        zero.step()
        assert not router.load.any()
        if len(spread) == 1:
            assert load.tolist() == [128, 0, 0]
            assert router.balance[0] < 1.0
            assert all(router.balance[1:] > 0)
    assert np.mean(spread[-10:]) < spread[0] / 2


def test_residual_scaling_is_its_formula():
    """Gate times (value plus bias), for the stream and for the branch."""
    scale = stirred(zaya.ResidualScale(SMALL))
    stream, branch = torch.randn(2, 3, SMALL.width, dtype=torch.float64)
    out = numbers(scale(stream, branch))
    gates = numbers(scale.stream_gate), numbers(scale.branch_gate)
    biases = numbers(scale.stream_bias), numbers(scale.branch_bias)
    for t in range(3):
        for c in range(SMALL.width):
            kept = (float(stream[t, c]) + biases[0][c]) * gates[0][c]
            new = (float(branch[t, c]) + biases[1][c]) * gates[1][c]
            assert out[t, c] == pytest.approx(kept + new, rel=1e-12)


# ── optimizers ──


def test_muon_has_the_matrices_and_adamw_the_rest():
    """Not the embedding, no vector, no convolution; every parameter once."""
    model = zaya.Zaya(SMALL)
    muon, adamw = optimizers.Zero(model).optimizers
    names = {id(one): name for name, one in model.named_parameters()}
    by_muon = [names[id(one)] for group in muon.param_groups for one in group["params"]]
    rest, balances = ([names[id(one)] for one in group["params"]] for group in adamw.param_groups)
    assert sorted(by_muon + rest + balances) == sorted(names.values())
    assert "layers.1.mixture.experts.2.down.weight" in by_muon
    assert "layers.0.mixture.router.down.weight" in by_muon
    assert "embedding.weight" in rest
    assert "layers.0.attention.over_channels.weight" in rest
    assert balances == [f"layers.{n}.mixture.router.balance" for n in range(SMALL.layers)]


def orthogonalised(matrix):
    """Newton and Schulz's iteration, five times, in double precision."""
    a, b, c = 3.4445, -4.775, 2.0315
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / max(np.linalg.norm(wide), 1e-7)
    for _ in range(5):
        gram = wide @ wide.T
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T


def test_muon_and_adamw_step_by_their_formulas():
    """Two steps on known gradients, each against the formula; Muon within bfloat16's precision."""
    model = stirred(zaya.Zaya(SMALL))
    zero = optimizers.Zero(model, matrix_rate=0.02, rate=3e-3)
    matrix, vector = model.layers[0].attention.up.weight, model.norm.weight
    by_adamw = numbers(vector).copy()
    momentum = np.zeros(matrix.shape)
    first, second = np.zeros_like(by_adamw), np.zeros_like(by_adamw)
    for step in (1, 2):
        for one in model.parameters():
            one.grad = torch.randn_like(one)
        before, gradient = numbers(matrix).copy(), numbers(matrix.grad).copy()
        of_vector = numbers(vector.grad).copy()
        zero.step()
        momentum = 0.95 * momentum + 0.05 * gradient
        update = orthogonalised(0.05 * gradient + 0.95 * momentum)
        rate = 0.02 * math.sqrt(max(1, gradient.shape[0] / gradient.shape[1]))
        by_hand = before * (1 - 0.02 * 0.01) - rate * update
        assert np.linalg.norm(numbers(matrix) - by_hand) < 0.03 * np.linalg.norm(rate * update)
        for c, g in enumerate(of_vector):
            first[c] = 0.9 * first[c] + 0.1 * g
            second[c] = 0.95 * second[c] + 0.05 * g * g
            mean, square = first[c] / (1 - 0.9**step), second[c] / (1 - 0.95**step)
            by_adamw[c] -= 3e-3 * mean / (math.sqrt(square) + 1e-8)
        np.testing.assert_allclose(numbers(vector), by_adamw, rtol=1e-9)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_each_parameter_is_owned_once_and_no_rank_has_much_more(world_size):
    """Ownership covers all, evenly, and every rank has a part of both optimizers."""
    zero = optimizers.Zero(zaya.Zaya())
    zero.world_size = world_size
    owned_by = zero._owners()
    flat = [id(one) for owned in owned_by for one in owned]
    assert sorted(flat) == sorted(id(one) for one in zero.parameters)
    sizes = [sum(one.numel() for one in owned) for owned in owned_by]
    largest = max(one.numel() for one in zero.parameters)
    assert max(sizes) - min(sizes) <= 2 * largest
    muon = {id(one) for group in zero.optimizers[0].param_groups for one in group["params"]}
    assert all({id(one) in muon for one in owned} == {True, False} for owned in owned_by)


# ── text and training ──


def test_batches_are_the_same_for_any_number_of_ranks():
    """The parts of two ranks are the batch of one; an uneven share is refused in words."""
    whole = text.Text(1, 4, 16, 0, 1).next()
    parts = [text.Text(1, 4, 16, rank, 2).next() for rank in range(2)]
    assert torch.equal(torch.cat(parts), whole)
    with pytest.raises(SystemExit, match="--batch 4 is not shared out evenly over 3 ranks"):
        text.Text(1, 4, 16, 0, 3)


def test_loss_falls_on_real_text():
    """Forty steps on Python's source take more than a nat off it."""
    model = zaya.Zaya(SMALL)
    zero, data = optimizers.Zero(model), text.Text(1, 8, 32, 0, 1)
    losses = []
    for _ in range(40):
        loss = model(data.next())
        loss.backward()
        zero.step()
        losses.append(loss.item())
    assert losses[0] > 4.5
    assert np.mean(losses[-5:]) < losses[0] - 1.0
