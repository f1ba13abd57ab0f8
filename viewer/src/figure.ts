// A figure of the paper: its panels as curves, seeds to be switched on and off, and the claims with their numbers.

import type uPlot from "uplot";
import { chart, type Line } from "./charts";
import type { Figure } from "./data";
import { h, number } from "./dom";

const COLOURS = ["recall", "see", "do", "slot-strong", "gain", "loss"];

/** Mean over the series that are given, entry by entry, and the standard error of it. */
export function summary(series: (number | null)[][], length: number): { mean: (number | null)[]; error: (number | null)[] } {
  const mean: (number | null)[] = [];
  const error: (number | null)[] = [];
  for (let k = 0; k < length; k++) {
    const found = series.map((values) => values[k]).filter((x): x is number => x !== null && x !== undefined);
    const centre = found.length ? found.reduce((a, b) => a + b, 0) / found.length : null;
    mean.push(centre);
    const spread = centre === null || found.length < 2 ? null : found.reduce((sum, x) => sum + (x - centre) ** 2, 0) / (found.length - 1);
    error.push(spread === null ? null : Math.sqrt(spread / found.length));
  }
  return { mean, error };
}

export class FigurePage {
  readonly element: HTMLElement;
  private readonly places: HTMLElement[] = [];
  private readonly hidden = new Set<string>();
  private single = false;
  private plots: uPlot[] = [];

  constructor(private readonly figure: Figure) {
    const seeds = [...new Set(figure.panels.flatMap((panel) => panel.series.map((series) => series.name)))];
    const toggles = seeds.map((name) => {
      const box = h("input", { type: "checkbox", checked: true, "data-seed": name, change: () => this.toggle(name, box.checked) });
      return h("label", {}, box, name);
    });
    const each = h("input", { type: "checkbox", "data-each": true, change: () => ((this.single = each.checked), this.draw()) });
    this.places = figure.panels.map((panel) => h("div", { class: "chart", "data-chart": panel.title }));
    this.element = h(
      "article",
      { class: "figure" },
      h("header", { class: "head" }, h("div", {}, h("h1", {}, figure.title), h("p", { class: "facts-line" }, figure.subtitle))),
      h("fieldset", { class: "seeds" }, h("legend", {}, "runs"), h("label", {}, each, "each run as a line"), ...toggles),
      h("div", { class: "charts wide" }, ...this.places),
      this.claims(),
      ...figure.notes.map((note) => h("p", { class: "note" }, note)),
    );
  }

  open(): void {
    this.draw();
  }

  resize(): void {
    this.draw();
  }

  repaint(): void {
    this.draw();
  }

  private toggle(name: string, on: boolean): void {
    if (on) this.hidden.delete(name);
    else this.hidden.add(name);
    this.draw();
  }

  private draw(): void {
    for (const plot of this.plots) plot.destroy();
    this.plots = this.figure.panels.map((panel, k) => {
      const lines: Line[] = [];
      const bands: { between: [number, number]; colour: string }[] = [];
      const groups = [...new Set(panel.series.map((series) => series.group))];
      groups.forEach((group, g) => {
        const colour = COLOURS[g % COLOURS.length];
        const own = panel.series.filter((series) => series.group === group && !this.hidden.has(series.name));
        if (!own.length) return;
        if (this.single) own.forEach((series) => lines.push({ label: `${group}, ${series.name}`, values: series.values, colour, width: 1, alpha: 0.7 }));
        const { mean, error } = summary(own.map((series) => series.values), panel.x.length);
        lines.push({ label: `${group} (mean of ${own.length})`, values: mean, colour, width: 2.5, errors: error });
        if (!this.single && own.length > 1) {
          const shifted = (sign: number) => mean.map((x, j) => (x === null || error[j] === null ? null : x + sign * error[j]!));
          bands.push({ between: [lines.length, lines.length + 1], colour });
          for (const sign of [1, -1]) lines.push({ label: `${group} ${sign > 0 ? "+" : "−"} s.e.`, values: shifted(sign), colour, width: 0, quiet: true });
        }
      });
      for (const line of panel.lines ?? []) lines.push({ label: line.name, values: panel.x.map(() => line.y), colour: "quiet", width: 1, dash: [4, 4] });
      return chart(this.places[k], { title: panel.title, x: panel.x, xlabel: panel.xlabel, ylabel: panel.ylabel, lines, bands, height: 260 });
    });
  }

  private claims(): HTMLElement {
    const rows = this.figure.claims.flatMap((row) => {
      const holds = row.holding === row.seeds ? "yes" : row.holding ? "some" : "no";
      const numbers = Object.entries(row.values).map(([name, values]) => h("p", {}, h("b", {}, `${name}: `), values.map((x) => (typeof x === "number" ? number(x) : Array.isArray(x) ? x.map((y) => number(y as number)).join(" / ") : String(x))).join(", ")));
      return [
        h("tr", { "data-claim": row.claim }, h("th", { scope: "row" }, row.claim), h("td", {}, row.criterion), h("td", {}, row.measured), h("td", { class: `verdict ${holds}` }, `${holds === "yes" ? "✓" : holds === "no" ? "✗" : "◐"} ${row.verdict}`)),
        h("tr", { class: "behind" }, h("td", { colspan: 4 }, h("details", {}, h("summary", {}, `the numbers behind, one for each of ${row.seeds} seeds`), ...numbers))),
      ];
    });
    const heads = ["the paper's claim", "tested as", "measured", "verdict"];
    return h("div", { class: "scroll" }, h("table", { class: "claims" }, h("caption", {}, "The paper's claims, held against this run"), h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...rows)));
  }
}
