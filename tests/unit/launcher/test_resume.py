"""What a script that saves by itself is given: the newest file that is whole."""

import asyncio
import json
import os
import pickle
import struct
import zipfile
from types import SimpleNamespace

import pytest

from aegis_agent.launcher.resume import BrokenError, Resume, check


def archive(path, size=100_000):
    """As torch.save writes it."""
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
        members.writestr("archive/data/0", os.urandom(size))


def cut(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def pickled(path):
    path.write_bytes(pickle.dumps({"weights": list(range(1000))}))


def safetensors(path):
    header = json.dumps({"w": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(9))


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.pt", archive), ("a.pkl", pickled), ("a.safetensors", safetensors)],
)
def test_half_a_file_is_not_whole(tmp_path, name, make) -> None:
    """Whatever kind it is of, half of it is told from all of it."""
    path = tmp_path / name
    make(path)
    check(path)
    cut(path)
    with pytest.raises(BrokenError):
        check(path)


def test_a_file_of_zeros_is_not_whole(tmp_path) -> None:
    """A power cut may leave the size and none of the content."""
    path = tmp_path / "step_5.pt"
    path.write_bytes(bytes(100_000))
    with pytest.raises(BrokenError, match=r"step_5\.pt begins with nothing but zeros"):
        check(path)


def test_a_flipped_bit_is_found_in_an_archive(tmp_path) -> None:
    """By the checksum of its member."""
    path = tmp_path / "a.pt"
    archive(path)
    flip(path)
    with pytest.raises(BrokenError, match="no whole archive"):
        check(path)


def test_what_torch_writes_loads(tmp_path) -> None:
    """In both of its formats."""
    torch = pytest.importorskip("torch", reason="needs torch: run `make setup`")
    for number, new in enumerate((True, False)):
        path = tmp_path / f"{number}.pt"
        torch.save({"w": torch.randn(100, 100)}, path, _use_new_zipfile_serialization=new)
        check(path)


def aged(path, make, at):
    make(path)
    os.utime(path, (at, at))
    return path


def test_the_newest_whole_one_is_taken(tmp_path, caplog) -> None:
    """By its time, then by its number; half a file is named and passed over."""
    aged(tmp_path / "step_9.pt", archive, 1000)
    best = aged(tmp_path / "step_10.pt", archive, 1000)
    half = aged(tmp_path / "step_20.pt", archive, 2000)
    cut(half)
    os.utime(half, (2000, 2000))
    resume = Resume(str(tmp_path / "step_*.pt"), "j")
    assert resume.find() == str(best)
    assert "step_20.pt is passed over" in caplog.text
    caplog.clear()
    assert resume.find() == str(best)
    assert not caplog.text  # said once
    archive(half)  # it is written anew, and whole
    assert resume.find() == str(half)


def test_folders_are_as_new_as_their_newest_file(tmp_path) -> None:
    """And whole if all in them is."""
    for name, at in (("checkpoint-1", 1000), ("checkpoint-2", 2000)):
        (tmp_path / name).mkdir()
        aged(tmp_path / name / "model.safetensors", safetensors, at)
        aged(tmp_path / name / "optimizer.pt", archive, at)
    resume = Resume(str(tmp_path / "checkpoint-*"), "j")
    assert resume.find() == str(tmp_path / "checkpoint-2")
    cut(tmp_path / "checkpoint-2" / "optimizer.pt")
    assert Resume(resume.pattern, "j").find() == str(tmp_path / "checkpoint-1")


def test_nothing_to_resume_from(tmp_path) -> None:
    """The first generation begins anew."""
    assert not Resume(str(tmp_path / "none" / "*.pt"), "j").find()


def generation(number, group_rank, nodes=2):
    world = SimpleNamespace(members=range(nodes))
    return SimpleNamespace(number=number, group_rank=group_rank, world=world, resume_from="")


def test_why_a_script_begins_anew_is_said(tmp_path, caplog) -> None:
    """A first start is not told as files that are broken."""
    caplog.set_level("INFO")
    resume = Resume(str(tmp_path / "*.pt"), "j")
    assert asyncio.run(resume.settle(generation(1, 0, nodes=1))) == ""
    assert "begins anew: nothing matches" in caplog.text
    archive(tmp_path / "1.pt")
    cut(tmp_path / "1.pt")
    assert asyncio.run(resume.settle(generation(2, 0, nodes=1))) == ""
    assert "begins anew: nothing that matches" in caplog.text


def test_all_nodes_resume_from_what_the_first_has_chosen(tmp_path) -> None:
    """Also when a newer file has come since, and in each generation anew."""
    chosen = aged(tmp_path / "1.pt", archive, 1000)
    first, second = (Resume(str(tmp_path / "*.pt"), "j") for _ in range(2))

    async def start(number):
        one, two = generation(number, 0), generation(number, 1)
        waiting = asyncio.create_task(second.settle(two))
        assert await first.settle(one) == ""
        aged(tmp_path / f"{number + 1}.pt", archive, 2000 + number)
        assert await waiting == ""
        return one.resume_from, two.resume_from

    assert asyncio.run(start(1)) == (str(chosen), str(chosen))
    assert asyncio.run(start(2)) == (str(tmp_path / "2.pt"), str(tmp_path / "2.pt"))


def test_without_a_pattern_there_is_nothing_to_do() -> None:
    """No file is looked for, and no rank is told of any."""
    one = generation(1, 0)
    assert asyncio.run(Resume("", "j").settle(one)) == ""
    assert one.resume_from == ""
