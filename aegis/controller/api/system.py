"""The whole: summary, policy, rules, meta, tokens."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from aegis.controller.api.access import Admin, Here, Operator
from aegis.controller.problems import RESPONSES, ProblemError, not_found
from aegis.controller.services import Services
from aegis.controller.tokens import Role
from aegis.controller.views import (
    Automation,
    Meta,
    MintedToken,
    PolicyView,
    Reason,
    Summary,
    TokenPage,
    TokenRequest,
    summary,
)
from aegis.core.index import AEGIS
from aegis.model.event import AutomationPaused, AutomationResumed
from aegis.wire import VERSION

router = APIRouter(tags=["system"], responses=RESPONSES)


@router.get("/summary")
async def show_summary(here: Here) -> Summary:
    """The verdict in a sentence, and the counts behind it."""
    return summary(here)


@router.get("/policy")
async def show_policy(here: Here) -> PolicyView:
    """The policy in force."""
    return PolicyView(policy=here.cluster.policy, held=here.loop.held)


@router.get("/automation")
async def show_automation(here: Here) -> Automation:
    """Whether Aegis may act at all."""
    return _automation(here)


@router.post("/automation:pause")
async def pause(body: Reason, here: Here, token: Operator) -> Automation:
    """Stop all automation: what breaks is seen and told, and nothing is done."""
    await here.loop.command(
        lambda at: AutomationPaused(at=at, actor=token.name, reason=body.reason)
    )
    return _automation(here)


@router.post("/automation:resume")
async def resume(body: Reason, here: Here, token: Operator) -> Automation:
    """Let Aegis act again, as far as the policy lets it."""
    await here.loop.command(
        lambda at: AutomationResumed(at=at, actor=token.name, reason=body.reason)
    )
    return _automation(here)


def _automation(here: Services) -> Automation:
    return Automation(paused=here.cluster.paused, held=here.loop.held)


@router.get("/meta")
async def show_meta(here: Here) -> Meta:
    """Versions of program, API and protocol."""
    return Meta(
        version=here.version,
        api="v1",
        protocol=VERSION,
        epoch=here.cluster.epoch,
        event=here.changes.number,
    )


# Not by Idempotency-Key: its answers are kept, and a secret must not be.
@router.post("/tokens", status_code=HTTPStatus.CREATED)
async def mint_token(body: TokenRequest, here: Here, _token: Admin) -> MintedToken:
    """A new token for a node, an operator or an admin, shown this once."""
    if (body.role is Role.NODE) != bool(body.node):
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "a token with the role node names its node, and no other does",
            'for example {"role": "node", "node": "gpu-0001"}',
        )
    _check_name(body.name)
    secret, minted = await here.store.call(
        here.tokens.mint, body.role, node=body.node, name=body.name
    )
    return MintedToken(
        token=secret, id=minted.id, role=minted.role, node=minted.node, name=minted.name
    )


def _check_name(name: str) -> None:
    """What its bearer does is told under this name, and must not look like Aegis's own."""
    wrong = "would be taken for Aegis itself" if name.strip().casefold() == AEGIS else ""
    if name != name.strip() or not (name.isprintable() or wrong):
        wrong = "holds space or characters that nobody would see"
    if wrong:
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"the name {name!r} {wrong}",
            "name the person or the program that will bear the token",
        )


@router.get("/tokens")
async def list_tokens(here: Here, _token: Admin) -> TokenPage:
    """All tokens, without their secrets."""
    return TokenPage(items=tuple(here.tokens.all()))


@router.delete("/tokens/{identity}", status_code=HTTPStatus.NO_CONTENT)
async def revoke_token(identity: str, here: Here, _token: Admin) -> Response:
    """Forget a token: whoever bears it is refused from now on."""
    if not await here.store.call(here.tokens.revoke, identity):
        raise not_found("token", identity, [one.id for one in here.tokens.all()])
    return Response(status_code=HTTPStatus.NO_CONTENT)
