"""Nodes, and what operators do with them."""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.api.paging import Cursor, Limit, page
from aegis.controller.problems import RESPONSES, not_found
from aegis.controller.services import Services
from aegis.controller.tokens import Token
from aegis.controller.views import NodePage, Reason, Return
from aegis.model.event import Event, NodeCordoned, NodeDrained, NodeReturned, NodeUncordoned
from aegis.model.node import Node

router = APIRouter(tags=["nodes"], responses=RESPONSES, route_class=OnceRoute)

_Verb = Callable[..., Event]


@router.get("/nodes")
async def list_nodes(here: Here, limit: Limit = 200, cursor: Cursor = "") -> NodePage:
    """All nodes, by name."""
    names, following = page(sorted(here.cluster.nodes), limit, cursor)
    return NodePage(items=tuple(here.cluster.nodes[name] for name in names), next=following)


@router.get("/nodes/{name}")
async def show_node(name: str, here: Here) -> Node:
    """One node with its devices, conditions and launchers."""
    return _node(here, name)


@router.post("/nodes/{name}:cordon")
async def cordon(name: str, body: Reason, here: Here, token: Operator) -> Node:
    """Let the node get no new ranks; the ones it has go on."""
    return await _do(here, name, NodeCordoned, token, body)


@router.post("/nodes/{name}:uncordon")
async def uncordon(name: str, body: Reason, here: Here, token: Operator) -> Node:
    """Undo a cordon."""
    return await _do(here, name, NodeUncordoned, token, body)


@router.post("/nodes/{name}:drain")
async def drain(name: str, body: Reason, here: Here, token: Operator) -> Node:
    """Move the node's ranks away, saving first."""
    return await _do(here, name, NodeDrained, token, body)


@router.post("/nodes/{name}:return")
async def put_back(name: str, body: Return, here: Here, token: Operator) -> Node:
    """Validate the node, then put it back to service; what it has counted so far is forgiven."""
    return await _do(here, name, partial(NodeReturned, validate=body.validate), token, body)


async def _do(here: Services, name: str, verb: _Verb, token: Token, body: Reason | Return) -> Node:
    _node(here, name)
    await here.loop.command(lambda at: verb(at=at, node=name, actor=token.name, reason=body.reason))
    return _node(here, name)


def _node(here: Services, name: str) -> Node:
    node = here.cluster.nodes.get(name)
    if node is None:
        raise not_found("node", name, sorted(here.cluster.nodes))
    return node
