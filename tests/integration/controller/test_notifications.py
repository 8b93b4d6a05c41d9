"""One webhook: signed, tried again, and never in the way."""

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def receiver(cleanup):
    """A server that keeps what it is sent and answers with the statuses it is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            server.got.append((dict(self.headers), body))
            self.send_response(server.statuses.pop(0) if server.statuses else 204)
            self.end_headers()

        def log_message(self, *_words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.statuses = [], []
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    cleanup.callback(thread.join)
    cleanup.callback(server.shutdown)
    return server


def test_an_incident_reaches_the_webhook_signed(make, agent, receiver, tmp_path, patiently):
    """The receiver can tell that it is ours and where to look."""
    secret = tmp_path / "secret"
    secret.write_text("shared\n")
    receiver.statuses = [500]  # the first try fails, and is made again
    program = make().start("--webhook", receiver.url, "--webhook-secret-file", secret)
    speaker = agent(program, "n1")
    speaker.send((1, speaker.fault()))
    patiently(lambda: len(receiver.got) >= 2, "the second try")
    (headers, body), (again, same) = receiver.got[:2]
    assert same == body
    assert again["x-aegis-delivery"] == headers["x-aegis-delivery"]
    signed = headers["x-aegis-timestamp"].encode() + b"." + body
    digest = hmac.new(b"shared", signed, hashlib.sha256).hexdigest()
    assert headers["x-aegis-signature"] == f"sha256={digest}"
    message = json.loads(body)
    assert message["kind"].startswith("incident.")
    assert message["url"] == f"{program.url}/incidents/inc-000001"
    patiently(
        lambda: (
            program.metric("aegis_notifications_total").get(
                '{channel="webhook",result="delivered"}'
            )
            >= 1
        ),
        "the count",
    )


def test_a_receiver_that_is_away_holds_up_nothing(make, agent):
    """The loop goes on while tries fail."""
    program = make().start("--webhook", "http://127.0.0.1:9/nobody")
    speaker = agent(program, "n1")
    for number in range(1, 6):
        assert speaker.send((number, speaker.fault(f"gpu{number}"))).stored == number
    assert program.metric("aegis_notifications_pending")['{channel="webhook"}'] >= 1
    assert program.stop() == 0
