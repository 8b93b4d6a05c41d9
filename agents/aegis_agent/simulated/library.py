"""Build the simulated libamd_smi.so with the machine's C compiler."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from aegis_agent.simulated.abi import write_sources

_SOURCES = Path(__file__).parent / "c"
_FLAGS = ["-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wno-stringop-truncation"]


class CompilerError(Exception):
    """There is no C compiler, or it refused the sources; the sentence says what to do."""


def build(out: Path) -> Path:
    """Build OUT/lib/libamd_smi.so, so that ROCM_PATH=OUT finds it."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise CompilerError("The simulated GPU library needs a C compiler: apt-get install gcc")
    library = out / "lib" / "libamd_smi.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _, stubs = write_sources(compiler, Path(folder))
        built = Path(folder) / library.name
        sources = sorted(str(path) for path in _SOURCES.glob("*.c"))
        command = [compiler, *_FLAGS, "-I", folder, "-I", str(_SOURCES)]
        command += [f"-Wl,-soname,{library.name}", "-o", str(built), *sources, str(stubs)]
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
