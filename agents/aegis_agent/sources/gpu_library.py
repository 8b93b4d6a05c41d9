"""Which amdsmi reads here: the Python package, the library under it, and whether they fit.

ROCm's own package comes first; PyPI's is the same wrapper, re-distributed without a library. What
counts is what the process has mapped, not what was asked for.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aegis_agent.probes.gpu_library import Fit, Version, fit

_NAME = "libamd_smi.so"
_RIVAL = "librocm_smi"  # torch and RCCL load it; both in one process find no GPU, or crash
_VERSION_WORDS = 64  # more room than any release's structure takes


class LibraryError(Exception):
    """amdsmi cannot be used here; the sentence says why and what to do."""


@dataclass(frozen=True)
class Library:
    """The package, imported; children that call it are forked from this process."""

    package: Any
    path: str  # of the library, as mapped; empty where it is not to be found

    def told(self) -> dict[str, Any]:
        """For the agent: names and versions. Calls the library: only for children."""
        version = self._version()
        return {
            "package": self._package_version(),
            "package_path": os.path.dirname(self.package.__file__ or ""),  # noqa: PTH120
            "path": self.path,
            "version": ".".join(map(str, version)) if version else "of unknown version",
            "simulated": bool(self.path) and hasattr(ctypes.CDLL(self.path), "aegis_simulated"),
            "warning": self.fit().told(),
        }

    def fit(self) -> Fit:
        """Whether package and library are of the same make. Calls the library."""
        return fit(self._package_version(), self.path, self._version())

    def _package_version(self) -> str:
        return str(getattr(self.package, "__version__", "of unknown version"))

    def _version(self) -> Version | None:
        """The first two numbers that the library gives: all releases begin with them."""
        if not self.path:
            return None
        words = (ctypes.c_uint32 * _VERSION_WORDS)()
        try:
            status = ctypes.CDLL(self.path).amdsmi_get_lib_version(words)
        except AttributeError:
            return None
        return (words[0], words[1]) if status == 0 and words[0] else None


def load(importing: Callable[[], Any]) -> Library:
    """Import amdsmi with the given function. Raises LibraryError."""
    if rival := _mapped(_RIVAL):
        raise LibraryError(
            f"{rival} is loaded in the GPU prober, beside which amdsmi finds no GPU or crashes: "
            "see what preloads it (LD_PRELOAD, a .pth file)"
        )
    rocm = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"
    own = os.path.join(rocm, "share", "amd_smi")  # noqa: PTH118  no pathlib here
    reasons = []
    for folder in (own, None) if os.path.isdir(own) else (None,):  # noqa: PTH112
        package, reason = _try_import(importing, folder)
        if package is not None:
            return Library(package=package, path=_mapped(_NAME))
        reasons.append(reason)
    if reasons == [""]:
        raise LibraryError("the Python package amdsmi is not installed")
    told = "; ".join(filter(None, reasons))
    raise LibraryError(
        f"amdsmi finds no usable {_NAME} under {rocm} or on the linker's path ({told})"
    )


def _try_import(importing: Callable[[], Any], folder: str | None) -> tuple[Any, str]:
    """The package, or why not; an empty reason where there is no package."""
    if folder is not None:
        sys.path.insert(0, folder)
    try:
        return importing(), ""
    # All seen: the wrapper fails in whatever way its missing library makes it fail.
    except (ImportError, OSError, KeyError, AttributeError) as error:
        for name in [name for name in sys.modules if name.split(".")[0] == "amdsmi"]:
            del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and error.name == "amdsmi":
            return None, ""
        place = f" in {folder}" if folder is not None else ""
        return None, f"{type(error).__name__}{place}: {error}"
    finally:
        if folder is not None:
            sys.path.remove(folder)


def _mapped(name: str) -> str:
    """The path of a library that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  no pathlib here
        paths = (line.split(maxsplit=5)[-1].strip() for line in maps if name in line)
        return next((path for path in paths if name in os.path.basename(path)), "")  # noqa: PTH119
