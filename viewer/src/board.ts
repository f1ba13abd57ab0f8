// A benchmark's report: a table to sort and filter, and the curves of the rows that are shown.

import { colourOf } from "./charts";
import type { Board } from "./data";
import { h, number } from "./dom";
import { Sheet, sheet } from "./sheet";

type Row = Board["rows"][number];

function compare(a: Row, b: Row, column: string, down: boolean): number {
  const [x, y] = [a[column], b[column]];
  if (x === null || x === undefined) return 1; // what was not measured comes last either way
  if (y === null || y === undefined) return -1;
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return down ? -order : order;
}

export class BoardPage extends Sheet {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly count = h("output", {});
  private readonly filter: HTMLInputElement;
  private readonly heads: HTMLElement[];
  private order: { column: string; down: boolean } | null = null;

  constructor(readonly document: Board) {
    super();
    const board = document;
    this.filter = h("input", { type: "search", placeholder: "filter: words that must occur in a row", "aria-label": "filter rows", input: () => this.draw() });
    this.heads = board.columns.map((column) => h("th", { scope: "col", "data-column": column.name, class: column.numeric ? "numeric" : "" }, h("button", { type: "button", click: () => this.sort(column.name) }, column.label)));
    const table = h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...this.heads)), this.body));
    this.element = sheet("board", board, [this.filter, this.count], [table, this.charts.element]);
  }

  follow(before: unknown): void {
    if (!(before instanceof BoardPage)) return;
    this.filter.value = before.filter.value;
    if (before.order) this.mark(before.order);
  }

  private sort(column: string): void {
    const down = this.order?.column === column ? !this.order.down : this.document.columns.find(({ name }) => name === column)!.numeric;
    this.mark({ column, down });
    this.draw();
  }

  private mark(order: { column: string; down: boolean }): void {
    this.order = order;
    for (const head of this.heads) {
      if (head.dataset.column === order.column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  private matches(text: string): boolean {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return words.every((word) => text.toLowerCase().includes(word));
  }

  protected draw(): void {
    const rows = this.document.rows.filter((row) => this.matches(Object.values(row).join(" ")));
    if (this.order) rows.sort((a, b) => compare(a, b, this.order!.column, this.order!.down));
    this.body.replaceChildren(
      ...rows.map((row) =>
        h("tr", {}, ...this.document.columns.map((column, k) => {
          const value = row[column.name];
          const text = typeof value === "number" ? number(value) : (value ?? "–");
          return k === 0 ? h("th", { scope: "row" }, text) : h("td", { class: column.numeric ? "numeric" : "" }, text);
        })),
      ),
    );
    this.count.textContent = `${rows.length} of ${this.document.rows.length} rows`;
    const groups = [...new Set(this.document.curves.flatMap((curve) => curve.series.map((series) => series.group)))];
    const charts = this.document.curves.map((curve) => {
      const series = curve.series.filter((one) => this.matches(`${curve.title} ${one.name} ${one.group}`));
      const lines = series.map((one) => ({ label: one.name, values: one.values, colour: colourOf(groups.indexOf(one.group)) }));
      return { title: curve.title, x: curve.x, xlabel: curve.xlabel, ylabel: curve.ylabel, lines, height: 220 };
    });
    this.charts.draw(charts.filter(({ x, lines }) => lines.length > 0 && x.length > 1));
  }
}
