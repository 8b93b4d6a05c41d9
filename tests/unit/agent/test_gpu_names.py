"""Which GPU is which."""

from aegis_agent.probes import gpu_names

KNOWN = "0000:75:00.0 8bff-74a1 SIM0"


def test_a_gpu_is_recognised_by_what_could_be_read():
    """A word that could not be read matches any; the address must be the same."""
    for listed in (KNOWN, "0000:75:00.0 8bff-74a1 -", "0000:75:00.0 - -"):
        assert gpu_names.recognise([KNOWN], [listed]) == {listed: KNOWN}
    for other in ("0000:85:00.0 8bff-74a1 SIM0", "0000:75:00.0 8bff-74a2 -"):
        assert gpu_names.recognise([KNOWN], [other]) == {other: other}


def test_an_identity_that_says_more_is_better():
    """The dashes within a UUID are no missing words."""
    assert gpu_names.is_better(KNOWN, gpu_names.unidentified("0000:75:00.0"))
    assert not gpu_names.is_better(KNOWN, KNOWN)
    assert not gpu_names.is_better("0000:75:00.0 8bff-74a1 -", KNOWN)
