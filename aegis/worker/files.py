"""Writing files so that they are whole or not there, whatever happens in between."""

import os
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Put the text in the file's place in one move, on disk before this returns."""
    write_bytes_durably(path, text.encode())


def write_bytes_durably(path: Path, content: bytes) -> None:
    """The same with bytes."""
    written = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.rename(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Have the folder's names on disk: a rename is safe only after this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
