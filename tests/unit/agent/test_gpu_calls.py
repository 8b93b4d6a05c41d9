"""One call of amdsmi: what its failure becomes, and what is no value."""

import ctypes
from types import SimpleNamespace

import pytest

from aegis_agent.sources.children import Page
from aegis_agent.sources.gpu_calls import (
    NO_VALUE,
    PACKAGE_FAILED,
    CallError,
    Calls,
    count,
    labels,
    number,
    text,
)
from aegis_agent.sources.gpu_survey import Survey


class LibraryError(Exception):
    def __init__(self, status):
        super().__init__(status)
        self.status = status

    def get_error_code(self):
        return self.status


def package(**functions):
    """A package with these functions; what is given as an exception is raised."""

    def answer(value):
        def function(*_):
            if isinstance(value, Exception):
                raise value
            return value

        return function

    return SimpleNamespace(
        AmdSmiLibraryException=LibraryError,
        AmdSmiException=LibraryError,
        **{f"amdsmi_{name}": answer(value) for name, value in functions.items()},
    )


def calls_of(smi, refused=frozenset()):
    return Calls(smi, Page(labels(["umc"])), 0, refused)


@pytest.mark.parametrize(
    "error",
    [
        TypeError("can't multiply sequence by non-int of type 'c_uint'"),  # memory_reserved_pages
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ValueError("invalid literal for int() with base 16: ''"),
        KeyError(7),
        ctypes.ArgumentError(),
    ],
)
def test_a_package_that_stumbles_is_a_failed_call(error):
    """Its own bugs end no process, and say nothing of the GPU."""
    calls = calls_of(package(get_gpu_bad_page_info=error))
    assert calls.attempt("bad_page_info", None) is None
    assert calls.failed == {"bad_page_info": PACKAGE_FAILED}


def test_a_status_is_kept_under_the_name_of_its_call():
    """Also where one function has several."""
    calls = calls_of(package(get_gpu_ecc_count=LibraryError(42)))
    assert calls.attempt("ecc_count", None, 1, label="ecc_count(umc)") is None
    assert calls.failed == {"ecc_count(umc)": 42}
    with pytest.raises(CallError, match=r"ecc_count\(umc\) answered 42"):
        calls("ecc_count", None, 1, label="ecc_count(umc)")


def test_a_call_that_is_not_there_or_not_safe_is_not_made():
    """Older packages lack some; that is no failure."""
    calls = calls_of(package(get_power_info=AssertionError("was called")), {"power_info"})
    assert calls.attempt("power_info", None) is None
    assert calls.attempt("bad_page_threshold", None) is None
    assert calls.failed == {}


def test_all_ones_are_no_number_in_any_width():
    """But a counter may pass 65535."""
    assert [number(value) for value in (0, 255, 140)] == [0, 255, 140]
    for value in (0xFFFF, 0xFFFFFFFF, 2**64 - 1, -1, -5, "N/A", None, True):
        assert number(value) is None
    assert (count(0xFFFF), count(0xFFFFFFFF), count(2**64 - 1)) == (0xFFFF, None, None)
    assert NO_VALUE != PACKAGE_FAILED


def test_no_text_is_no_text():
    """N/A in its forms."""
    assert [text(value) for value in ("N/A", "", None, 7, " a  b ")] == ["", "", "", "", "a b"]


def test_throttling_is_counted_between_two_looks():
    """The flags look at one moment, and are true where they are not available."""
    told = {"acc_counter": 1000, "acc_socket_thrm": 10, "acc_ppt_pwr": 0, "acc_hbm_thrm": "N/A"}
    told |= {"active_hbm_thrm": True, "active_vr_thrm": True, "per_hbm_thrm": 65535}
    smi = SimpleNamespace(
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1, VRAM=3),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0, CRITICAL=5),
    )
    answers = {"violation_status": told}
    survey = Survey(smi, lambda call, *_: answers.get(call))
    assert survey.read()["throttled"] == {}
    answers["violation_status"] = told | {"acc_counter": 2000, "acc_socket_thrm": 260}
    assert survey.read()["throttled"] == {"socket": 25.0, "power": 0.0}
    answers["violation_status"] = told | {"acc_counter": 3000, "acc_socket_thrm": 0}
    assert survey.read()["throttled"] == {"power": 0.0}  # that counter began anew
    answers["violation_status"] = None
    assert survey.read()["throttled"] == {}
