"""Notifications to one webhook: JSON, signed, tried again, never in the way of the loop.

    POST URL
    content-type: application/json
    x-aegis-delivery: ntf-5-000012          the same for each try: a receiver may see one twice
    x-aegis-timestamp: 1765432100
    x-aegis-signature: sha256=…             HMAC-SHA256 of "timestamp.body" with the secret

    {"id", "kind", "severity", "text", "incident", "url", "at", "controller"}

The queue is bounded: when the receiver is away for long, the oldest messages are dropped and
counted.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aegis.model.action import Notify

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

QUEUE_MAX = 256
TRIES_MAX = 6
TRY_SECONDS = 5.0  # for one try
PAUSE_SECONDS = 0.5  # after the first failed try; doubles with each
FLUSH_SECONDS = 2.0  # at the end of the process
_GONE = 410


@dataclass(frozen=True, slots=True)
class _Message:
    id: str
    body: bytes


class Notifier:
    """Delivers what the loop posts. Without a webhook it only logs."""

    channel = "webhook"

    def __init__(self, webhook: str, secret: bytes, public_url: str, version: str) -> None:
        self.results: Counter[str] = Counter(delivered=0, failed=0, dropped=0)
        self._webhook, self._secret = webhook, secret
        self._public_url, self._version = public_url.rstrip("/"), version
        self._waiting: deque[_Message] = deque()
        self._news = asyncio.Event()
        self._count = 0
        self._start = secrets.token_hex(4)

    @property
    def configured(self) -> bool:
        """Whether there is anyone to tell."""
        return bool(self._webhook)

    @property
    def pending(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def post(self, notice: Notify) -> None:
        """Send this soon. Returns at once."""
        log.warning("notification: kind=%s text=%s", notice.kind, notice.text)
        if not self._webhook:
            return
        self._count += 1
        identity = f"ntf-{self._start}-{self._count:06d}"
        self._waiting.append(_Message(identity, self._body(identity, notice)))
        if len(self._waiting) > QUEUE_MAX:
            self._waiting.popleft()
            self.results["dropped"] += 1
        self._news.set()

    async def run(self) -> None:
        """Deliver one after another until cancelled; then what waits gets a last short chance."""
        if not self._webhook:
            await asyncio.Event().wait()  # until cancelled, like the other tasks
        import httpx  # noqa: PLC0415  only who has a webhook pays for it

        async with httpx.AsyncClient(timeout=TRY_SECONDS) as client:
            try:
                while True:
                    await self._deliver_all(client)
                    self._news.clear()
                    await self._news.wait()
            except asyncio.CancelledError:
                await self._flush(client)
                raise

    async def _deliver_all(self, client: "httpx.AsyncClient") -> None:
        while self._waiting:
            message = self._waiting[0]
            result = "delivered" if await self._deliver(client, message) else "failed"
            self.results[result] += 1
            if self._waiting and self._waiting[0] is message:
                self._waiting.popleft()

    async def _flush(self, client: "httpx.AsyncClient") -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._deliver_all(client)
        except TimeoutError:
            log.warning("notifications not delivered at the end: count=%d", len(self._waiting))

    async def _deliver(self, client: "httpx.AsyncClient", message: _Message) -> bool:
        """Whether one of the tries succeeded."""
        trouble = ""
        for number in range(TRIES_MAX):
            if number:
                pause = PAUSE_SECONDS * 2 ** (number - 1)
                await asyncio.sleep(pause * (1 + secrets.randbelow(100) / 200))
            trouble = await self._try(client, message)
            if not trouble:
                return True
            if trouble.endswith(str(_GONE)):
                break
        log.error("notification not delivered: id=%s reason=%s", message.id, trouble)
        return False

    async def _try(self, client: "httpx.AsyncClient", message: _Message) -> str:
        """Why this try failed; empty when it did not."""
        import httpx  # noqa: PLC0415  loaded by `run`

        try:
            answer = await client.post(
                self._webhook, content=message.body, headers=self._headers(message)
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: {error}"
        return "" if answer.is_success else f"status {answer.status_code}"

    def _headers(self, message: _Message) -> dict[str, str]:
        timestamp = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": f"aegis/{self._version}",
            "x-aegis-delivery": message.id,
            "x-aegis-timestamp": timestamp,
        }
        if self._secret:
            signed = timestamp.encode() + b"." + message.body
            digest = hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
            headers["x-aegis-signature"] = f"sha256={digest}"
        return headers

    def _body(self, identity: str, notice: Notify) -> bytes:
        url = f"{self._public_url}/incidents/{notice.incident}" if notice.incident else ""
        message = {
            "id": identity,
            "kind": notice.kind,
            "severity": notice.severity.value,
            "text": notice.text,
            "incident": notice.incident,
            "url": url or self._public_url + "/",
            "at": time.time(),
            "controller": self._version,
        }
        return json.dumps(message).encode()
