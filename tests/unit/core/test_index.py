"""The index finds what a walk over the whole cluster would find."""

import random

import pytest

from aegis.core.index import AEGIS, Index, holders, is_out_by_aegis, standing
from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Incident, IncidentState, Phases
from aegis.model.job import Job, JobSpec, JobState, LauncherState, Member
from aegis.model.node import Contact, Node, NodeState, Sender
from aegis.model.record import replace


def job_on(*nodes, name="llama", state=JobState.RUNNING):
    """A job that holds these nodes, in this order."""
    spec = JobSpec(name=name, nodes=max(1, len(nodes)), ranks_per_node=2)
    members = tuple(Member(node=node, launcher=f"{node}-l", address=node) for node in nodes)
    return Job(spec=spec, state=state, members=members)


def incident(number, node="n1", job=None, state=IncidentState.OPEN):
    """An incident that says where it is, and whether it is over."""
    return Incident(
        id=f"i{number:06}",
        fault_class=FaultClass.GPU_LOST,
        severity=Severity.ERROR,
        node=node,
        job=job,
        state=state,
        device="gpu0",
        headline="n1 gpu0 is lost",
        phases=Phases(observed_at=1.0, opened_at=1.0),
    )


def launcher(job="llama"):
    """A launcher of that job."""
    spec = JobSpec(name=job, nodes=2, ranks_per_node=2)
    return LauncherState(spec=spec, launcher=f"{job}-l", address="n1", store_port=1)


class Kept:
    """Records, and an index that hears of every change of them."""

    def __init__(self) -> None:
        self.nodes, self.jobs, self.incidents = {}, {}, {}
        self.index = Index()

    def node(self, name, **changes):
        before = self.nodes.get(name)
        self.nodes[name] = replace(before or Node(name=name), **changes)
        self.index.put_node(before, self.nodes[name])

    def job(self, job):
        before = self.jobs.get(job.spec.name)
        self.jobs[job.spec.name] = job
        self.index.put_job(before, job)

    def forget_job(self, name):
        self.index.put_job(self.jobs.pop(name), None)

    def incident(self, one):
        before = self.incidents.get(one.id)
        self.incidents[one.id] = one
        self.index.put_incident(before, one)

    def forget_incident(self, name):
        self.index.put_incident(self.incidents.pop(name), None)

    def anew(self):
        """An index built from what is there."""
        return Index.of(self.nodes, self.jobs, self.incidents)


@pytest.fixture
def kept():
    return Kept()


def test_nodes_are_told_in_the_order_in_which_they_came(kept) -> None:
    """Not by name, and not by their last change."""
    for name in ("n3", "n1", "n2"):
        kept.node(name)
    kept.node("n3", reason="changed")

    assert kept.index.in_order({"n1", "n2", "n3"}) == ["n3", "n1", "n2"]
    assert kept.index.in_order({"n2", "n3"}) == ["n3", "n2"]


def test_who_is_silent_for_longest_is_first(kept) -> None:
    """A word moves a node to the end; a change without a word does not."""
    for name in ("n1", "n2", "n3"):
        kept.node(name, seen_at=1.0)
    kept.node("n1", seen_at=2.0)
    kept.node("n2", reason="no word")

    assert list(kept.index.heard) == ["n2", "n3", "n1"]


def test_who_was_taken_last_is_last(kept) -> None:
    """A node that is taken again moves to the end, and is known for it; a pardon forgets it."""
    kept.node("n1", taken_at=(5.0,))
    kept.node("n2", taken_at=(7.0,))
    kept.node("n1", taken_at=(5.0, 9.0))

    assert list(kept.index.taken) == ["n2", "n1"]
    assert kept.index.again == {"n1"}

    kept.node("n1", taken_at=())

    assert list(kept.index.taken) == ["n2"]
    assert kept.index.again == set()


