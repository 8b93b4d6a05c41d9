"""Scenarios: text files of commands and what the core must answer to each.

A block is a command, a line `----`, and what came of it: orders to launchers (`->`), words to
people (`!!`), and every job, node and incident that is not as it was. Each command takes a second.

    policy MODE [name=value …]            what Aegis may do here
    rule ID: CLASS -> REMEDY [for=policy|SECONDS] [mode=MODE] [count=N] [within=TIME] [scope=S]
         [attempts=N] [if_fails=REMEDY[:ATTEMPTS],REMEDY] [guard.NAME=VALUE]
    mode RULE MODE [group=G]              a person says how far a rule may go
    rules shipped                         the rule sets of this repository
    nodes N … [job=J] [nodes=2] [spares=0] [restarts=3] [rack=R] [switch=S]
          [group=G]                       agents connect,
                                          each with a launcher
    obey N …                              launchers do what they were told last
    train N … step=S [checkpoint=C]       their ranks have come so far
    die N rank=R [signal=9] [ago=0]       a rank ends; its launcher ends the others
    finish N …                            every rank of the node exits with 0
    reject N … step=S REASON              their ranks passed over a checkpoint
    launcher N                            the node's launcher is started anew
    leave N                               the node's launcher is gone
    reboot N                              the node starts anew, its launcher with it
    fault N DEVICE CLASS [count=1] [ago=0] [severity=error] [afid=N]
    gpus N NAME=healthy|unhealthy … [holds=PID] [helper=no]   how its agent reads them
    result N STATE REASON                 its root helper has answered the order that stands
    validates N …                         their agents can look closely at them
    validated N STATE [STEP=STATE …] TEXT its agent has answered the order to validate
    down N IFACE / up N IFACE             a link: its fault and its condition
    say N … / late N / twice N            a report as it is; an overtaken one; the same one again
    wait SECONDS [without=N,M]            ticks pass; all nodes but these are heard
    controller                            another controller takes over
    forget                                one takes over whose event log is empty
    cordon|uncordon|drain|return N REASON operators' verbs; `stop J REASON` ends a job;
                                          return has [validate=none|light|full]
    approve|deny|ack|remark|judge INCIDENT [by=alice] …   what people say; `judge I wrong`
    pause|resume REASON                   all automation
    window silence|maintenance [node=n*] [class=nic.*] [rack=R] [for=60] [in=0] REASON
    unwindow WINDOW REASON                ends one
    tell INCIDENT                         its story
    assignments N                         what the node would be answered now
"""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from aegis.core import invariants, operate, recover, repair, returning, story
from aegis.core.cluster import Cluster, holders, launcher_of
from aegis.core.step import step
from aegis.model import event as ev
from aegis.model import job as jb
from aegis.model.action import Action, Assign
from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.incident import Feedback
from aegis.model.job import LauncherPhase as Phase
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.model.order import OrderResult, OrderState
from aegis.model.policy import Mode, Policy, Unanswered
from aegis.model.validation import (
    Depth,
    Step,
    StepState,
    ValidationResult,
    ValidationState,
)
from aegis.model.window import WindowKind
from aegis.rules import RuleSet, parse

FILES = sorted(Path(__file__).parent.glob("*.txt"))
SHIPPED = Path(__file__).parents[2] / "rules"
START = 1000.0
LABELS = ("rack", "switch", "group")


