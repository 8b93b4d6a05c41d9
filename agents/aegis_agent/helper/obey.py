"""From an order to its result: every check in its order, then the act."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aegis.model.order import (
    Order,
    OrderResult,
    OrderState,
    Verb,
    domain_refusal,
    refusal,
)
from aegis_agent.helper import children
from aegis_agent.helper.children import ChildError, Domain
from aegis_agent.helper.ledger import Ledger

_DOMAIN_SECONDS_MAX = 20.0
_GRAVE = ("error", "fatal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the helper was started with."""

    node: str
    boot_id: str
    config: Path | None
    look_seconds_max: float
    reset_seconds_max: float
    reboot_command: tuple[str, ...]
    reboot_delay_seconds: float


class RefusedError(Exception):
    """Nothing was touched; the sentence says why, and what to do."""


def obey(order: Order, options: Options, ledger: Ledger) -> OrderResult:
    """Check the order and carry it out. A reboot is only announced: see `reboot`."""
    known = ledger.result(order)
    if known is not None:
        return known
    try:
        _check(order, options, ledger)
        ledger.see(order.epoch)
        _check_live(order, options)
        match order.verb:
            case Verb.RESET_DOMAIN:
                return _reset(order, options, ledger)
            case Verb.REBOOT:
                _check(order, options, ledger)
                ledger.begin(order)
                text = f"{order.node} starts anew in {options.reboot_delay_seconds:.0f} s"
                return _ended(order, ledger, OrderState.ACCEPTED, text)
    except RefusedError as error:
        return result_of(order, OrderState.REFUSED, str(error))


def reboot(order: Order, options: Options, ledger: Ledger) -> None:
    """Carry out the reboot that was announced; by then the answer is on its way."""
    time.sleep(options.reboot_delay_seconds)
    try:
        children.run(options.reboot_command, options.look_seconds_max)
    except ChildError as error:
        _ended(order, ledger, OrderState.FAILED, str(error))
        ledger.audit(order=order.id, failed=str(error))


def result_of(
    order: Order, state: OrderState, text: str, killed: tuple[str, ...] = ()
) -> OrderResult:
    """What there is to say of an order, as of now."""
    return OrderResult(
        id=order.id, verb=order.verb, state=state, text=text, at=time.time(), killed=killed
    )


def _check(order: Order, options: Options, ledger: Ledger) -> None:
    reason = refusal(
        order, node=options.node, boot_id=options.boot_id, epoch=ledger.epoch, now=time.time()
    )
    if reason:
        raise RefusedError(reason)


def _check_live(order: Order, options: Options) -> None:
    """Look at the node, and find there what the order is about."""
    try:
        seen = children.look(options.node, options.config, options.look_seconds_max)
    except ChildError as error:
        raise RefusedError(f"whether it is still so is not known: {error}") from error
    if order.identity and _identity(seen, order.device) != order.identity:
        raise RefusedError(
            f"{order.device} is not {order.identity} here: the order was given for another device"
        )
    about = [one for one in seen["findings"] if one.get("device") == order.device]
    grave = [one for one in about if one.get("severity") in _GRAVE and one.get("counts")]
    same = [one for one in about if one.get("class") == order.fault_class.value]
    if not (grave or same):
        raise RefusedError(
            f"{order.device} shows no {order.fault_class} now, and nothing else that is grave: "
            "nothing has to be done"
        )
    strangers = [f"{pid} {name}" for pid, name in _holders(seen) if pid not in order.processes]
    if strangers and order.verb is Verb.REBOOT:  # a reset asks anew, of its own hive alone
        raise RefusedError(
            f"{', '.join(strangers)} holds a GPU and would be killed: end it, or let a person "
            "approve the reboot"
        )


def _holders(seen: dict[str, Any]) -> list[tuple[int, str]]:
    """The processes that hold any GPU, as the look names them: "python3 (4711), …"."""
    found = {}
    for device in seen["devices"]:
        for part in dict(device.get("facts") or []).get("held_by", "").split(", "):
            name, _, rest = part.partition(" (")
            pid = rest.partition(")")[0]
            if pid.isdigit():
                found[int(pid)] = name
    return sorted(found.items())


def _identity(seen: dict[str, Any], name: str) -> str:
    named = [one for one in seen["devices"] if one.get("name") == name]
    return str(named[0].get("identity", "")) if named else ""


def _reset(order: Order, options: Options, ledger: Ledger) -> OrderResult:
    address = order.identity.split()[0] if order.identity else ""
    if not address:
        raise RefusedError("the order names no GPU to reset: give its identity")
    before = _domain(address)
    if reason := domain_refusal(order, list(before.members), before.holders):
        raise RefusedError(reason)
    _check(order, options, ledger)
    ledger.begin(order)
    try:
        children.reset(address, options.reset_seconds_max)
        after = children.domain(address, _DOMAIN_SECONDS_MAX)
    except ChildError as error:
        return _ended(order, ledger, OrderState.FAILED, str(error), _killed(before, None))
    state, text = _compared(before, after)
    return _ended(order, ledger, state, text, _killed(before, after))


def _domain(address: str) -> Domain:
    try:
        return children.domain(address, _DOMAIN_SECONDS_MAX)
    except ChildError as error:
        raise RefusedError(f"what the reset would hit is not known: {error}") from error


def _compared(before: Domain, after: Domain) -> tuple[OrderState, str]:
    """How the hive is after its reset. Errors of links do not begin anew: they must not grow."""
    count = len(before.members)
    gone = sorted(set(before.members) - set(after.members))
    if gone:
        return OrderState.FAILED, f"{', '.join(gone)} has not come back from the reset"
    grown = [
        f"{address} from {sum(old)} to {sum(new)}"
        for address, old in before.members.items()
        if old is not None and (new := after.members[address]) is not None and sum(new) > sum(old)
    ]
    if grown:
        text = f"{count} GPUs were reset, and errors of their links have grown: {', '.join(grown)}"
        return OrderState.FAILED, text
    silent = [address for address, new in after.members.items() if new is None]
    links = "link errors are as before" if not silent else "link errors cannot be read"
    noun = "GPU was" if count == 1 else "GPUs were"
    return OrderState.DONE, f"{count} {noun} reset; {links}"


def _killed(before: Domain, after: Domain | None) -> tuple[str, ...]:
    """Who held a GPU before, and holds none now."""
    left = {pid for pid, _ in after.holders} if after is not None else set()
    return tuple(f"{pid} {name}" for pid, name in before.holders if pid not in left)


def _ended(
    order: Order, ledger: Ledger, state: OrderState, text: str, killed: tuple[str, ...] = ()
) -> OrderResult:
    result = replace(result_of(order, state, text), killed=killed)
    ledger.end(result)
    return result
