"""Build the simulated libraries with the machine's C compiler."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aegis_agent.simulated.abi import write_sources

_SOURCES = Path(__file__).parent / "c"
_NVML_SOURCES = Path(__file__).parent / "nvml"
_FLAGS = ["-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wno-stringop-truncation"]


class CompilerError(Exception):
    """There is no C compiler, or it refused the sources; the sentence says what to do."""


def build(out: Path) -> Path:
    """Build OUT/lib/libamd_smi.so, so that ROCM_PATH=OUT finds it."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        _, stubs = write_sources(compiler, Path(folder))
        sources = [*sorted(_SOURCES.glob("*.c")), stubs]
        return compile_library(out / "lib" / "libamd_smi.so", sources, "-I", folder)


def build_nvml(out: Path) -> Path:
    """Build OUT/lib/libnvidia-ml.so.1, so that LD_LIBRARY_PATH=OUT/lib finds it."""
    return compile_library(out / "lib" / "libnvidia-ml.so.1", sorted(_NVML_SOURCES.glob("*.c")))


def find_compiler() -> str:
    """The machine's C compiler."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise CompilerError("The simulated GPU library needs a C compiler: apt-get install gcc")
    return compiler


def compile_library(library: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile the sources into a shared library, put in its place whole."""
    compiler = find_compiler()
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / library.name
        folders = {str(path.parent) for path in sources}
        command = [compiler, *_FLAGS, *flags, *(f"-I{name}" for name in sorted(folders))]
        command += [f"-Wl,-soname,{library.name}", "-o", str(built), *map(str, sources)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            reason = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise CompilerError(
                f"{compiler} could not compile the simulated GPU library ({reason}); "
                "apt-get install gcc libc6-dev gives what it needs"
            )
        # Renamed into place: a process that has the old library loaded keeps it whole.
        staged = library.with_name(f".{library.name}.new")
        shutil.copy(built, staged)
        staged.replace(library)
    return library