class Scenario:
    """A fleet that does only what the text says."""

    def __init__(self) -> None:
        self.cluster, self.rules, self.at = Cluster(), RuleSet(), START
        self.sites: dict[str, list[str]] = {}
        self.reports: dict[str, NodeReport] = {}
        self.shown: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.epoch, self.session, self.made = 0, 0, 0
        self._events(ev.ControllerStarted(at=self.at, epoch=self._next_epoch(), version="test"))

    def do(self, line: str) -> str:
        """Run one command; the text of what came of it."""
        self.at += 1.0
        verb, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        lines = getattr(self, f"do_{verb}")(plain, named)
        return "\n".join([*lines, *self._changes()]) or "nothing"

    # Setting up.

    def do_policy(self, plain, named):
        values = {
            name: int(value)
            if name.endswith(("_max", "_min", "_floor", "_needed"))
            else float(value)
            for name, value in named.items()
            if name not in ("job_mode", "approval_unanswered", "validate_on_return")
        }
        if "approval_unanswered" in named:
            values["approval_unanswered"] = Unanswered(named["approval_unanswered"])
        if "validate_on_return" in named:
            values["validate_on_return"] = Depth(named["validate_on_return"])
        if "job_mode" in named:
            values["job_mode"] = Mode(named["job_mode"])
        quick = {"hold_down_seconds": 2.0, "gather_seconds": 30.0, "probation_seconds": 0.0}
        policy = Policy(mode=Mode(plain[0]), **(quick | values))
        return self._events(ev.PolicyChanged(at=self.at, policy=policy, actor="test"))

    def do_rule(self, plain, named):
        name, fault_class, _, remedy = plain
        body = {
            "id": name.rstrip(":"),
            "title": "T",
            "class": fault_class,
            "remedy": remedy,
        } | _keys(named)
        self.sites.setdefault("rules", []).append(
            "  - {" + ", ".join(f"{key}: {value}" for key, value in body.items()) + "}"
        )
        head = "apiVersion: aegis/v1\nkind: RuleSet\nname: test\nrules:\n"
        return self._load({"test.yaml": head + "\n".join(self.sites["rules"])})

    def do_rules(self, plain, named):
        return self._load({path.name: path.read_text() for path in SHIPPED.glob("*.yaml")})

    def _load(self, texts):
        self.rules = parse(texts)
        loaded = ev.RulesLoaded(at=self.at, digest=self.rules.digest, text=self.rules.text)
        return self._events(loaded)

    def do_nodes(self, plain, named):
        spec = jb.JobSpec(
            name=named.get("job", "llama"),
            nodes=int(named.get("nodes", 2)),
            ranks_per_node=2,
            spares=int(named.get("spares", 0)),
            restarts_max=int(named.get("restarts", 3)),
        )
        for node in plain:
            self.session += 1
            self.reports[node] = NodeReport(
                node=node,
                sender=Sender.AGENT,
                session=self.session,
                sequence=0,
                boot_id="boot1",
                labels=tuple(
                    (key, named[key]) for key in ("rack", "switch", "group") if key in named
                ),
                launchers=(self._fresh(spec, node),),
            )
        return self._say(plain)

    def _fresh(self, spec, node):
        self.made += 1
        return jb.LauncherState(
            spec=spec, launcher=f"launcher{self.made}", address=f"{node}.fabric", store_port=1000
        )

    # What launchers and ranks do.

    def do_obey(self, plain, named):
        for node in plain:
            for assignment in recover.assignments(self.cluster, node):
                self._change(node, self._obeyed(node, self._launcher(node), assignment))
        return self._say(plain)

    def _obeyed(self, node, launcher, assignment):
        generation, world = assignment.generation, assignment.world
        if world is None:
            dead = self._ranks(launcher, phase=jb.RankPhase.EXITED)
            stopped = self.at if launcher.ranks else launcher.stopped_at
            return replace(
                launcher, phase=Phase.IDLE, generation=generation, ranks=dead, stopped_at=stopped
            )
        place = [member.node for member in world.members].index(node)
        ranks = tuple(
            jb.RankState(
                rank=place * 2 + number,
                local_rank=number,
                pid=100 + number,
                phase=jb.RankPhase.TRAINING,
                started_at=self.at - 0.5,
            )
            for number in range(2)
        )
        return replace(
            launcher,
            phase=Phase.RUNNING,
            generation=generation,
            ranks=ranks,
            store_port=launcher.store_port + 1,
            resumed_step=None,
            rejected=(),
        )

    def do_train(self, plain, named):
        reached = int(named["step"])
        for node in plain:
            launcher = self._launcher(node)
            ranks = tuple(
                replace(
                    rank,
                    step=reached,
                    loss=2.0,
                    loaded_at=rank.loaded_at or self.at - 0.2,
                    first_step_at=rank.first_step_at or self.at - 0.1,
                    last_step_at=self.at,
                )
                for rank in launcher.ranks
            )
            saved = int(named.get("checkpoint", launcher.checkpoint_step))
            resumed = launcher.resumed_step
            if resumed is None:
                resumed = self.cluster.jobs[launcher.spec.name].checkpoint_step
            self._change(
                node, replace(launcher, ranks=ranks, checkpoint_step=saved, resumed_step=resumed)
            )
        return self._say(plain)

    def do_die(self, plain, named):
        launcher = self._launcher(plain[0])
        rank = int(named["rank"])
        failure = jb.RankFailure(
            generation=launcher.generation,
            rank=rank,
            at=self.at - float(named.get("ago", 0)),
            signal=int(named.get("signal", 9)),
            text=f"rank {rank} was killed by signal {named.get('signal', 9)}",
            victim="victim" in named,
        )
        dead = self._ranks(launcher, phase=jb.RankPhase.EXITED)
        self._change(
            plain[0],
            replace(launcher, phase=Phase.FAILED, failure=failure, ranks=dead, stopped_at=self.at),
        )
        return self._say(plain)

    def do_finish(self, plain, named):
        for node in plain:
            launcher = self._launcher(node)
            ranks = self._ranks(launcher, phase=jb.RankPhase.EXITED, exit_code=0)
            self._change(node, replace(launcher, phase=Phase.DONE, ranks=ranks))
        return self._say(plain)

    def do_reject(self, plain, named):
        nodes = [word for word in plain if word in self.reports]
        reason = " ".join(word for word in plain if word not in self.reports)
        passed = int(named["step"])
        one = jb.RejectedCheckpoint(step=passed, path=f"/ckpt/step-{passed}", reason=reason)
        for node in nodes:
            launcher = self._launcher(node)
            saved = int(named["resumed"])
            self._change(
                node,
                replace(launcher, rejected=(one,), checkpoint_step=saved, resumed_step=saved),
            )
        return self._say(nodes)

    def do_launcher(self, plain, named):
        self._change(plain[0], self._fresh(self._launcher(plain[0]).spec, plain[0]))
        return self._say(plain)

    def do_leave(self, plain, named):
        self.reports[plain[0]] = replace(self.reports[plain[0]], launchers=())
        return self._say(plain)

    def do_reboot(self, plain, named):
        fresh = self._fresh(self._launcher(plain[0]).spec, plain[0])
        self.session += 1
        self.reports[plain[0]] = replace(
            self.reports[plain[0]],
            boot_id=f"boot{self.session}",
            session=self.session,
            sequence=0,
            launchers=(fresh,),
        )
        return self._say(plain)

    # What devices do.

    def do_fault(self, plain, named):
        node, device, fault_class = plain
        fault = Fault(
            fault_class=FaultClass(fault_class),
            severity=Severity(named.get("severity", "error")),
            node=node,
            device=device,
            observed_at=self.at - float(named.get("ago", 0)),
            boot_id=named.get("boot", self.reports[node].boot_id),
            count=int(named.get("count", 1)),
            details=(("afid", named["afid"]),) if "afid" in named else (),
            evidence=(Evidence(source="probe", text=f"{fault_class} was read on {device}"),),
        )
        return self._observe(fault)

    def do_gpus(self, plain, named):
        held = f"rdcd ({named.pop('holds')})" if "holds" in named else ""
        helper = named.pop("helper", "yes") == "yes"
        devices = tuple(
            Device(
                name=name,
                kind="gpu",
                health=Health(health),
                identity=f"{name}.{plain[0]}",
                facts=(("held_by", held),) if held else (),
            )
            for name, health in named.items()
        )
        self.reports[plain[0]] = replace(self.reports[plain[0]], devices=devices, has_helper=helper)
        return self._say(plain)

    def do_result(self, plain, named):
        node, state, *words = plain
        (order,) = repair.orders(self.cluster, node)
        result = OrderResult(
            id=order.id,
            verb=order.verb,
            state=OrderState(state),
            text=" ".join(words),
            at=self.at,
        )
        self.reports[node] = replace(self.reports[node], order_results=(result,))
        return self._say([node])

    def do_validates(self, plain, named):
        for node in plain:
            self.reports[node] = replace(self.reports[node], validates=True)
        return self._say(plain)

    def do_validated(self, plain, named):
        node, state, *words = plain
        (order,) = returning.orders(self.cluster, node)
        result = ValidationResult(
            id=order.id,
            depth=order.depth,
            state=ValidationState(state),
            text=" ".join(words),
            at=self.at,
            steps=tuple(
                Step(name=name, state=StepState(value), text="it was tried")
                for name, value in named.items()
            ),
        )
        self.reports[node] = replace(self.reports[node], validation_results=(result,))
        return self._say([node])

    def do_down(self, plain, named):
        node, device = plain
        fault_class = FaultClass.NIC_LINK_DOWN
        condition = Condition(fault_class=fault_class, device=device, since=self.at)
        self.reports[node] = replace(self.reports[node], conditions=(condition,))
        return [*self.do_fault([node, device, fault_class], {}), *self._say([node])]

    def do_up(self, plain, named):
        node, device = plain
        self.reports[node] = replace(self.reports[node], conditions=())
        up = self.do_fault([node, device, "nic.link.up"], {"severity": "info"})
        return [*up, *self._say([node])]

    def _observe(self, fault):
        number = self.numbers.get(fault.node, 0) + 1
        self.numbers[fault.node] = number
        return self._events(
            ev.FaultObserved(at=self.at, origin=fault.node, number=number, fault=fault)
        )

    # What is said, and what is not.

    def do_say(self, plain, named):
        return self._say(plain)

    def do_late(self, plain, named):
        report = self.reports[plain[0]]
        stale = replace(report, sequence=report.sequence - 1, launchers=())
        return self._events(ev.NodeReported(at=self.at, report=stale))

    def do_twice(self, plain, named):
        return self._events(ev.NodeReported(at=self.at, report=self.reports[plain[0]]))

    def do_wait(self, plain, named):
        until, without = self.at - 1.0 + float(plain[0]), named.get("without", "").split(",")
        heard = tuple(sorted(set(self.reports) - set(without)))
        lines = []
        while self.at < until:
            lines += self._events(ev.Tick(at=self.at, agents_seen=heard))
            self.at = min(until, self.at + 1.0)
        return [*lines, *self._events(ev.Tick(at=self.at, agents_seen=heard))]

    def do_hangup(self, plain, named):
        session = self.reports[plain[0]].session
        return self._events(ev.NodeHungUp(at=self.at, node=plain[0], session=session))

    def do_controller(self, plain, named):
        started = ev.ControllerStarted(at=self.at, epoch=self._next_epoch(), version="test")
        return self._events(started)

    def do_forget(self, plain, named):
        policy = self.cluster.policy
        self.cluster, self.shown = Cluster(policy=policy), {}
        return self.do_controller(plain, named)

    # What people do.

    def do_cordon(self, plain, named):
        return self._verb(ev.NodeCordoned, plain)

    def do_uncordon(self, plain, named):
        return self._verb(ev.NodeUncordoned, plain)

    def do_drain(self, plain, named):
        return self._verb(ev.NodeDrained, plain)

    def do_return(self, plain, named):
        depth = Depth(named["validate"]) if "validate" in named else None
        return self._verb(partial(ev.NodeReturned, validate=depth), plain)

    def do_stop(self, plain, named):
        name, *reason = plain
        event = ev.JobStopped(at=self.at, job=name, actor="alice", reason=" ".join(reason))
        return self._asked(event)

    def do_restart(self, plain, named):
        name, *reason = plain
        verb = partial(ev.JobRestarted, at_once="now" in named)
        return self._asked(verb(at=self.at, job=name, actor="alice", reason=" ".join(reason)))

    def do_exclude(self, plain, named):
        return self._excluded(plain, excluded=True)

    def do_include(self, plain, named):
        return self._excluded(plain, excluded=False)

    def _excluded(self, plain, *, excluded):
        (name, node, *reason), actor = plain, "alice"
        event = ev.JobNodeExcluded(
            at=self.at, job=name, node=node, actor=actor, reason=" ".join(reason), excluded=excluded
        )
        return self._asked(event)

    def do_approve(self, plain, named):
        return self._say_to(ev.IncidentApproved, plain, named)

    def do_deny(self, plain, named):
        return self._say_to(ev.IncidentDenied, plain, named)

    def do_ack(self, plain, named):
        return self._say_to(ev.IncidentAcknowledged, plain, named)

    def do_remark(self, plain, named):
        return self._say_to(ev.IncidentNoted, plain, named)

    def do_judge(self, plain, named):
        name, feedback, *reason = plain
        kind = partial(ev.IncidentJudged, feedback=Feedback(feedback))
        return self._say_to(kind, [name, *reason], named)

    def do_mode(self, plain, named):
        rule, mode = plain
        wanted = None if mode == "policy" else Mode(mode)
        group = named.get("group", "")
        return self._asked(
            ev.RuleModeSet(
                at=self.at, rule=rule, mode=wanted, group=group, actor="alice", reason="try"
            )
        )

    def do_pause(self, plain, named):
        return self._asked(ev.AutomationPaused(at=self.at, actor="alice", reason=" ".join(plain)))

    def do_resume(self, plain, named):
        return self._asked(ev.AutomationResumed(at=self.at, actor="alice", reason=" ".join(plain)))

    def do_window(self, plain, named):
        kind, *reason = plain
        begin = self.at + float(named.get("in", 0))
        return self._asked(
            ev.WindowSet(
                at=self.at,
                kind=WindowKind(kind),
                starts_at=begin,
                ends_at=begin + float(named.get("for", 60)),
                actor="alice",
                reason=" ".join(reason),
                node=named.get("node", "*"),
                fault_class=named.get("class", "*"),
                labels=(("rack", named["rack"]),) if "rack" in named else (),
            )
        )

    def do_unwindow(self, plain, named):
        name, *reason = plain
        reason = " ".join(reason)
        return self._asked(ev.WindowEnded(at=self.at, window=name, actor="alice", reason=reason))

    def _say_to(self, kind, plain, named):
        name, *reason = plain
        actor = named.get("by", "alice")
        return self._asked(kind(at=self.at, incident=name, actor=actor, reason=" ".join(reason)))

    def _verb(self, kind, plain):
        name, *reason = plain
        return self._asked(kind(at=self.at, node=name, actor="alice", reason=" ".join(reason)))

    def _asked(self, event):
        if refusal := operate.refusal(self.cluster, event):
            return [f"refused: {refusal}"]
        return self._events(event)

    def do_tell(self, plain, named):
        return story.tell(self.cluster.incidents[plain[0]])

    def do_assignments(self, plain, named):
        found = recover.assignments(self.cluster, plain[0])
        return [show(Assign(node=plain[0], assignment=one)) for one in found]

    # The frame.

    def _launcher(self, node):
        return self.reports[node].launchers[0]

    def _change(self, node, launcher):
        self.reports[node] = replace(self.reports[node], launchers=(launcher,))

    def _ranks(self, launcher, **changes):
        return tuple(replace(rank, **changes) for rank in launcher.ranks)

    def _next_epoch(self):
        self.epoch += 1
        return self.epoch

    def _say(self, nodes):
        lines = []
        for node in nodes:
            report = self.reports[node]
            self.reports[node] = replace(report, sequence=report.sequence + 1)
            lines += self._events(ev.NodeReported(at=self.at, report=self.reports[node]))
        return lines

    def _events(self, *events):
        lines = [show(one) for event in events for one in step(self.cluster, self.rules, event)]
        invariants.check(self.cluster)
        self.cluster.touched.clear()
        return lines

    def _changes(self):
        now = self._standing()
        lines = [text for name, text in now.items() if self.shown.get(name) != text]
        self.shown = now
        return lines

    def _standing(self):
        texts = {}
        for name, job in self.cluster.jobs.items():
            where = f" on {' '.join(holders(job))}" if holders(job) else ""
            reason = f" ({job.reason})" if job.reason else ""
            texts[f"job {name}"] = (
                f"{name}: {job.state}, generation {job.generation}{where}{reason}"
            )
        for name, node in self.cluster.nodes.items():
            held = f", held by {node.held_by}" if node.held_by else ""
            why = f" ({node.reason})" if node.validations and node.reason else ""
            texts[f"node {name}"] = f"{name}: {node.state}{held}{why}"
            for wanted in returning.orders(self.cluster, name):
                texts[f"validation of {name}"] = (
                    f"=> {name}: validate {wanted.depth}, epoch {wanted.epoch} ({wanted.id})"
                )
            for order in repair.orders(self.cluster, name):
                texts[f"order of {name}"] = (
                    f"=> {name}: {order.verb}, epoch {order.epoch} (order {order.id})"
                )
        for name, incident in self.cluster.incidents.items():
            texts[name] = f"{name} {incident.state}: {incident.headline}"
        return texts


