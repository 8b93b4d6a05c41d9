// The loss by step, with the steps that were done twice shaded and each restart marked.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { LossPoint } from "../store";
import type { Attempt } from "../types";

const HEIGHT = 240;

export function LossChart(props: {
  points: readonly LossPoint[];
  attempts: readonly Attempt[];
  theme: string;
}) {
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const attempts = useRef(props.attempts);
  attempts.current = props.attempts;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const plot = new uPlot(
      options(element, () => attempts.current),
      [[], []],
      element,
    );
    chart.current = plot;
    const resize = new ResizeObserver(() =>
      plot.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    resize.observe(element);
    return () => {
      resize.disconnect();
      plot.destroy();
      chart.current = null;
    };
  }, [props.theme]);

  useEffect(() => {
    chart.current?.setData(dataOf(props.points));
  }, [props.points, props.attempts, props.theme]);

  return <div class="loss-chart" ref={holder} role="img" aria-label={describe(props.points)} />;
}

/** The newest loss of each step: a step that was done again replaces what was lost. */
function dataOf(points: readonly LossPoint[]): uPlot.AlignedData {
  const newest = new Map(points.map((point) => [point.step, point.loss]));
  const steps = [...newest.keys()].sort((a, b) => a - b);
  return [steps, steps.map((step) => newest.get(step) ?? null)];
}

function describe(points: readonly LossPoint[]): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return "No loss yet";
  return `Loss from ${first.loss.toPrecision(4)} at step ${first.step} to ${last.loss.toPrecision(4)} at step ${last.step}`;
}

function options(element: HTMLElement, attempts: () => readonly Attempt[]): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => resolve(element, style.getPropertyValue(name));
  const axis: uPlot.Axis = {
    stroke: colour("--text-muted"),
    font: `12px ${style.fontFamily}`,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth || 600,
    height: HEIGHT,
    padding: [22, 16, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: true },
    scales: { x: { time: false } },
    axes: [{ ...axis }, { ...axis, size: 56 }],
    series: [
      { label: "Step" },
      {
        label: "Loss",
        stroke: colour("--accent"),
        width: 1.75,
        points: { show: false },
        value: (_plot, value) => (value === null ? "—" : value.toPrecision(4)),
      },
    ],
    hooks: {
      drawClear: [(plot) => shade(plot, attempts(), colour("--again"))],
      draw: [(plot) => mark(plot, attempts(), colour("--mark"), style.fontFamily)],
    },
  };
}

/** A canvas does not know `light-dark()`: let the browser work the colour out first. */
function resolve(element: HTMLElement, value: string): string {
  const probe = document.createElement("span");
  probe.style.color = value;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const restarts = (attempts: readonly Attempt[]) =>
  attempts.flatMap((attempt, index) => {
    const before = attempts[index - 1];
    if (!before || attempt.resumed_step === null) return [];
    return [{ generation: attempt.generation, from: attempt.resumed_step, to: before.last_step }];
  });

function shade(plot: uPlot, attempts: readonly Attempt[], colour: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour;
  for (const { from, to } of restarts(attempts)) {
    const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
    const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

function mark(plot: uPlot, attempts: readonly Attempt[], colour: string, family: string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.font = `${11 * ratio}px ${family}`;
  ctx.textAlign = "center";
  for (const { generation, from } of restarts(attempts)) {
    const x = plot.valToPos(from, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(`gen ${generation}`, x, bbox.top - 6 * ratio);
  }
  ctx.restore();
}
