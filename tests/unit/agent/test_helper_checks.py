"""What orders are held against, and what the helper makes of a hive before and after its reset."""

import json

import pytest

from aegis.model.fault import FaultClass
from aegis.model.order import Order, OrderState, Verb, domain_refusal, refusal
from aegis_agent.helper.children import Domain
from aegis_agent.helper.ledger import Ledger, LedgerError
from aegis_agent.helper.message import MessageError, read_order, write_order
from aegis_agent.helper.obey import _compared, result_of

ORDER = Order(
    id="inc-000001/1@1000",
    verb=Verb.RESET_DOMAIN,
    node="n1",
    boot_id="boot1",
    epoch=3,
    incident="inc-000001",
    expires_at=1060.0,
    reason="gpu.ras.fatal on gpu1",
    fault_class=FaultClass.GPU_RAS_FATAL,
    device="gpu1",
    identity="b u s",
    devices=("a u s", "b u s"),
    processes=(4711,),
)
HERE = {"node": "n1", "boot_id": "boot1", "epoch": 3, "now": 1000.0}


def test_an_order_comes_out_of_its_line_as_it_went_in():
    """Agent and helper speak of the same."""
    assert read_order(write_order(ORDER).strip()) == ORDER


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("epoch", True, "epoch is no whole number"),
        ("epoch", -1, "epoch is no whole number"),
        ("expires_at", "soon", "expires_at is no time"),
        ("node", "", "node is empty"),
        ("reason", "a\nb", "reason is no text"),
        ("devices", "all", "devices is no list"),
        ("processes", ["1"], "processes is no whole number"),
        ("fault_class", "gpu.bored", "unknown class of fault"),
        ("verb", "shutdown", "unknown verb 'shutdown': it knows reset-domain, reboot"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(name, value, why):
    """Nothing is turned into something that it might have meant."""
    found = json.loads(write_order(ORDER)) | {name: value}
    with pytest.raises(MessageError, match=why):
        read_order(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("here", "why"),
    [
        ({}, ""),
        ({"node": "n2"}, "it is meant for n1 and this is n2"),
        ({"boot_id": "boot2"}, "n1 has started anew"),
        ({"boot_id": ""}, "n1 has started anew"),
        ({"epoch": 4}, "epoch 3, and epoch 4 was seen"),
        ({"epoch": 2}, ""),
        ({"now": 1060.0}, "it expired"),
        ({"now": 400.0}, "good for longer"),
    ],
)
def test_an_order_is_good_here_and_now_alone(here, why):
    """Another node, boot, controller or time is another order."""
    told = refusal(ORDER, **(HERE | here))
    assert why in told if why else not told


def test_an_order_without_a_boot_is_for_none():
    """A node that cannot say which boot it is must not match an order that does not say either."""
    unsaid = Order(**{name: getattr(ORDER, name) for name in ORDER.__slots__} | {"boot_id": ""})
    assert refusal(unsaid, **(HERE | {"boot_id": ""}))


def test_a_reset_hits_what_was_ordered_and_nothing_else():
    """Every GPU of the hive, no other, and no process that was not named."""
    assert domain_refusal(ORDER, ["a", "b"], [(4711, "python3")]) == ""
    assert domain_refusal(ORDER, ["a", "b", "c"], []).startswith("the reset would hit c as well")
    assert domain_refusal(ORDER, ["b"], []).startswith("a is of another hive")
    assert "12 rdcd holds a GPU" in domain_refusal(ORDER, ["a", "b"], [(12, "rdcd")])


def test_link_errors_are_compared_with_those_before_the_reset():
    """They do not begin at zero again; what counts is that they do not grow."""
    before = Domain({"a": [7, 1], "b": [0, 0]}, [])
    assert _compared(before, Domain({"a": [7, 1], "b": [0, 0]}, []))[0] is OrderState.DONE
    assert _compared(before, Domain({"a": [0, 0], "b": [0, 0]}, []))[0] is OrderState.DONE
    state, text = _compared(before, Domain({"a": [9, 1], "b": [0, 0]}, []))
    assert (state, "a from 8 to 10" in text) == (OrderState.FAILED, True)


def test_a_gpu_that_does_not_come_back_makes_the_reset_a_failure():
    """Half a hive is none."""
    state, text = _compared(Domain({"a": None, "b": None}, []), Domain({"b": None}, []))
    assert (state, text) == (OrderState.FAILED, "a has not come back from the reset")


def test_the_ledger_comes_back_from_disk(tmp_path):
    """The epoch never falls, and what was begun is known."""
    with Ledger.held(tmp_path, 1.0) as ledger:
        ledger.see(7)
        ledger.see(5)
        ledger.begin(ORDER)
    with Ledger.held(tmp_path, 1.0) as ledger:
        assert ledger.epoch == 7
        assert "nobody has seen how it ended" in ledger.result(ORDER).text
        ledger.end(result_of(ORDER, OrderState.DONE, "2 GPUs were reset"))
    assert Ledger.read(tmp_path).result(ORDER).state is OrderState.DONE


def test_a_broken_ledger_stops_everything(tmp_path):
    """Without its memory an old order could be done again."""
    (tmp_path / "ledger.json").write_text("{")
    with pytest.raises(LedgerError, match="an old order could be done again"):
        Ledger.read(tmp_path)
