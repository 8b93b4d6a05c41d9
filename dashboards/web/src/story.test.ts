import { expect, test } from "vitest";
import { age, duration, elapsed, moment } from "./format";
import { costOf } from "./phases";
import { identityOf, lastActiveFirst, nextOf, splitHeadline } from "./story";
import type { Incident, Node } from "./types";
import { sentence } from "./words";

const incident = (changes: Partial<Incident>): Incident =>
  ({ state: "closed", node: "n1", decisions: [], faults: [], ...changes }) as Incident;

const node = (changes: Partial<Node>): Node =>
  ({ name: "n1", state: "ready", conditions: [], devices: [], held_by: "", ...changes }) as Node;

test("seconds are said as the controller says them", () => {
  expect([0.4, 3.416, 12.34, 125, 7200, 90000].map(duration)).toEqual([
    "0.4 s",
    "3.42 s",
    "12.3 s",
    "2 min 5 s",
    "2 h",
    "1 d 1 h",
  ]);
  expect(age(59.9)).toBe("59 s");
});

test("the story counts from its first signal, in tenths of a second", () => {
  expect([0, 0.04, 65.27, -0.3].map(elapsed)).toEqual([
    "t+00:00.0",
    "t+00:00.0",
    "t+01:05.3",
    "t−00:00.3",
  ]);
});

test("a moment of another day says its day", () => {
  const now = Date.UTC(2026, 5, 2, 12) / 1000;
  expect(moment(now - 60, "utc", now)).toBe("11:59:00Z");
  expect(moment(now - 86400, "utc", now)).toBe("2026-06-01 12:00:00Z");
  expect(moment(now - 60, "relative", now)).toBe("1 min ago");
});

test("phases follow each other, and one that was over before it began took no time", () => {
  const phases = {
    observed_at: 10,
    opened_at: 11,
    decided_at: 12,
    stopped_at: 11.5,
    started_at: 14,
    loaded_at: null,
    first_step_at: null,
  };
  const live = costOf(incident({ state: "recovering", phases }), 17);
  expect(live.spans.map((span) => span.seconds)).toEqual([1, 1, 0, 2, 3, null]);
  expect([live.total, live.over, live.spans[4]?.running]).toEqual([7, false, true]);
  expect(costOf(incident({ phases }), 17).total).toBe(4);
});

test("an identity is shown as what its parts are", () => {
  expect(identityOf("0000:5c:00.0 a3ff74b5-0000-1000-8025-5b3d6e4f1c05 69231200571")).toEqual([
    ["PCI address", "0000:5c:00.0"],
    ["UUID", "a3ff74b5-0000-1000-8025-5b3d6e4f1c05"],
    ["Serial", "69231200571"],
  ]);
});

test("a headline is what broke, and what came of it", () => {
  expect(splitHeadline("Link down on n1 fab0: n1 is drained")).toEqual([
    "Link down on n1 fab0",
    "n1 is drained",
  ]);
});

test("names keep their small letter at the start of a sentence", () => {
  expect([sentence("it lasts"), sentence("inc-000001 goes on")]).toEqual([
    "It lasts.",
    "inc-000001 goes on.",
  ]);
});

test("a quarantined node is returned by a command, and the page says when that would be refused", () => {
  const sick = { name: "gpu3", health: "unhealthy" } as Node["devices"][number];
  const out = node({ state: "quarantined", held_by: "aegis", devices: [sick] });
  const [next] = nextOf(incident({}), out);
  expect(next?.command).toBe('aegis nodes return n1 --reason "…"');
  expect(next?.caution).toContain("gpu3 still reads as unhealthy");
});

test("what a mode holds back names the command that does it by hand", () => {
  const decision = { remedy: "drain_now", result: "would_act", clears_when: "the mode is raised" };
  const open = incident({ id: "inc-1", state: "open", decisions: [decision as never] });
  const found = nextOf(open, node({}));
  expect(found).toHaveLength(1);
  expect(found[0]?.command).toBe('aegis nodes drain n1 --reason "inc-1"');
});

test("what waits for a person says how to agree, and who has", () => {
  const decisions = [{ result: "needs_approval", remedy: "drain_now" }];
  const approval = { agreed: ["alice"], expired: false, needed: 2 };
  const asked = incident({
    id: "inc-000001",
    state: "open",
    decisions,
    approval,
  } as unknown as Partial<Incident>);
  const [next] = nextOf(asked, undefined);
  expect(next?.text).toBe("alice agreed; one more must. Aegis waits for a person to agree:");
  expect(next?.command).toBe('aegis incidents approve inc-000001 --reason "…"');
});

test("an old incident in which something happened just now stands above newer quiet ones", () => {
  const quiet = ["inc-000002", "inc-000003"].map((id) => incident({ id, active_at: 20 }));
  const listed = [...quiet, incident({ id: "inc-000001", active_at: 30 })].sort(lastActiveFirst);
  expect(listed.map((one) => one.id)).toEqual(["inc-000001", "inc-000003", "inc-000002"]);
});
