"""Reading is open; whatever changes something needs the right token; every error is a problem."""

import httpx
import pytest
from websockets.exceptions import InvalidStatus


def is_problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["instance"] == f"urn:aegis:request:{answer.headers['x-request-id']}"
    return problem


def test_nothing_changes_without_a_token(shared, agent):
    """No token and a wrong one are both refused with a 401 that says what to do."""
    agent(shared, "n11").send()
    for token in ("", "aegis_admin_wrong"):
        problem = is_problem(shared.post("/nodes/n11:cordon", {"reason": "x"}, token=token), 401)
        assert problem["hint"]
    assert shared.json("/nodes/n11")["state"] == "ready"


def test_a_node_token_is_for_its_node_alone(shared, agent):
    """It opens the stream of its own node and nothing else."""
    token = shared.mint("n12")
    is_problem(shared.post("/nodes/n12:cordon", {"reason": "x"}, token=token), 403)
    is_problem(shared.post("/tokens", {"role": "admin"}, token=token), 403)
    with pytest.raises(InvalidStatus) as refused:
        agent(shared, "n12b", token=token)
    assert refused.value.response.status_code == 403
    assert b"aegis nodes token n12b" in refused.value.response.body
    agent(shared, "n12", token=token).send()


def test_a_stream_needs_a_token_of_this_controller(shared, agent):
    """An unknown token is a 401 before the stream opens."""
    with pytest.raises(InvalidStatus) as refused:
        agent(shared, "n13", token="aegis_node_of_another")
    assert refused.value.response.status_code == 401


def test_an_operator_may_drain_but_not_mint(shared, agent):
    """Roles do not add up by accident, and the actor's name is in the record."""
    agent(shared, "n14").send()
    made = shared.post("/tokens", {"role": "operator", "name": "alice"}).json()
    node = shared.post("/nodes/n14:cordon", {"reason": "fan"}, token=made["token"]).json()
    assert (node["state"], node["held_by"]) == ("cordoned", "alice")
    is_problem(shared.post("/tokens", {"role": "operator"}, token=made["token"]), 403)


def test_a_revoked_token_opens_nothing(shared, agent):
    """And the list of tokens shows no secret."""
    made = shared.post("/tokens", {"role": "operator", "name": "bob"}).json()
    admin = {"authorization": f"Bearer {shared.admin_token}"}
    listed = shared.get("/api/v1/tokens", **admin)
    assert made["id"] in listed.text
    assert made["token"] not in listed.text
    gone = httpx.delete(f"{shared.url}/api/v1/tokens/{made['id']}", headers=admin)
    assert gone.status_code == 204
    agent(shared, "n15").send()
    is_problem(shared.post("/nodes/n15:cordon", {"reason": "x"}, token=made["token"]), 401)


def test_tokens_survive_a_restart(make, agent):
    """The hash is on disk before the secret is shown."""
    program = make().start()
    token = program.mint("n16")
    program.kill()
    program.start()
    agent(program, "n16", token=token).send()


def test_the_admin_token_is_for_its_owner(shared):
    """Nobody else on the machine can read it."""
    assert (shared.data / "admin.token").stat().st_mode & 0o077 == 0
    assert (shared.data / "aegis.db").stat().st_mode & 0o077 == 0


def test_every_error_is_a_problem(shared):
    """Also those that the framework raises by itself."""
    is_problem(shared.get("/api/v1/nodes/none"), 404)
    is_problem(shared.get("/api/v1/nothing/here"), 404)
    is_problem(shared.get("/api/v1/incidents/inc-999999"), 404)
    is_problem(httpx.put(shared.url + "/api/v1/nodes"), 405)
    is_problem(shared.get("/api/v1/nodes?limit=0"), 422)
    is_problem(shared.get("/api/v1/incidents?state=odd"), 422)
    is_problem(shared.post("/nodes/none:cordon", {}), 422)
    is_problem(shared.post("/tokens", {"role": "node"}), 422)


def test_a_request_that_is_too_large_is_not_kept(shared):
    """A body is read before its token is looked at, so anyone could fill the memory."""

    def pieces():
        for _ in range(17):
            yield b"0" * (1 << 16)

    for body in (b"0" * ((1 << 20) + 1), pieces()):
        refused = httpx.post(f"{shared.url}/api/v1/tokens", content=body, timeout=30)
        problem = is_problem(refused, 413)
        assert "larger than 1048576 bytes" in problem["detail"]
    assert shared.get("/readyz").status_code == 200


