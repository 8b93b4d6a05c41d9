"""Reading rules and policy anew: all or nothing. What cannot be used changes nothing."""

import asyncio
import logging
import time

from aegis.controller.configuration import ConfigurationError
from aegis.controller.services import Services
from aegis.controller.store import CannotWriteError
from aegis.model.action import Notify
from aegis.model.event import PolicyChanged, RulesLoaded
from aegis.model.fault import Severity

log = logging.getLogger(__name__)


async def reload(services: Services) -> None:
    """Take what the files say now. Raises what stood in the way, once it is said aloud."""
    async with services.reloads.reading:
        await _reload(services)


async def _reload(services: Services) -> None:
    reloads, loop = services.reloads, services.loop
    try:
        rules, policy = await asyncio.to_thread(reloads.files.read)
        policy = loop.bounded(policy)
        if rules.digest != loop.state.rules.digest:
            await loop.command(lambda at: RulesLoaded(at=at, digest=rules.digest, text=rules.text))
        if policy != services.cluster.policy:
            await loop.command(lambda at: PolicyChanged(at=at, policy=policy, actor="policy file"))
    except (ConfigurationError, CannotWriteError) as error:
        refused(services, error)
        raise
    reloads.error, reloads.good_at = "", time.time()
    log.info("rules and policy reloaded: digest=%s mode=%s", rules.digest, policy.mode)


def refused(services: Services, error: Exception) -> None:
    """Say aloud that the files cannot be used and that what was in force stays so."""
    services.reloads.error = str(error)
    log.error("reload refused: %s", error)
    text = f"Rules and policy were not reloaded, the ones before stay in force: {error}"
    services.notifier.post(Notify(kind="config.refused", severity=Severity.WARNING, text=text))
