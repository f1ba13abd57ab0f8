// A figure of the paper: its panels as curves, seeds to be switched on and off, and the claims with their numbers.

import { colourOf, type ChartOptions, type Line } from "./charts";
import type { Figure } from "./data";
import { h, number } from "./dom";
import { Sheet, sheet } from "./sheet";

/** Mean over the series that are given, entry by entry, and the standard error of it. */
function summary(series: (number | null)[][], length: number): { mean: (number | null)[]; error: (number | null)[] } {
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

/** One of the numbers behind a claim; null is one that was not measured. */
const cell = (x: unknown) => (typeof x === "string" ? x : number(x as number | null));

export class FigurePage extends Sheet {
  readonly element: HTMLElement;
  private readonly hidden = new Set<string>();
  private single = false;

  constructor(readonly document: Figure) {
    super();
    const figure = document;
    const seeds = [...new Set(figure.panels.flatMap((panel) => panel.series.map((series) => series.name)))];
    const toggles = seeds.map((name) => {
      const box = h("input", { type: "checkbox", checked: true, "data-seed": name, change: () => this.toggle(name, box.checked) });
      return h("label", {}, box, name);
    });
    const each = h("input", { type: "checkbox", "data-each": true, change: () => ((this.single = each.checked), this.draw()) });
    const runs = h("fieldset", { class: "seeds" }, h("legend", {}, "runs"), h("label", {}, each, "each run as a line"), ...toggles);
    this.element = sheet("figure", figure, [], [runs, this.charts.element, this.claims()]);
  }

  follow(before: unknown): void {
    if (!(before instanceof FigurePage)) return;
    this.single = before.single;
    before.hidden.forEach((name) => this.hidden.add(name));
    for (const box of this.element.querySelectorAll("input")) box.checked = box.dataset.seed === undefined ? this.single : !this.hidden.has(box.dataset.seed);
  }

  private toggle(name: string, on: boolean): void {
    if (on) this.hidden.delete(name);
    else this.hidden.add(name);
    this.draw();
  }

  protected draw(): void {
    this.charts.draw(this.document.panels.map((panel) => this.chart(panel)));
  }

  /** A panel: of each group the mean of its runs, and around it their standard error or every run by itself. */
  private chart(panel: Figure["panels"][number]): ChartOptions {
    const lines: Line[] = [];
    const bands: ChartOptions["bands"] = [];
    const groups = [...new Set(panel.series.map((series) => series.group))];
    groups.forEach((group, g) => {
      const colour = colourOf(g);
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
    return { title: panel.title, x: panel.x, xlabel: panel.xlabel, lines, bands, height: 260 };
  }

  private claims(): HTMLElement {
    const rows = this.document.claims.flatMap((row) => {
      const holds = row.holding === row.seeds ? "yes" : row.holding ? "some" : "no";
      const numbers = Object.entries(row.values).map(([name, values]) => h("p", {}, h("b", {}, `${name}: `), values.map((x) => (Array.isArray(x) ? x.map(cell).join(" / ") : cell(x))).join(", ")));
      return [
        h("tr", { "data-claim": row.claim }, h("th", { scope: "row" }, row.claim), h("td", {}, row.criterion), h("td", {}, row.measured), h("td", { class: `verdict ${holds}` }, `${holds === "yes" ? "✓" : holds === "no" ? "✗" : "◐"} ${row.verdict}`)),
        h("tr", { class: "behind" }, h("td", { colspan: 4 }, h("details", {}, h("summary", {}, `the numbers behind, one for each of ${row.seeds} seeds`), ...numbers))),
      ];
    });
    const heads = ["the paper's claim", "tested as", "measured", "verdict"];
    return h("div", { class: "scroll" }, h("table", { class: "claims" }, h("caption", {}, "The paper's claims, held against this run"), h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...rows)));
  }
}
