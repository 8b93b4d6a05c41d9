"""Maintenance and silence: whether a window covers a node or an incident at this moment."""

from dataclasses import replace
from fnmatch import fnmatchcase

from aegis.core.cluster import Cluster
from aegis.core.incidents import announced, notice
from aegis.model.action import Notify
from aegis.model.event import WindowEnded, WindowSet
from aegis.model.incident import Incident
from aegis.model.node import Node
from aegis.model.window import Window, WindowKind

WINDOWS_MAX = 200
SECONDS_MAX = 30 * 86400.0


def covering(cluster: Cluster, node: Node | None, fault_class: str) -> list[Window]:
    """The windows that are open now and are about this node and class."""
    return [
        one
        for one in cluster.windows.values()
        if one.starts_at <= cluster.now < one.ends_at and _covers(one, node, fault_class)
    ]


def maintenance(cluster: Cluster, node: Node, fault_class: str) -> Window | None:
    """The window for which Aegis must leave the node alone."""
    found = covering(cluster, node, fault_class)
    return next((one for one in found if one.kind is WindowKind.MAINTENANCE), None)


def mutes(cluster: Cluster, incident: Incident) -> Window | None:
    """The window for which nobody is told of the incident."""
    found = covering(cluster, cluster.nodes.get(incident.node or ""), incident.fault_class)
    return found[0] if found else None


def told(cluster: Cluster, notices: list[Notify]) -> list[Notify]:
    """What is left to tell people when those who want silence have it."""
    return [one for one in notices if not _is_muted(cluster, one)]


def _is_muted(cluster: Cluster, one: Notify) -> bool:
    incident = cluster.incidents.get(one.incident or "")
    return incident is not None and mutes(cluster, incident) is not None


def refusal(cluster: Cluster, event: WindowSet | WindowEnded) -> str | None:
    """Why a window cannot be set or ended; None when it can."""
    if isinstance(event, WindowEnded):
        known = event.window in cluster.windows
        return None if known else f"no window is called {event.window}: see `aegis windows`"
    if event.ends_at <= max(event.starts_at, cluster.now):
        return "the window is over before it begins: give it a later end"
    if event.ends_at - event.starts_at > SECONDS_MAX:
        return "a window lasts for 30 days at most: what is out for longer is better cordoned"
    if len(cluster.windows) >= WINDOWS_MAX:
        return f"there are {WINDOWS_MAX} windows already: end some of them (`aegis windows`)"
    return None


def apply(cluster: Cluster, event: WindowSet | WindowEnded) -> None:
    """Set or end a window. What is no longer possible changes nothing."""
    if refusal(cluster, event) is not None:
        return
    if isinstance(event, WindowEnded):
        window = cluster.windows[event.window]
        if window.starts_at > cluster.now:
            del cluster.windows[event.window]
        else:
            cluster.windows[event.window] = replace(window, ends_at=cluster.now)
        expire(cluster)
        return
    name = f"win-{cluster.next_window:06d}"
    cluster.next_window += 1
    cluster.windows[name] = Window(
        id=name,
        kind=event.kind,
        starts_at=event.starts_at,
        ends_at=event.ends_at,
        actor=event.actor,
        reason=event.reason,
        node=event.node,
        fault_class=event.fault_class,
        labels=event.labels,
    )


def expire(cluster: Cluster) -> None:
    """Windows that are over are forgotten; what still stands of their time is told now."""
    over = [one for one in cluster.windows.values() if one.ends_at <= cluster.now]
    for window in over:
        del cluster.windows[window.id]
    if not over:
        return
    since = min(one.starts_at for one in over)
    for incident in cluster.unresolved():
        was_muted = incident.phases.opened_at >= since and announced(incident)
        node = cluster.nodes.get(incident.node or "")
        if was_muted and any(_covers(one, node, incident.fault_class) for one in over):
            cluster.notices.append(notice("incident.opened", incident))


def _covers(window: Window, node: Node | None, fault_class: str) -> bool:
    """Whether the window is about this node and class, at whatever time."""
    return (
        node is not None
        and fnmatchcase(node.name, window.node)
        and fnmatchcase(fault_class, window.fault_class)
        and set(window.labels) <= set(node.labels)
    )
