// Labelled bars that are kept from step to step: only what differs is touched, and no bar's length moves anything else.

import { h } from "./dom";

export interface Bar {
  name: string;
  share: number;
  text: string;
  kind?: string;
  below?: boolean;
  data?: Record<string, string | number | undefined>;
}

interface Row {
  root: HTMLElement;
  name: HTMLElement;
  fill: HTMLElement;
  figure: HTMLElement;
  shown: string;
}

/** Let a bar's filling be so long, from 0 to 1. */
export function fillTo(fill: HTMLElement, share: number): void {
  fill.style.transform = `scaleX(${Math.min(Math.max(share, 0), 1)})`;
}

export class Bars {
  readonly element: HTMLElement;
  private readonly rows: Row[] = [];

  constructor(kind = "") {
    this.element = h("div", { class: `bars ${kind}` });
  }

  set(bars: Bar[]): void {
    while (this.rows.length > bars.length) this.rows.pop()!.root.remove();
    bars.forEach((bar, k) => {
      const row = this.rows[k] ?? this.add();
      const key = JSON.stringify(bar);
      if (row.shown === key) return;
      row.shown = key;
      row.root.className = `bar ${bar.kind ?? ""}`;
      row.name.textContent = row.name.title = bar.name; // which may be longer than its place
      row.figure.textContent = bar.text;
      row.fill.className = bar.below ? "fill below" : "fill";
      fillTo(row.fill, bar.share);
      for (const [name, value] of Object.entries(bar.data ?? {})) row.root.dataset[name] = String(value ?? "");
    });
  }

  private add(): Row {
    const [name, fill, figure] = [h("span", { class: "name" }), h("i", { class: "fill" }), h("span", { class: "figure" })];
    const root = h("div", { class: "bar" }, name, h("span", { class: "track" }, fill), figure);
    this.element.append(root);
    const row = { root, name, fill, figure, shown: "" };
    this.rows.push(row);
    return row;
  }
}