def test_a_refused_verb_says_why(shared, agent):
    """What the core refuses is a conflict with its sentence."""
    agent(shared, "n19").send()
    problem = is_problem(shared.post("/nodes/n19:uncordon", {"reason": "x"}), 409)
    assert "not cordoned" in problem["detail"]


def test_a_request_id_is_kept_or_drawn(shared):
    """Whoever sends one finds it in the answer; nobody can smuggle anything through it."""
    assert shared.get("/livez", **{"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    drawn = shared.get("/livez", **{"x-request-id": "a b"}).headers["x-request-id"]
    assert len(drawn) == 32


def test_the_same_idempotency_key_acts_once(shared, agent):
    """A repeated request gets the first answer; another request with the key is a mistake."""
    agent(shared, "n21").send()
    key = {"idempotency-key": "k1"}
    first = shared.post("/nodes/n21:cordon", {"reason": "a"}, **key)
    again = shared.post("/nodes/n21:cordon", {"reason": "a"}, **key)
    assert first.status_code == again.status_code == 200
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    is_problem(shared.post("/nodes/n21:cordon", {"reason": "b"}, **key), 422)


def test_pages_follow_each_other(controller, agent):
    """Every node is on one page, and the last page says so."""
    for name in ("n3", "n1", "n2"):
        agent(controller, name, spool=name).send()
    first = controller.json("/nodes?limit=2")
    assert [node["name"] for node in first["items"]] == ["n1", "n2"]
    second = controller.json(f"/nodes?limit=2&cursor={first['next']}")
    assert [node["name"] for node in second["items"]] == ["n3"]
    assert second["next"] is None


def test_incidents_are_listed_by_their_last_activity_and_by_state(controller, agent):
    """The list, its filter, and the story of one; a word to the oldest brings it to the top."""
    speaker = agent(controller, "n1")
    speaker.send((1, speaker.fault("gpu0")), (2, speaker.fault("gpu1")))
    listed = controller.json("/incidents")["items"]
    assert [one["id"] for one in listed] == ["inc-000002", "inc-000001"]
    assert len(controller.json("/incidents?state=open")["items"]) == 2
    assert controller.json("/incidents?state=closed")["items"] == []
    first = controller.json("/incidents?limit=1")
    assert controller.json(f"/incidents?limit=1&cursor={first['next']}")["items"] == listed[1:]
    whole = controller.json("/incidents/inc-000001")
    assert whole["story"][0].startswith("inc-000001")
    assert set(whole["seconds"]) >= {"detect", "decide", "first_step"}
    controller.post("/incidents/inc-000001:note", {"reason": "it was the riser"})
    listed = controller.json("/incidents")["items"]
    assert [one["id"] for one in listed] == ["inc-000001", "inc-000002"]
    told = controller.cli("incidents").stdout.splitlines()
    assert [line.split()[0] for line in told] == ["INCIDENT", "inc-000001", "inc-000002"]
    is_problem(controller.get("/api/v1/incidents?cursor=inc-000001"), 422)


def test_the_description_names_every_path_and_its_types(shared):
    """A typed client can be made from it."""
    described = shared.get("/openapi.json").json()
    assert "/api/v1/nodes/{name}:drain" in described["paths"]
    node = described["paths"]["/api/v1/nodes/{name}"]["get"]["responses"]
    assert node["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Node"
    }
    assert "application/problem+json" in node["default"]["content"]
    assert {"Incident", "Job", "Device", "Summary"} <= set(described["components"]["schemas"])


def test_pages_are_locked_down(shared):
    """No script, style or connection from anywhere else; no frame around it."""
    headers = shared.get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert shared.get("/../../../etc/passwd").text.startswith("<!doctype html>")


def test_the_dashboard_serves_its_first_page_for_every_address(shared):
    """A deep link works after a reload; a missing dashboard says how to build it."""
    overview, deep = shared.get("/"), shared.get("/incidents/inc-000001")
    assert overview.headers["content-type"].startswith("text/html")
    assert deep.text == overview.text
    if overview.status_code != 200:
        assert "make setup" in overview.text
