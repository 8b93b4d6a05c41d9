"""`aegis faults`: the catalogue at the prompt, without a controller."""

import json

from aegis.cli.main import main
from aegis.model.fault import FaultClass


def test_every_class_is_listed(capsys) -> None:
    """One line each, with its severity and what it is."""
    assert main(["faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(one) for one in FaultClass]


def test_one_class_is_explained(capsys) -> None:
    """What it is, what to do, what to look at, what to read."""
    assert main(["faults", "gpu.xgmi.error"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("gpu.xgmi.error: XGMI link error")
    for words in ("what to do    Hands, not reboots", "AFID          15, 16, 17, 18", "https://"):
        assert words in text


def test_a_part_of_the_vocabulary_is_a_list(capsys) -> None:
    """As JSON whole, for other programs."""
    assert main(["faults", "gpu.ecc", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["class"] for one in told} == {
        one for one in FaultClass if one.startswith("gpu.ecc")
    }
    assert all(one["check"] and one["references"] for one in told)


def test_a_name_that_is_none_is_refused_with_a_near_one(capsys) -> None:
    """Exit code 3, as for everything that is not there."""
    assert main(["faults", "gpu.lots"]) == 3
    assert "did you mean gpu.lost?" in capsys.readouterr().err
