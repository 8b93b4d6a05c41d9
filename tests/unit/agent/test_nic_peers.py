"""Ports of one kind beside each other."""

from dataclasses import replace

from aegis_agent.probes.nic_peers import Peer, alone, compare
from aegis_agent.probes.roles import Assigned, Place, Port, Role

UP = [Peer(name=f"fab{number}", kind=("ionic", "1"), up=True, speed=400_000) for number in range(8)]


def among(odd):
    """The first port's comparison with seven others that are well."""
    return compare([odd, *UP[1:]])[odd.name]


def test_ports_that_are_all_alike_say_nothing_of_each_other():
    """The usual node."""
    assert {(one.missed, one.slow, one.idle) for one in compare(UP).values()} == {("", "", False)}


def test_the_one_that_is_down_is_missed_and_its_peers_are_named():
    """Seven of eight, from the first look."""
    odd = among(replace(UP[0], up=False, speed=None))
    assert odd.missed == "7 of 8 ports of its kind are up (fab1, fab2, fab3, fab4, …)"


def test_one_that_is_switched_off_is_missed_by_nobody():
    """An administrator did it."""
    assert among(replace(UP[0], up=False, switched_on=False)).missed == ""


def test_where_half_of_a_kind_are_down_nothing_is_odd():
    """The second port of each card has no cable."""
    ports = [replace(port, up=number % 2 == 0) for number, port in enumerate(UP)]
    assert {(one.missed, one.idle) for one in compare(ports).values()} == {("", True)}


def test_other_kinds_are_no_peers():
    """The second port of each card is of another kind than the first."""
    second = [replace(port, name=f"{port.name}b", kind=("ionic", "2"), up=False) for port in UP]
    assert not any(one.missed for one in compare([*UP, *second]).values())


def test_one_that_is_slower_than_most_is_slow():
    """Most, and not the fastest: one faster port makes no seven slow."""
    odd = among(replace(UP[0], speed=200_000))
    assert odd.slow.startswith("it runs at 200 Gb/s while 7 of 8 ports of its kind run at 400 Gb/s")
    faster = compare([replace(UP[0], speed=800_000), *UP[1:]])
    assert not any(one.slow for one in faster.values())


def test_a_lone_port_is_compared_with_its_own_best():
    """It was faster since the agent started."""
    lone = replace(UP[0], speed=200_000, best_speed=400_000)
    assert compare([lone])["fab0"].slow == "it runs at 200 Gb/s and ran at 400 Gb/s before"


def test_a_speed_that_nobody_knows_is_not_judged():
    """No data is no finding."""
    assert among(replace(UP[0], speed=None)).slow == ""


def test_gpus_that_share_their_ports_are_not_asked_for_one_each():
    """Four cards for eight GPUs is a way to build a node; seven for eight is not."""
    gpus = [Place(address=f"0000:{n}5:00.0", bridges=(f"0000:{n}0:01.0",)) for n in range(8)]
    ports = [
        Assigned(port=Port(), name=f"fab{n}", role=Role.FABRIC, why="", gpu=gpu.address)
        for n, gpu in enumerate(gpus)
    ]
    assert alone(ports, gpus) == {}
    assert list(alone(ports[1:], gpus)) == ["0000:05:00.0"]
    assert alone(ports[4:], gpus) == {}