@pytest.mark.parametrize(
    ("state", "is_out"),
    [
        (NodeState.READY, False),
        (NodeState.SUSPECT, False),
        (NodeState.CORDONED, True),
        (NodeState.DRAINING, True),
        (NodeState.QUARANTINED, True),
        (NodeState.REPAIRING, True),
        (NodeState.PROBATION, False),
    ],
)
def test_a_node_is_out_by_its_state_and_its_holder(kept, state, is_out) -> None:
    """By Aegis only where Aegis holds it; one that fell silent counts as what it was before."""
    kept.node("n1", state=state, held_by=AEGIS)
    kept.node("n2", state=state, held_by="alice")
    kept.node("n3", state=NodeState.UNKNOWN, state_before_unknown=state, held_by=AEGIS)

    assert kept.index.out == ({"n1", "n3"} if is_out else set())
    assert kept.index.resting == ({"n1", "n2", "n3"} if is_out else set())
    assert [is_out_by_aegis(node) for node in kept.nodes.values()] == [is_out, False, is_out]
    assert standing(kept.nodes["n3"]) is state


def test_a_node_that_is_returned_is_out_no_more(kept) -> None:
    """Each set lets go of it."""
    kept.node("n1", state=NodeState.QUARANTINED, held_by=AEGIS, taken_for="i1", taken_at=(1.0,))
    assert kept.index.out == kept.index.resting == kept.index.taken_for == {"n1"}

    kept.node("n1", state=NodeState.READY, held_by="", taken_for="")

    assert kept.index.out == kept.index.resting == kept.index.taken_for == set()


def test_time_alone_moves_only_some_nodes(kept) -> None:
    """Those that are watched, on probation or draining, and those whose launcher speaks alone."""
    by_agent = Contact(job="llama", launcher="l", seen_at=1.0, by=Sender.AGENT)
    kept.node("ready", contacts=(by_agent,))
    kept.node("quarantined", state=NodeState.QUARANTINED)
    kept.node("suspect", state=NodeState.SUSPECT)
    kept.node("probation", state=NodeState.PROBATION)
    kept.node("draining", state=NodeState.DRAINING)
    kept.node(
        "lost", state=NodeState.UNKNOWN, state_before_unknown=NodeState.DRAINING, held_by=AEGIS
    )
    kept.node("alone", contacts=(replace(by_agent, by=Sender.LAUNCHER),))
    kept.node("without", contacts=(by_agent, replace(by_agent, job="tiny", by=None)))

    assert kept.index.moving == {"suspect", "probation", "draining", "lost", "alone", "without"}

    kept.node("without", contacts=(by_agent,))

    assert "without" not in kept.index.moving


def test_labels_that_change_are_filed_anew(kept) -> None:
    """The old place forgets the node; a place without nodes is no place."""
    kept.node("n1", labels=(("rack", "r1"), ("switch", "s1")))
    kept.node("n2", labels=(("rack", "r1"),))
    kept.node("n1", labels=(("rack", "r2"), ("switch", "s1")))

    assert kept.index.labelled == {
        ("rack", "r1"): {"n2"},
        ("rack", "r2"): {"n1"},
        ("switch", "s1"): {"n1"},
    }

    kept.node("n2", labels=())

    assert ("rack", "r1") not in kept.index.labelled


def test_a_job_finds_the_nodes_that_have_a_launcher_of_it(kept) -> None:
    """Whether it holds them or not."""
    kept.node("n1", launchers=(launcher(), launcher("tiny")))
    kept.node("n2", launchers=(launcher(),))
    kept.node("n1", launchers=(launcher("tiny"),))

    assert kept.index.launched == {"llama": {"n2"}, "tiny": {"n1"}}


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_holds_its_nodes_while_ranks_may_be_alive(kept, state) -> None:
    """From the order to start until the last node has said that none is left."""
    kept.job(job_on("n1", "n2", state=state))

    holds = state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
    assert set(kept.index.held) == ({"n1", "n2"} if holds else set())
    assert holders(kept.jobs["llama"]) == (("n1", "n2") if holds else ())


def test_a_job_that_moves_lets_go_of_the_node_it_left(kept) -> None:
    """In one step or over a wait; a job that is forgotten holds nothing."""
    kept.job(job_on("n1", "n2"))
    kept.job(job_on("n1", "n3"))
    assert set(kept.index.held) == {"n1", "n3"}
    assert kept.index.held["n3"]["llama"].launcher == "n3-l"

    kept.job(job_on("n1", "n3", state=JobState.WAITING))
    assert kept.index.held == {}

    kept.job(job_on("n3"))
    kept.forget_job("llama")
    assert kept.index.held == {}


