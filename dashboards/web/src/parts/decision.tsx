// A decision with all of its reasons: rule, mode, every rail's verdict, what was refused and why.

import type { Decision } from "../types";
import { REMEDIES, RESULTS, railName, sentence } from "../words";
import { Icon } from "./icon";
import { Badge, CopyButton, Prose, Time } from "./small";

export function DecisionView({ decision }: { decision: Decision }) {
  const result = RESULTS[decision.result];
  return (
    <div class="decision">
      <p class="decision-line">
        <Badge tone={result.tone} title={result.means}>
          {result.label}
        </Badge>
        <strong>{REMEDIES[decision.remedy]}</strong>
      </p>
      <p class="reason">
        <Prose text={sentence(decision.reason)} />
      </p>
      {decision.verdicts.length > 0 && <Rails decision={decision} />}
      {decision.alternatives.length > 0 && (
        <div class="decision-block">
          <h3>Not chosen</h3>
          <ul class="alternatives">
            {decision.alternatives.map((one) => (
              <li key={one.remedy}>
                <span class="alternative">{REMEDIES[one.remedy]}</span> — {one.reason}
              </li>
            ))}
          </ul>
        </div>
      )}
      {decision.clears_when && (
        <div class="decision-block">
          <h3>What would change it</h3>
          <p>
            <Prose text={`It is done once ${decision.clears_when}.`} />
          </p>
        </div>
      )}
      <dl class="decision-facts">
        <div>
          <dt>Rule</dt>
          <dd>
            <code>{decision.rule || "none matches"}</code>
          </dd>
        </div>
        <div>
          <dt>Mode</dt>
          <dd>{decision.mode}</dd>
        </div>
        <div>
          <dt>Decided</dt>
          <dd>
            <Time at={decision.at} />
          </dd>
        </div>
        <div>
          <dt>Rules digest</dt>
          <dd class="digest">
            <code title={decision.rules_digest}>{decision.rules_digest.slice(0, 12)}</code>
            <CopyButton text={decision.rules_digest} label="rules digest" />
          </dd>
        </div>
      </dl>
    </div>
  );
}

function Rails({ decision }: { decision: Decision }) {
  const passed = decision.verdicts.filter((one) => one.passed).length;
  return (
    <div class="decision-block">
      <h3>
        Rails{" "}
        <span class="faint">
          {passed} of {decision.verdicts.length} pass
        </span>
      </h3>
      <ul class="rails">
        {decision.verdicts.map((one) => (
          <li key={one.rail} class={one.passed ? "rail" : "rail held"}>
            <span class="rail-mark">
              <Icon name={one.passed ? "ok" : "no"} size={14} />
              <span>{one.passed ? "passes" : "held"}</span>
            </span>
            <span class="rail-name">{railName(one.rail)}</span>
            <span class="rail-text">{one.text}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
