"""An incident told in plain lines."""

from aegis.model.incident import Incident


def tell(incident: Incident) -> list[str]:
    """The story: what, where, effect, evidence, decision, action, outcome, seconds."""
    return [incident.headline]


def seconds(incident: Incident) -> dict[str, float | None]:
    """How long each phase took; None where it was not reached."""
    return dict.fromkeys(["detect", "decide", "stop", "provision", "load", "first_step"])
