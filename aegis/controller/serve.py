"""One running controller: takes its folder, comes back to its state, serves, and ends cleanly."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path

import uvicorn

from aegis.controller import app, reload, sockets
from aegis.controller.changes import Changes
from aegis.controller.configuration import ConfigurationError
from aegis.controller.files import Files, Reloads
from aegis.controller.loop import Loop, Retention
from aegis.controller.notify import Notifier
from aegis.controller.services import Services
from aegis.controller.state import PromiseBrokenError, revive
from aegis.controller.store import DATABASE, CannotWriteError, Store, open_store
from aegis.controller.streams import Streams
from aegis.controller.systemd import Watchdog
from aegis.controller.tokens import Tokens, ensure_admin
from aegis.model.policy import Mode, Policy
from aegis.rules import RuleSet

log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 4 << 20  # of an agent's report
GRACE_SECONDS = 3  # for requests under way when the controller ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says."""

    data: Path
    listen: list[str]
    files: Files
    webhook: str
    webhook_secret: bytes
    public_url: str
    retention: Retention
    release_hold: bool

    @property
    def admin_token(self) -> Path:
        """Where the first start leaves the admin's token."""
        return self.data / "admin.token"


async def serve(settings: Settings) -> int:
    """Run a controller until it is told to end; returns the exit code."""
    read = _read(settings.files)
    if isinstance(read, ConfigurationError) and not (settings.data / DATABASE).exists():
        raise read
    store = open_store(settings.data)
    try:
        return await _serve(settings, store, read)
    finally:
        store.close()


def _read(files: Files) -> tuple[RuleSet, Policy] | ConfigurationError:
    try:
        return files.read()
    except ConfigurationError as error:
        return error


async def _serve(
    settings: Settings, store: Store, read: tuple[RuleSet, Policy] | ConfigurationError
) -> int:
    listeners = sockets.listening(settings.listen)
    if settings.release_hold:
        store.release()
    services = _put_together(settings, store, sockets.url(listeners[0]))
    if isinstance(read, ConfigurationError):
        state = services.loop.state
        if not state.rules.rules:
            raise read
        # A mistake in a file must not leave a cluster without its controller: what was in force
        # when it last ran is in its log.
        reload.refused(services, read)
        read = (state.rules, state.cluster.policy)
    await services.loop.begin(*read)
    return await _Running(settings, services, listeners).until_told()


def _put_together(settings: Settings, store: Store, address: str) -> Services:
    version = installed_version("aegis-supervisor")
    tokens = Tokens(store)
    ensure_admin(tokens, settings.admin_token)
    changes, streams = Changes(store.last_number), Streams()
    began = time.monotonic()
    state = revive(store, changes)
    log.info("state restored: event=%d seconds=%.2f", state.number, time.monotonic() - began)
    public_url = settings.public_url or address
    notifier = Notifier(settings.webhook, settings.webhook_secret, public_url, version)
    loop = Loop(
        store=store,
        state=state,
        changes=changes,
        streams=streams,
        notifier=notifier,
        version=version,
        retention=settings.retention,
        watchdog=Watchdog(),
    )
    return Services(
        loop=loop,
        store=store,
        tokens=tokens,
        changes=changes,
        streams=streams,
        notifier=notifier,
        version=version,
        static=Path(__file__).parent / "static",
        reloads=Reloads(settings.files),
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would end the process by the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_Running`."""
        yield


class _Running:
    """The tasks of one controller and how they end."""

    def __init__(
        self, settings: Settings, services: Services, listeners: list[socket.socket]
    ) -> None:
        self._settings, self._services, self._listeners = settings, services, listeners
        self._told = asyncio.Event()
        self._reloading: set[asyncio.Task[None]] = set()
        self._server = _Server(
            uvicorn.Config(
                app.build(services),
                lifespan="off",
                ws="websockets-sansio",
                ws_max_size=FRAME_BYTES_MAX,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    def _announce(self) -> None:
        """One line for whoever started it, and a word to systemd."""
        self._services.loop.watchdog.say("READY=1")
        policy = self._services.cluster.policy
        act = {
            Mode.OBSERVE: "observe (will touch nothing)",
            Mode.NOTIFY: "notify (tells people, will touch nothing)",
            Mode.APPROVE: "approve (waits for people: `aegis incidents approve`)",
            Mode.ENFORCE: "enforce (takes nodes out within its limits)",
        }[policy.mode]
        if self._services.loop.held:
            act = "ON HOLD (will touch nothing; --release-hold ends it)"
        where = " ".join(f"{sockets.url(one)}/" for one in self._listeners)
        print(  # noqa: T201  this line is for the one who started it
            f"Aegis {self._services.version} at {where} · nodes: {act} · "
            f"admin token: {self._settings.admin_token}",
            flush=True,
        )

    async def until_told(self) -> int:
        """Serve until a signal; then end in order."""
        self._listen_to_signals()
        self._announce()
        services = self._services
        heart = asyncio.create_task(services.loop.run(), name="loop")
        bell = asyncio.create_task(services.notifier.run(), name="notifier")
        web = asyncio.create_task(self._server.serve(self._listeners), name="web")
        told = asyncio.create_task(self._told.wait(), name="told")
        await asyncio.wait({heart, bell, web, told}, return_when=asyncio.FIRST_COMPLETED)
        services.loop.watchdog.say("STOPPING=1")
        services.changes.close()
        self._server.should_exit = True
        failed = heart.done() and not heart.cancelled()
        await asyncio.wait({web})
        for task in (heart, bell, told):
            task.cancel()
        await asyncio.gather(heart, bell, told, return_exceptions=True)
        if failed:
            return self._after_failure(heart)
        await self._save()
        return 0

    def _after_failure(self, heart: "asyncio.Task[None]") -> int:
        error = heart.exception()
        if isinstance(error, PromiseBrokenError):
            print(  # noqa: T201  the last word of the process
                f"aegis controller: an event broke a promise ({error}); it is set aside and the "
                "next start comes back without it, on hold",
                file=sys.stderr,
            )
            return 1
        if error is not None:
            raise error
        return 1

    async def _save(self) -> None:
        try:
            await self._services.loop.save()
        except CannotWriteError as error:
            log.warning("no snapshot at the end, the next start replays more: %s", error)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told.set)
        loop.add_signal_handler(signal.SIGHUP, self._start_reload)

    def _start_reload(self) -> None:
        task = asyncio.create_task(self._reload())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def _reload(self) -> None:
        """Whoever sent the signal reads the log and the metrics, not an answer."""
        with contextlib.suppress(ConfigurationError, CannotWriteError):
            await reload.reload(self._services)
