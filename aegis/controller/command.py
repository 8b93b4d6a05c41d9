"""`aegis controller`: its flags, and every way in which it may refuse to start."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aegis.controller.serve import Settings

DATA = Path("/var/lib/aegis")
LISTEN = "127.0.0.1:8500"

_EPILOG = """\
examples:
  aegis controller --data /var/lib/aegis
  aegis controller --data ./data --policy policy.yaml --listen 0.0.0.0:8500
  kill -HUP PID        reads rules and policy anew; a mistake in them changes nothing

Without --policy it only observes. The first start writes the admin's token to DATA/admin.token.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Run the controller: it decides, serves the API and the dashboard."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--data", type=Path, default=DATA, metavar="DIR", help="its folder (default: %(default)s)")
    add("--listen", action="append", metavar="HOST:PORT", help=f"may repeat (default: {LISTEN})")
    add(
        "--rules",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="the site's rule files, laid over those shipped with Aegis; may repeat "
        "(default: /etc/aegis/rules.d where it holds any)",
    )
    add("--no-shipped-rules", action="store_true", help="use the site's rules alone")
    add("--policy", type=Path, metavar="FILE", help="modes and limits (default: observe)")
    add("--webhook", default="", metavar="URL", help="where notifications go, as JSON")
    add("--webhook-secret-file", type=Path, metavar="FILE", help="signs them with HMAC-SHA256")
    add("--public-url", default="", metavar="URL", help="the dashboard's address in notifications")
    add("--retention-days", type=_positive, default=30, metavar="N", help="of events (default: 30)")
    add(
        "--retention-mebibytes",
        type=_positive,
        default=1024,
        metavar="N",
        help="of events (default: 1024)",
    )
    add(
        "--snapshot-events",
        type=int,
        default=5000,
        metavar="N",
        help="events between two snapshots (default: 5000)",
    )
    add("--release-hold", action="store_true", help="act again after a broken promise")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it, and turn what is expected to go wrong into one sentence and an exit code."""
    # The web framework takes half a second to import: not for `aegis controller --help`.
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    from aegis.controller import configuration, serve, sockets, store  # noqa: PLC0415

    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        return asyncio.run(serve.serve(_settings(arguments)))
    except (configuration.ConfigurationError, sockets.AddressError) as error:
        return _refuse(error, 2)
    except (store.InUseError, sockets.TakenError) as error:
        return _refuse(error, 6)
    except (store.StoreError, sockets.ListenError) as error:
        return _refuse(error, 1)


def _settings(arguments: argparse.Namespace) -> "Settings":
    from aegis.controller.configuration import ConfigurationError, layers  # noqa: PLC0415
    from aegis.controller.files import Files  # noqa: PLC0415
    from aegis.controller.loop import Retention  # noqa: PLC0415
    from aegis.controller.serve import Settings  # noqa: PLC0415

    webhook = arguments.webhook
    if webhook and not webhook.startswith(("http://", "https://")):
        raise ConfigurationError(f"--webhook {webhook!r} is no address: write http(s)://…")
    secret = b""
    if arguments.webhook_secret_file:
        try:
            secret = arguments.webhook_secret_file.read_bytes().strip()
        except OSError as error:
            raise ConfigurationError(
                f"the secret {arguments.webhook_secret_file} cannot be read: {error.strerror}"
            ) from error
    return Settings(
        data=arguments.data,
        listen=arguments.listen or [LISTEN],
        files=Files(
            rules=layers(given=arguments.rules, shipped=not arguments.no_shipped_rules),
            policy=arguments.policy,
        ),
        webhook=webhook,
        webhook_secret=secret,
        public_url=arguments.public_url,
        retention=Retention(
            days=arguments.retention_days,
            bytes_max=int(arguments.retention_mebibytes * (1 << 20)),
            snapshot_events=max(1, arguments.snapshot_events),
        ),
        release_hold=arguments.release_hold,
    )


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _refuse(error: Exception, code: int) -> int:
    print(f"aegis controller: {error}", file=sys.stderr)  # noqa: T201
    return code
