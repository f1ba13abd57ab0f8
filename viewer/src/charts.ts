// uPlot in this page's colours, the width of its place.

import uPlot from "uplot";
import { paint } from "./colours";
import { h, number } from "./dom";

const COLOURS = ["recall", "see", "do", "slot-strong", "gain", "loss", "quiet"];

/** The colour of the k-th of several groups of lines. */
export const colourOf = (k: number) => COLOURS[k % COLOURS.length];

export interface Line {
  label: string;
  values: (number | null)[];
  colour: string;
  width?: number;
  points?: boolean;
  alpha?: number;
  /** Standard errors of the values, said beside them. */
  errors?: (number | null)[];
  /** Left out of the legend. */
  quiet?: boolean;
}

export interface ChartOptions {
  title: string;
  x: number[];
  xlabel: string;
  ylabel?: string;
  lines: Line[];
  /** Filled between two lines, counted from 0. */
  bands?: { between: [number, number]; colour: string }[];
  height?: number;
  marks?: () => { at: number[]; current: number };
  pick?: (x: number) => void;
}

/** Charts side by side, drawn anew whenever what they show changes. */
export class Charts {
  readonly element: HTMLElement;
  private plots: uPlot[] = [];

  constructor(kind = "") {
    this.element = h("div", { class: `charts ${kind}` });
  }

  /** Needs to be in the page: each chart has its width from how many there are. */
  draw(charts: ChartOptions[]): void {
    for (const plot of this.plots) plot.destroy();
    const places = charts.map(({ title }) => h("div", { class: "chart", "data-chart": title }));
    this.element.replaceChildren(...places);
    this.plots = charts.map((options, k) => chart(places[k], options));
  }

  /** Move the marks, all else as it is. */
  mark(): void {
    for (const plot of this.plots) plot.redraw(false);
  }
}

function chart(place: HTMLElement, options: ChartOptions): uPlot {
  const axis = { stroke: () => paint("quiet"), grid: { stroke: () => paint("line"), width: 1 }, ticks: { stroke: () => paint("line"), width: 1 }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
  return new uPlot(
    {
      title: options.title,
      width: Math.max(200, place.clientWidth - 12),
      height: options.height ?? 180,
      cursor: { points: { size: 7 } },
      scales: { x: { time: false } },
      series: [
        { label: options.xlabel, value: (_, x) => (x === null || x === undefined ? "–" : number(x)) },
        ...options.lines.map((line) => ({
          label: line.label,
          stroke: () => paint(line.colour, line.alpha ?? 1),
          width: line.width ?? 2,
          spanGaps: true,
          points: { show: line.points ?? false, size: 7 },
          class: line.quiet ? "quiet" : undefined,
          value: (_: uPlot, y: number | null, __: number, at: number | null) => {
            const error = at === null || at === undefined ? null : line.errors?.[at];
            return error === null || error === undefined ? number(y) : `${number(y)} ± ${number(error)}`;
          },
        })),
      ],
      bands: options.bands?.map(({ between: [high, low], colour }) => ({ series: [high + 1, low + 1] as [number, number], fill: () => paint(colour, 0.16) })),
      axes: [
        { ...axis, size: 34, label: options.xlabel, labelSize: 16, values: (_, ticks) => ticks.map((x) => short(x)) },
        { ...axis, size: 52, label: options.ylabel, labelSize: 16, values: (_, ticks) => ticks.map((y) => number(y)) },
      ],
      hooks: {
        draw: [(u) => drawMarks(u, options)],
        ready: [
          (u) => {
            const pick = options.pick;
            if (pick) u.over.addEventListener("click", (event) => pick(u.posToVal(event.offsetX, "x")));
          },
        ],
      },
    },
    [options.x, ...options.lines.map((line) => line.values)] as uPlot.AlignedData,
    place,
  );
}

function drawMarks(u: uPlot, options: ChartOptions): void {
  const marks = options.marks?.();
  if (!marks) return;
  const { ctx, bbox } = u;
  marks.at.forEach((x, k) => {
    const left = u.valToPos(x, "x", true);
    ctx.fillStyle = paint(k === marks.current ? "now" : "quiet", k === marks.current ? 1 : 0.45);
    const width = (k === marks.current ? 3 : 1) * devicePixelRatio;
    ctx.fillRect(left - width / 2, bbox.top, width, bbox.height);
  });
}

export function short(x: number): string {
  if (Math.abs(x) >= 1e6) return `${number(x / 1e6, 1)}M`;
  return Math.abs(x) >= 1e4 ? `${number(x / 1e3, 1)}k` : number(x);
}
