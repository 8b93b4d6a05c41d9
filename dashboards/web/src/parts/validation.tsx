// The last validation of a node: how it came out, and each step with what was measured.

import type { StepState, Validation } from "../types";
import { sentence, type Tone } from "../words";
import type { IconName } from "./icon";
import { Badge, Time } from "./small";

const STEPS: Record<StepState, { tone: Tone; icon: IconName }> = {
  pass: { tone: "ok", icon: "ok" },
  warning: { tone: "warn", icon: "info" },
  fail: { tone: "error", icon: "no" },
  unknown: { tone: "mute", icon: "info" },
};

/** How a validation stands, in a few words. */
export function standing(validation: Validation): string {
  if (validation.ended_at === null) {
    return validation.state === null ? "asked for, and not begun yet" : "under way";
  }
  switch (validation.state) {
    case "passed":
      return "passed";
    case "unknown":
      return "nothing failed, and something could not be told";
    case "failed":
      return "failed";
    default:
      return "did not come to its end";
  }
}

export function LastValidation({ validation }: { validation: Validation }) {
  return (
    <>
      <p>
        A {validation.order.depth} validation, asked for by {validation.actor}{" "}
        <Time at={validation.given_at} />: {standing(validation)}.
        {validation.text && ` ${sentence(validation.text)}`}
      </p>
      {validation.steps.length > 0 && (
        <table class="rows">
          <caption class="visually-hidden">Steps of the last validation</caption>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Came to</th>
              <th scope="col">Measured</th>
              <th scope="col">Wanted</th>
              <th scope="col">Seconds</th>
              <th scope="col">What was found</th>
            </tr>
          </thead>
          <tbody>
            {validation.steps.map((step) => (
              <tr key={step.name}>
                <td class="col-name">{step.name}</td>
                <td>
                  <Badge tone={STEPS[step.state].tone} icon={STEPS[step.state].icon}>
                    {step.state}
                  </Badge>
                </td>
                <td>{step.value || <span class="faint">—</span>}</td>
                <td>{step.gate || <span class="faint">—</span>}</td>
                <td class="faint">{step.seconds.toFixed(1)}</td>
                <td>{step.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
