// A benchmark's report: a table to sort and filter, and the curves of the rows that are shown.

import type uPlot from "uplot";
import { chart } from "./charts";
import type { Board } from "./data";
import { h, number } from "./dom";

const COLOURS = ["recall", "see", "do", "slot-strong", "gain", "loss", "quiet"];

type Row = Board["rows"][number];

export function compare(a: Row, b: Row, column: string, down: boolean): number {
  const [x, y] = [a[column], b[column]];
  if (x === null || x === undefined) return 1; // what was not measured comes last either way
  if (y === null || y === undefined) return -1;
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return down ? -order : order;
}

export class BoardPage {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly count = h("output", {});
  private readonly filter: HTMLInputElement;
  private readonly heads: HTMLElement[];
  private readonly charts = h("div", { class: "charts wide" });
  private plots: uPlot[] = [];
  private order: { column: string; down: boolean } | null = null;

  constructor(private readonly board: Board) {
    this.filter = h("input", { type: "search", placeholder: "filter: words that must occur in a row", "aria-label": "filter rows", input: () => this.draw() });
    this.heads = board.columns.map((column) => h("th", { scope: "col", "data-column": column.name, class: column.numeric ? "numeric" : "" }, h("button", { type: "button", click: () => this.sort(column.name) }, column.label)));
    this.element = h(
      "article",
      { class: "board" },
      h("header", { class: "head" }, h("div", {}, h("h1", {}, board.title), h("p", { class: "facts-line" }, board.subtitle)), h("div", { class: "controls" }, this.filter, this.count)),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...this.heads)), this.body)),
      this.charts,
      ...board.notes.map((note) => h("p", { class: "note" }, note)),
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

  private sort(column: string): void {
    const down = this.order?.column === column ? !this.order.down : this.board.columns.find(({ name }) => name === column)!.numeric;
    this.order = { column, down };
    for (const head of this.heads) {
      if (head.dataset.column === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.draw();
  }

  private matches(text: string): boolean {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return words.every((word) => text.toLowerCase().includes(word));
  }

  private draw(): void {
    const rows = this.board.rows.filter((row) => this.matches(Object.values(row).join(" ")));
    if (this.order) rows.sort((a, b) => compare(a, b, this.order!.column, this.order!.down));
    this.body.replaceChildren(
      ...rows.map((row) =>
        h("tr", {}, ...this.board.columns.map((column, k) => {
          const value = row[column.name];
          const text = typeof value === "number" ? number(value) : (value ?? "–");
          return k === 0 ? h("th", { scope: "row" }, text) : h("td", { class: column.numeric ? "numeric" : "" }, text);
        })),
      ),
    );
    this.count.textContent = `${rows.length} of ${this.board.rows.length} rows`;
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    this.charts.replaceChildren();
    const groups = [...new Set(this.board.curves.flatMap((curve) => curve.series.map((series) => series.group)))];
    const waiting: (() => void)[] = [];
    for (const curve of this.board.curves) {
      const series = curve.series.filter((one) => this.matches(`${curve.title} ${one.name} ${one.group}`));
      if (!series.length || curve.x.length < 2) continue;
      const place = h("div", { class: "chart", "data-chart": curve.title });
      this.charts.append(place);
      const lines = series.map((one) => ({ label: one.name, values: one.values, colour: COLOURS[groups.indexOf(one.group) % COLOURS.length] }));
      waiting.push(() => this.plots.push(chart(place, { title: curve.title, x: curve.x, xlabel: curve.xlabel, lines, height: 220 })));
    }
    for (const draw of waiting) draw();
  }
}
