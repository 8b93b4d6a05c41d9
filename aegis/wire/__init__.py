"""The words as JSON: what agents send, what the event log keeps. One definition of each noun."""

from aegis.wire.codec import (
    VERSION,
    WireError,
    decode,
    decode_as,
    decode_logged,
    encode,
    to_jsonable,
)
from aegis.wire.frames import Answer, Report, SpooledFault

__all__ = [
    "VERSION",
    "Answer",
    "Report",
    "SpooledFault",
    "WireError",
    "decode",
    "decode_as",
    "decode_logged",
    "encode",
    "to_jsonable",
]
