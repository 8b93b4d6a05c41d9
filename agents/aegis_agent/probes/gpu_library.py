"""Whether a Python package of amdsmi and the library under it are of the same make.

The package allocates the structures that the library fills. A newer library has larger ones, and
writes past the end of what an older package gave it; one that moved its fields answers nonsense.
So with an unequal pair only such calls are made whose structures have never changed.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

Version: TypeAlias = tuple[int, int]

# Those whose structures grew from release to release, hold arrays of growing ones, or lengths that
# follow an enumeration. gpu_metrics and ras_feature, which grew too, are called by nobody.
CHANGING_CALLS = frozenset(
    {
        "board_info",
        "vbios_info",
        "fw_info",
        "vram_info",
        "power_info",
        "violation_status",
        "process_list",
        "xgmi_link_status",
        "link_metrics",
    }
)
# Which library a release of ROCm has, by the version of the package that PyPI gives to it.
_OF_ROCM: dict[Version, Version] = {
    (6, 2): (24, 6),
    (6, 3): (24, 7),
    (6, 4): (25, 5),
    (7, 0): (26, 0),
    (7, 1): (26, 1),
    (7, 2): (26, 2),
}
_OWN_MAJOR_MIN = 20  # ROCm's own package has the library's version, PyPI's has that of ROCm


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How package and library go together."""

    expected: Version | None  # the library that the package was made for; None: not known
    found: Version | None  # the library that was loaded

    @property
    def is_sure(self) -> bool:
        """Whether every call is safe."""
        return self.expected is not None and self.expected == self.found

    @property
    def refused(self) -> frozenset[str]:
        """The calls that must not be made."""
        return frozenset() if self.is_sure else CHANGING_CALLS

    def told(self) -> str:
        """A clause for the operator; nothing when all is well."""
        if self.is_sure:
            return ""
        expected, found = (
            ".".join(map(str, version)) if version else "an unknown version"
            for version in (self.expected, self.found)
        )
        return (
            f"the package was made for library {expected} and this is {found}, so only error "
            "counters and records, retired pages, temperatures and the PCIe link are read: install "
            "the package that comes with this ROCm (share/amd_smi)"
        )


def library_of(package: str) -> Version | None:
    """The library that a package of this version was made for: "7.0.2" or "26.0.2+39589fda"."""
    numbers = re.match(r"(\d+)\.(\d+)", package)
    if numbers is None:
        return None
    version = (int(numbers[1]), int(numbers[2]))
    return version if version[0] >= _OWN_MAJOR_MIN else _OF_ROCM.get(version)


def library_at(path: str) -> Version | None:
    """The version in a library's file name: "/opt/rocm/lib/libamd_smi.so.26.0.70002"."""
    numbers = re.search(r"libamd_smi\.so\.(\d+)\.(\d+)", path)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def fit(package: str, path: str, answered: Version | None) -> Fit:
    """Compare. The file's name is asked before the library, whose answer is a structure too."""
    return Fit(expected=library_of(package), found=library_at(path) or answered)
