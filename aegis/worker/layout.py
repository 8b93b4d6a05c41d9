"""Where in its shard each tensor of a rank lies: planned once, the same at every save after.

A shard is a file that `torch.distributed.checkpoint` reads as one of its own: one torch.save stream
after another. For a tensor of a given shape and type all of such a stream but the numbers is always
the same. So the streams are laid out once, in the memory that a save is taken into, and a save only
copies the numbers in. What is no tensor changes its length, so it comes last.
"""

import dataclasses
import io
import pickle
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from aegis.worker.ranks import Ranks

_ALIGNMENT = 64  # as torch.save aligns numbers within a stream
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's member: the lengths of its name and its extra


class PlanError(Exception):
    """The ranks' states do not make one whole."""


def shard_name(rank: int) -> str:
    """The file of a rank's share, named as torch.distributed.checkpoint names them."""
    return f"__{rank}_0.distcp"


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor's place: the whole stream, and its numbers within the shard."""

    item: WriteItem
    offset: int
    stream: bytes  # what surrounds the numbers; they lie at `data_at` in it
    data_at: int  # from the stream's begin
    data_bytes: int
    length: int
    dtype: torch.dtype
    shape: torch.Size


@dataclass(frozen=True, slots=True)
class Layout:
    """One rank's shard, and what every rank knows of all of them."""

    slots: Sequence[Slot]
    objects: Sequence[WriteItem]  # what is no tensor, in the order in which it is appended
    tensors_bytes: int
    metadata: bytes  # pickled, of all ranks, without the places of objects that are no tensors
    planner: DefaultSavePlanner


def signature(planner: DefaultSavePlanner) -> list[tuple[Any, ...]]:
    """What a layout depends on; a save whose state has another one is planned anew."""
    return [(name, *_kind(one)) for name, one in planner.state_dict.items()]


def _kind(one: Any) -> tuple[Any, ...]:
    if not isinstance(one, torch.Tensor):
        return ()
    local = getattr(one, "_local_tensor", one)
    placements = str(getattr(one, "placements", ""))
    return (one.dtype, tuple(one.shape), tuple(local.shape), placements)


def set_up(state: dict[str, Any], ranks: Ranks) -> DefaultSavePlanner:
    """A planner that knows the state to save."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=ranks.rank == 0)
    return planner


def plan(planner: DefaultSavePlanner, ranks: Ranks) -> Layout:
    """Share the state out over the ranks. All of them call this together."""
    plans = ranks.collect(planner.create_local_plan())
    dealt: list[SavePlan | PlanError] | None = None
    whole: Metadata | None = None
    if plans is not None:
        dealt, whole = _share_out(planner, plans)
    told = ranks.deal(dealt)
    if isinstance(told, PlanError):
        raise told
    mine = planner.finish_plan(told)
    slots, tensors_bytes = _lay_out(planner, mine.items)
    objects = [item for item in mine.items if item.type == WriteItemType.BYTE_IO]
    places = {slot.item.index: (slot.offset, slot.length) for slot in slots}
    everywhere = ranks.collect(places)
    metadata = b""
    if everywhere is not None and whole is not None:
        metadata = _describe(whole, everywhere)
    return Layout(slots, objects, tensors_bytes, ranks.spread(metadata), planner)


def _share_out(
    planner: DefaultSavePlanner, plans: list[SavePlan]
) -> tuple[list[SavePlan | PlanError], Metadata | None]:
    try:
        dealt, whole = planner.create_global_plan(plans)
    except ValueError as error:  # two ranks both hold a part, or neither does
        return [PlanError(str(error))] * len(plans), None
    return list(dealt), whole


def _lay_out(planner: DefaultSavePlanner, items: Sequence[WriteItem]) -> tuple[list[Slot], int]:
    slots, at = [], 0
    for item in items:
        if item.type == WriteItemType.BYTE_IO:
            continue
        tensor = planner.resolve_data(item)
        stream, data_at, data_bytes, length = _stream(tensor)
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        slots.append(
            Slot(item, at, stream, data_at, data_bytes, length, tensor.dtype, tensor.shape)
        )
        at += length
    return slots, at


def _stream(tensor: torch.Tensor) -> tuple[bytes, int, int, int]:
    """A stream of torch.save for such a tensor: all but its numbers, and where they belong."""
    written = io.BytesIO()
    with torch.serialization.skip_data():
        torch.save(torch.empty(tensor.shape, dtype=tensor.dtype), written)
    whole = written.getbuffer()
    data_bytes = tensor.numel() * tensor.element_size()
    with zipfile.ZipFile(written) as members:
        name = next(one for one in members.namelist() if one.endswith("/data/0"))
        header_at = members.getinfo(name).header_offset
    name_bytes, extra_bytes = _LOCAL_HEADER.unpack_from(whole, header_at)
    data_at = header_at + 30 + name_bytes + extra_bytes
    around = bytes(whole[:data_at]) + bytes(whole[data_at + data_bytes :])
    return around, data_at, data_bytes, len(whole)


def _describe(whole: Metadata, everywhere: list[dict[MetadataIndex, tuple[int, int]]]) -> bytes:
    places = {
        index: _StorageInfo(shard_name(rank), offset, length)
        for rank, of_rank in enumerate(everywhere)
        for index, (offset, length) in of_rank.items()
    }
    return pickle.dumps(dataclasses.replace(whole, storage_data=places))


def objects_of(layout: Layout, planner: DefaultSavePlanner) -> tuple[bytes, list[list[Any]]]:
    """What is no tensor, one after another, and each one's key, offset in the shard and length."""
    written, places, at = io.BytesIO(), [], layout.tensors_bytes
    for item in layout.objects:
        data = planner.resolve_data(item)
        content = data.getvalue()
        index = item.index
        offset = None if index.offset is None else list(index.offset)
        places.append([index.fqn, offset, index.index, at, len(content)])
        written.write(content)
        at += len(content)
    return written.getvalue(), places


def complete(metadata: bytes, objects: Sequence[Sequence[Sequence[Any]]]) -> bytes:
    """The whole description, with the places of all ranks' objects, as dcp's `.metadata`."""
    whole: Metadata = pickle.loads(metadata)  # noqa: S301  our own, of this job
    for rank, of_rank in enumerate(objects):
        for name, offset, number, at, length in of_rank:
            where = None if offset is None else torch.Size(offset)
            index = MetadataIndex(name, where, number)
            whole.storage_data[index] = _StorageInfo(shard_name(rank), at, length)
    return pickle.dumps(whole)
