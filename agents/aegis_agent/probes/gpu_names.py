"""Which GPU is which. An identity is "BDF UUID serial"; a name, once given, stays with its GPU.

Handles and indexes change from start to start. A word that could not be read this time is "-" and
matches any: the address and what was read beside it decide.
"""

from collections.abc import Mapping, Sequence

UNKNOWN_WORD = "-"


def unidentified(address: str) -> str:
    """The identity of a GPU of which only the address was read."""
    return f"{address} {UNKNOWN_WORD} {UNKNOWN_WORD}"


def recognise(known: Sequence[str], listed: Sequence[str]) -> dict[str, str]:
    """For each listed identity the known one that it is, or itself."""
    return {
        identity: next((other for other in known if is_same(other, identity)), identity)
        for identity in listed
    }


def is_same(known: str, listed: str) -> bool:
    """Whether both are the same GPU, as far as both could be read."""
    pairs = list(zip(known.split(), listed.split(), strict=False))
    return slot(known) == slot(listed) and all(
        one == other or UNKNOWN_WORD in {one, other} for one, other in pairs
    )


def is_better(identity: str, known: str) -> bool:
    """Whether more of it was read."""
    return identity.split().count(UNKNOWN_WORD) < known.split().count(UNKNOWN_WORD)


def name_gpus(known: Mapping[str, str], listed: Sequence[str]) -> dict[str, str]:
    """A name for each listed identity: the one it had, or that of the GPU it replaces in its slot.

    Numbers shift when a GPU disappears, so a number once given stays with its GPU.
    """
    by_slot = {slot(identity): name for identity, name in known.items() if identity not in listed}
    names = {identity: known[identity] for identity in listed if identity in known}
    taken = set(known.values())
    for index, identity in enumerate(listed):
        if identity in names:
            continue
        free = (f"gpu{number}" for number in (index, *range(len(listed) + len(known) + 1)))
        name = by_slot.get(slot(identity)) or next(name for name in free if name not in taken)
        names[identity] = name
        taken.add(name)
    return names


def replaced(known: Sequence[str], listed: Sequence[str]) -> list[str]:
    """Known GPUs whose slot now holds another one."""
    slots = {slot(identity) for identity in listed}
    return [identity for identity in known if identity not in listed and slot(identity) in slots]


def slot(identity: str) -> str:
    """Its PCI address."""
    return identity.split(" ", 1)[0]
