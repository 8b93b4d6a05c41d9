"""The catalogue: every class of fault in words, for whoever is called at night.

One module per component. `docs/faults/` is made from it, and titles in headlines come from it.
"""

from collections.abc import Mapping

from aegis.model.catalogue import gpu_device, gpu_engine, gpu_memory, host, nic, pcie, work
from aegis.model.catalogue.entry import Entry, Reference
from aegis.model.fault import FaultClass

_ENTRIES: dict[FaultClass, Entry] = {
    fault_class: entry
    for module in (gpu_memory, gpu_engine, gpu_device, nic, pcie, host, work)
    for fault_class, entry in module.ENTRIES.items()
}
CATALOGUE: Mapping[FaultClass, Entry] = {one: _ENTRIES[one] for one in FaultClass}

__all__ = ["CATALOGUE", "Entry", "Reference"]
