"""What a rank may leave for, and what is its own failure."""

import pytest

from aegis.worker import inplace
from aegis.worker.survive import is_broken


def raised_from(error, cause):
    error.__cause__ = cause
    return error


GLOO = RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer")


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (GLOO, True),
        (RuntimeError("NCCL error: remote process exited"), True),
        (raised_from(ValueError("the step failed"), GLOO), True),
        (ValueError("Connection closed by peer"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (None, False),
    ],
)
def test_a_broken_group_tells_of_another_rank(error, broken) -> None:
    """Also where something else came of it; any other error is the rank's own."""
    assert is_broken(error) is broken


def test_without_a_launcher_it_is_the_function_itself() -> None:
    """Its value, its arguments, its errors."""

    @inplace(seconds=1.0)
    def train(steps, *, rate):
        """Train."""
        if not steps:
            raise GLOO
        return steps * rate

    assert train(2, rate=3) == 6
    assert train.__doc__ == "Train."
    with pytest.raises(RuntimeError, match="closed by peer"):
        train(0, rate=1)