def _keys(named: dict[str, str]) -> dict[str, str]:
    """What a `rule` line says in short, as YAML."""
    body = {key: value for key, value in named.items() if not key.startswith("guard.")}
    if "if_fails" in body:
        rungs = [one.partition(":") for one in body["if_fails"].split(",")]
        body["if_fails"] = (
            "["
            + ", ".join(
                f"{{remedy: {remedy}{', attempts: ' + times if times else ''}}}"
                for remedy, _, times in rungs
            )
            + "]"
        )
    guard = [f"{key[6:]}: {value}" for key, value in named.items() if key.startswith("guard.")]
    return body | ({"guard": f"{{{', '.join(guard)}}}"} if guard else {})


def show(action: Action) -> str:
    """An action as one line."""
    if not isinstance(action, Assign):
        return f"!! {action.kind} ({action.severity}): {action.text}"
    to, order = f"-> {action.node}", action.assignment
    if order.finished:
        return f"{to}: {order.job} is over, exit with {order.exit_code}"
    if order.world is not None:
        names = [member.node for member in order.world.members]
        place, port = names.index(action.node), order.world.master_port
        return f"{to}: run {order.job} generation {order.generation}, place {place} (store {port})"
    if order.stop is jb.StopKind.SAVING:
        return f"{to}: save and hold no ranks of {order.job} up to generation {order.generation}"
    return f"{to}: hold no ranks of {order.job} up to generation {order.generation}"


