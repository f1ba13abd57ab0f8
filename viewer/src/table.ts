// Every step as a table: for screen readers, for copying, and for those who would rather read than look.

import { h, number, percent, signed } from "./dom";
import type { Episode } from "./episode";
import { place, type Words } from "./words";

const PART = 200;

export class Table {
  readonly element: HTMLDetailsElement;
  private readonly body = h("tbody");
  private readonly more = h("button", { type: "button", click: () => this.extend() }, "more steps");
  private episode!: Episode;
  private shown = 0;
  private least = 0;

  constructor(private readonly words: Words, private readonly go: (step: number) => void) {
    const heads = ["step", "sees", "recalls", "ago", "query", "does", "value", "reward", "δ", "credit", "stored", "recalls of it", "credit to it"];
    this.element = h(
      "details",
      { class: "steps", toggle: () => this.element.open && this.shown === 0 && this.extend() },
      h("summary", {}, "Every step as a table"),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), this.body)),
      this.more,
    );
  }

  /** Show as many steps as another did. */
  follow(before: Table): void {
    this.least = before.shown;
  }

  show(episode: Episode): void {
    this.episode = episode;
    this.shown = 0;
    this.body.replaceChildren();
    if (this.element.open) this.extend();
  }

  private extend(): void {
    const { episode } = this;
    const end = Math.min(episode.steps, Math.max(this.least, this.shown + PART));
    for (let t = this.shown; t < end; t++) this.body.append(this.row(t));
    this.shown = end;
    this.more.hidden = end >= episode.steps;
  }

  private row(t: number): HTMLElement {
    const { episode } = this;
    const memory = episode.memory;
    const stay = memory?.recalledStay(t) ?? null;
    const own = memory && memory.storedAs[t] >= 0 ? memory.stays[memory.storedAs[t]] : null;
    const cells = [
      this.words.observation(episode.seen(t)),
      stay ? `${place(stay)}: ${this.words.observation(episode.held(stay))}` : "",
      stay && stay.seen >= 0 ? String(t - stay.seen) : "",
      stay ? percent(memory!.probabilityAt(t, stay.slot)) : "",
      this.words.actions(episode, t).map(({ name, probability }) => (probability === null ? name : `${name} (${percent(probability)})`)).join(", "),
      number(episode.value?.[t]),
      signed(episode.reward[t]),
      signed(episode.delta?.[t]),
      stay ? signed(memory!.creditAt(t, stay.slot)) : "",
      own ? `slot ${own.slot + 1} ${this.words.until(episode, own)}` : "",
      own ? String(own.recalls) : "",
      own ? signed(own.credit) : "",
    ];
    const link = h("a", { href: `#step=${t}`, click: (event: Event) => (event.preventDefault(), this.go(t)) }, String(t));
    return h("tr", { "data-step": t }, h("th", { scope: "row" }, link), ...cells.map((cell) => h("td", {}, cell)));
  }
}
