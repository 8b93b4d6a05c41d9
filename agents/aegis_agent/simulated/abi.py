"""The amdsmi C interface, as the installed Python package's own ctypes declarations have it.

The wrapper is the only source, so the simulated library follows whichever release is installed.
Sizes and offsets are asserted when the header is compiled.
"""

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from aegis_agent.probes.gpu_library import library_of

CType: TypeAlias = type[Any]

_HEAD = """\
/* Generated from amdsmi_wrapper.py; do not edit. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
"""
_NAMED: Mapping[CType, str] = {
    ctypes.c_bool: "bool",
    ctypes.c_char: "char",
    ctypes.c_float: "float",
    ctypes.c_double: "double",
}


class AmdsmiMissingError(Exception):
    """The Python package amdsmi is not installed, so there is no interface to follow."""


def write_sources(compiler: str, folder: Path) -> list[Path]:
    """Write amdsmi_abi.h and stubs.c, the latter with every symbol that the wrapper binds."""
    wrapper = _wrapper_path()
    symbols = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper.read_text())))
    stubs = folder / "stubs.c"
    stubs.write_text(_stubs(symbols))
    header = folder / "amdsmi_abi.h"
    header.write_text(_header(_declarations(compiler, wrapper, stubs), _claimed_version(wrapper)))
    return [header, stubs]


def _wrapper_path() -> Path:
    # Found without importing it: the import loads a library.
    package = importlib.util.find_spec("amdsmi")
    if package is None or not package.submodule_search_locations:
        raise AmdsmiMissingError(
            "The simulated library follows the Python package amdsmi, which is not installed: "
            "pip install amdsmi==7.0.2"
        )
    return Path(package.submodule_search_locations[0]) / "amdsmi_wrapper.py"


def _stubs(symbols: list[str]) -> str:
    lines = [f"__attribute__((weak)) int {symbol}(void) {{ return 2; }}" for symbol in symbols]
    return "\n".join(
        ["/* Generated: all that is not simulated answers NOT_SUPPORTED. */", *lines, ""]
    )


def _declarations(compiler: str, wrapper: Path, stubs: Path) -> ModuleType:
    """The wrapper module, imported alone over a throw-away library."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "lib" / "libamd_smi.so"
        library.parent.mkdir()
        subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, stubs], check=True)
        spec = importlib.util.spec_from_file_location("amdsmi_declarations", wrapper)
        if spec is None or spec.loader is None:
            raise AmdsmiMissingError(f"{wrapper} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        # The wrapper prints when it looks in vain; standard output is the command's own.
        with _environment(ROCM_PATH=folder, ROCM_HOME=folder), redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
        return module


@contextmanager
def _environment(**names: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _claimed_version(wrapper: Path) -> str:
    """The version of the library that this wrapper was made for."""
    found = re.search(r'"(.+)"', (wrapper.parent / "_version.py").read_text())
    version = library_of(found[1]) if found else None
    return f"{version[0]}.{version[1]}.0" if version else "0.0.1"


def _header(module: ModuleType, version: str) -> str:
    names = vars(module)
    constants = [
        f"#define {name} {value}"
        for name, value in names.items()
        if name.startswith("AMDSMI_") and isinstance(value, int) and abs(value) < 2**63
    ]
    structures = _Structures()
    for name, value in sorted(names.items()):
        if name.startswith("struct_amdsmi") and getattr(value, "_fields_", None):
            structures.declare(value)
    claim = f'#define SIMULATED_VERSION "{version}"'
    return "\n".join([_HEAD, claim, *constants, *structures.lines, ""])


class _Structures:
    """C declarations of ctypes structures, each after those it contains."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._declared: set[str] = set()

    def declare(self, kind: CType) -> str:
        name = re.sub(r"\W", "_", kind.__name__)
        if name in self._declared:
            return name
        self._declared.add(name)
        fields = getattr(kind, "_fields_", [])
        if issubclass(kind, ctypes.Union) or any(len(field) == 3 for field in fields):
            self._declare_raw(name, ctypes.sizeof(kind))
        else:
            self._declare_fields(name, kind, fields)
        return name

    def _declare_raw(self, name: str, size: int) -> None:
        """Unions and bit-fields are bytes, with a view as words where they fill them."""
        words = f" uint64_t u64[{size // 8}];" if size % 8 == 0 and size else ""
        self.lines.append(f"typedef union {{ uint8_t raw[{size}];{words} }} {name};")

    def _declare_fields(self, name: str, kind: CType, fields: list[tuple[str, CType]]) -> None:
        members = []
        for field, field_kind in fields:
            base, suffix = self._member(field_kind)
            members.append(f"  {base} {field}{suffix};")
        packing = getattr(kind, "_pack_", 0)
        if packing:
            self.lines.append(f"#pragma pack(push, {packing})")
        self.lines += ["typedef struct {", *members, f"}} {name};"]
        if packing:
            self.lines.append("#pragma pack(pop)")
        self.lines.append(f"#define HAVE_{name} 1")
        self.lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, _ in fields:
            offset = getattr(kind, field).offset
            self.lines.append(f"#define HAVE_{name}__{field} 1")
            self.lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{field}");')

    def _member(self, kind: CType) -> tuple[str, str]:
        """What stands before and after a member's name."""
        if issubclass(kind, ctypes.Array):
            element: CType = kind._type_  # type: ignore[assignment]
            base, suffix = self._member(element)
            return base, f"[{kind._length_}]{suffix}"
        if issubclass(kind, ctypes.Structure | ctypes.Union):
            return self.declare(kind), ""
        return _NAMED.get(kind) or _integer(kind) or "void *", ""


def _integer(kind: CType) -> str | None:
    code = getattr(kind, "_type_", None)
    if not isinstance(code, str) or code not in "bBhHiIlLqQ":
        return None
    return f"{'u' if code.isupper() else ''}int{ctypes.sizeof(kind) * 8}_t"
