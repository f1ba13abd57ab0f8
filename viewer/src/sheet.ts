// What the pages of figures and of reports have in common: a head, charts, notes, and one way to draw them anew.

import { Charts } from "./charts";
import type { Page } from "./data";
import { h } from "./dom";

export abstract class Sheet {
  protected readonly charts = new Charts("wide");

  abstract readonly element: HTMLElement;
  abstract readonly document: Page;

  /** Be as whoever looks has set the page that this one takes the place of. */
  abstract follow(before: unknown): void;

  /** Draw what is to be seen now; needs to be in the page. */
  protected abstract draw(): void;

  open(): void {
    this.draw();
  }

  resize(): void {
    this.draw();
  }

  repaint(): void {
    this.draw();
  }
}

/** The element of a page: its parts between the head, with its controls, and the notes. */
export function sheet(kind: string, about: { title: string; subtitle: string; notes: string[] }, controls: HTMLElement[], parts: HTMLElement[]): HTMLElement {
  const head = h("div", {}, h("h1", {}, about.title), h("p", { class: "facts-line" }, about.subtitle));
  const notes = about.notes.map((note) => h("p", { class: "note" }, note));
  return h("article", { class: kind }, h("header", { class: "head" }, head, controls.length > 0 && h("div", { class: "controls" }, ...controls)), ...parts, ...notes);
}