def test_two_jobs_on_one_node_are_both_seen(kept) -> None:
    """It must never be; the invariants see it because the index does."""
    kept.job(job_on("n1"))
    kept.job(job_on("n1", name="tiny"))

    assert set(kept.index.held["n1"]) == {"llama", "tiny"}

    kept.forget_job("llama")

    assert set(kept.index.held["n1"]) == {"tiny"}


def test_open_incidents_are_found_by_node_and_by_job(kept) -> None:
    """In the order of their numbers, however late they are told; closed ones only by their node."""
    kept.incident(incident(3, "n1", "llama"))
    kept.incident(incident(1, "n1"))
    kept.incident(incident(2, None, "llama"))
    assert kept.index.opened == ["i000001", "i000002", "i000003"]
    assert kept.index.opened_on == {"n1": ["i000001", "i000003"]}
    assert kept.index.opened_of == {"llama": ["i000002", "i000003"]}

    kept.incident(incident(3, "n1", "llama", IncidentState.CLOSED))

    assert kept.index.opened == ["i000001", "i000002"]
    assert kept.index.opened_on == {"n1": ["i000001"]}
    assert kept.index.opened_of == {"llama": ["i000002"]}
    assert kept.index.about == {"n1": ["i000001", "i000003"]}


def test_an_incident_that_opens_again_is_found_again(kept) -> None:
    """Once, and one that is forgotten nowhere."""
    kept.incident(incident(1, state=IncidentState.CLOSED))
    kept.incident(incident(1, state=IncidentState.RECOVERING))
    kept.incident(incident(1, state=IncidentState.OPEN))
    assert kept.index.opened == ["i000001"]
    assert kept.index.about == {"n1": ["i000001"]}

    kept.forget_incident("i000001")

    assert kept.index == Index()


def test_after_any_changes_it_is_what_would_be_built_anew(kept) -> None:
    """Five hundred changes at random, compared with a walk over everything at each."""
    chance, names = random.Random(7), [f"n{number}" for number in range(6)]
    for at in range(1, 501):
        _change_something(kept, chance, names, float(at))
        built = kept.anew()
        assert kept.index == built
        assert list(kept.index.heard) == list(built.heard)
        assert list(kept.index.taken) == list(built.taken)


def _change_something(kept: Kept, chance: random.Random, names: list[str], at: float) -> None:
    name = chance.choice(names)
    match chance.randrange(6):
        case 0:
            kept.node(name, seen_at=at)
        case 1:
            state, holder = chance.choice(list(NodeState)), chance.choice(["", AEGIS, "alice"])
            kept.node(name, state=state, held_by=holder, seen_at=at)
        case 2:
            before = kept.nodes.get(name, Node(name=name)).taken_at
            kept.node(name, taken_at=(*before, at)[-chance.randrange(1, 3) :], seen_at=at)
        case 3:
            places = tuple(("rack", f"r{chance.randrange(3)}") for _ in range(chance.randrange(2)))
            jobs = chance.sample(["llama", "tiny"], chance.randrange(3))
            some = tuple(launcher(job) for job in jobs)
            kept.node(name, labels=places, launchers=some, seen_at=at)
        case 4:
            nodes = chance.sample(names, 2)
            job, state = chance.choice(["llama", "tiny"]), chance.choice(list(JobState))
            if job in kept.jobs and chance.random() < 0.2:
                kept.forget_job(job)
            else:
                kept.job(job_on(*nodes, name=job, state=state))
        case _:
            number, state = chance.randrange(8), chance.choice(list(IncidentState))
            known = kept.incidents.get(f"i{number:06}")
            if known and chance.random() < 0.2:
                kept.forget_incident(known.id)
            else:
                job = chance.choice([None, "llama"])
                kept.incident(
                    (known and replace(known, state=state)) or incident(number, name, job)
                )