def play(text: str) -> str:
    """The scenario's text with what the core answers now."""
    scenario, out = Scenario(), []
    for block in re.split(r"\n\n+", text.strip()):
        lines = block.splitlines()
        if "----" not in lines:
            out.append(block)
            continue
        cut = lines.index("----")
        (command,) = [line for line in lines[:cut] if not line.startswith("#")]
        out.append("\n".join([*lines[: cut + 1], scenario.do(command)]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, request: pytest.FixtureRequest) -> None:
    """Every command gives what is written under it."""
    text = play(file.read_text())
    if request.config.getoption("--rewrite", default=False):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_same_events_give_the_same_actions(file: Path) -> None:
    """Nothing but the events decides: two plays of a scenario are one."""
    assert play(file.read_text()) == play(file.read_text())


def test_every_scenario_says_what_it_is_about() -> None:
    """A reader learns from the first line why the scenario is there."""
    assert [file.name for file in FILES if not file.read_text().startswith("# ")] == []


def test_a_launcher_is_known_by_its_job() -> None:
    """The harness itself: what a scenario calls a node's launcher is what the core sees."""
    scenario = Scenario()
    scenario.do("nodes n1 job=tiny nodes=1")
    assert launcher_of(scenario.cluster.nodes["n1"], "tiny") == scenario.reports["n1"].launchers[0]
