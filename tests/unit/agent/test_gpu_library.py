"""Whether a package of amdsmi and the library under it go together."""

import pytest

from aegis_agent.probes.gpu_library import fit, library_of


@pytest.mark.parametrize(
    ("package", "library"),
    [
        ("7.0.2", (26, 0)),
        ("6.4.3", (25, 5)),
        ("26.2.1+fc0010cf6a", (26, 2)),
        ("25.5.1", (25, 5)),
        ("99.1", (99, 1)),
        ("8.0.0", None),
        ("of unknown version", None),
    ],
)
def test_a_package_says_its_own_version_or_that_of_rocm(package, library):
    """PyPI's is numbered as ROCm is, ROCm's own as the library."""
    assert library_of(package) == library


@pytest.mark.parametrize(
    ("package", "path", "answered", "sure"),
    [
        ("7.0.2", "/opt/rocm/lib/libamd_smi.so.26.0.70002", None, True),
        ("7.0.2", "/opt/rocm/lib/libamd_smi.so.26.2.70200", (26, 0), False),
        ("7.0.2", "/sim/lib/libamd_smi.so", (26, 0), True),
        ("6.4.3", "/opt/rocm/lib/libamd_smi.so.26.0.70002", (26, 0), False),
        ("7.0.2", "/opt/rocm/lib/libamd_smi.so", None, False),
        ("8.0.0", "/opt/rocm/lib/libamd_smi.so.30.0.80000", None, False),
    ],
)
def test_only_equals_are_trusted(package, path, answered, sure):
    """The file's name is asked first; what is not known is not equal."""
    found = fit(package, path, answered)
    assert found.is_sure == sure
    assert bool(found.told()) != sure
    assert ("board_info" in found.refused) != sure
    assert "ecc_count" not in found.refused
