// The memory at one step: a card for each slot, and what comes in and goes out.

import { fillTo } from "./bars";
import { fromLog, h, percent, signed } from "./dom";
import type { Episode, Stay } from "./episode";
import type { Pictures } from "./picture";
import { place, times, type Words } from "./words";

const ago = (t: number, stay: Stay) => (stay.seen < 0 ? "" : `, ${t - stay.seen} ago`);

interface Card {
  root: HTMLButtonElement;
  thumb: HTMLCanvasElement;
  title: HTMLElement;
  age: HTMLElement;
  fill: HTMLElement;
  share: HTMLElement;
  weight: HTMLElement;
  tag: HTMLElement;
  shown: string;
  drawn: string;
}

export class Slots {
  readonly element = h("section", { class: "panel memory", "aria-label": "memory" });
  private readonly list = h("div", { class: "slots" });
  private readonly exchange = h("div", { class: "exchange", role: "status" });
  private readonly heading = h("h2", {}, "Memory");
  private cards: Card[] = [];
  private episode!: Episode;
  private readonly visible = new Set<Element>();
  private readonly watcher: IntersectionObserver;
  private settling = 0;
  selected: number | null = null;

  constructor(private readonly words: Words, private readonly pictures: Pictures, private readonly chosen: () => void) {
    this.element.append(this.heading, this.list, this.exchange);
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) isIntersecting ? this.visible.add(target) : this.visible.delete(target);
    });
  }

  show(episode: Episode): void {
    this.episode = episode;
    const memory = episode.memory;
    this.element.hidden = !memory;
    this.selected = null;
    if (!memory) return;
    this.list.classList.toggle("many", memory.slots > 12);
    this.cards = Array.from({ length: memory.slots }, (_, slot) => this.card(slot));
    const used = new Set(memory.stays.map(({ slot }) => slot));
    this.cards.forEach((card, slot) => (card.root.hidden = !used.has(slot) && slot > 0)); // the heading counts them
    this.watcher.disconnect();
    this.visible.clear();
    this.list.replaceChildren(...this.cards.map((card) => card.root));
    for (const card of this.cards) this.watcher.observe(card.root);
  }

  private card(slot: number): Card {
    const thumb = h("canvas", { class: "thumb", "aria-hidden": "true" });
    const [title, age, share, weight, tag] = [h("span", { class: "what" }), h("span", { class: "age" }), h("span", { class: "share" }), h("span", { class: "weight" }), h("span", { class: "tag" })];
    const fill = h("i", { class: "fill" });
    const select = (to: number | null) => () => {
      this.selected = to;
      this.chosen();
    };
    const root = h(
      "button",
      { type: "button", class: "slot", "data-slot": slot, pointerenter: select(slot), pointerleave: select(null), focus: select(slot), blur: select(null), click: select(slot) },
      h("span", { class: "place" }, `${slot + 1}`, tag),
      thumb,
      title,
      age,
      h("span", { class: "query" }, h("span", { class: "track" }, fill), share),
      weight,
    );
    return { root, thumb, title, age, fill, share, weight, tag, shown: "", drawn: "" };
  }

  /** Show a step: of many cards those in sight at once, the others when the step has stayed for a moment. */
  move(t: number): void {
    const many = this.cards.length > 24;
    this.draw(t, many);
    clearTimeout(this.settling);
    if (many) this.settling = window.setTimeout(() => this.draw(t, false), 100);
  }

  private draw(t: number, inSight: boolean): void {
    const memory = this.episode.memory;
    if (!memory) return;
    const incoming = memory.storedAs[t] < 0 ? null : memory.stays[memory.storedAs[t]];
    const evicted = memory.evictedBy[t];
    let held = 0;
    for (const [slot, card] of this.cards.entries()) {
      const stay = memory.stayAt(t, slot);
      const recalled = memory.recalled[t] === slot;
      const enters = incoming !== null && incoming.slot === slot && incoming.from > t;
      const arrived = stay !== null && stay.from === t && t > 0;
      held += stay ? 1 : 0;
      if (inSight && this.visible.size && !this.visible.has(card.root)) continue;
      const tag = recalled ? "recalled" : evicted >= 0 && stay?.index === evicted ? "leaves" : arrived ? "new" : !stay && enters ? "next" : "";
      const share = stay ? memory.probabilityAt(t, slot) : 0;
      const key = stay ? `${stay.index} ${t - stay.seen} ${share} ${tag} ${recalled}` : `- ${tag}`;
      const thumbKey = stay ? `${stay.index} ${this.pictures.frame(this.episode, stay.seen) ? "f" : ""}` : "";
      if (card.shown !== thumbKey) {
        card.shown = thumbKey;
        card.thumb.hidden = !stay;
        if (stay) {
          const picture = this.pictures.preferred(this.episode);
          this.pictures.thumbnail(card.thumb, this.episode, stay.seen, this.episode.held(stay), 72, picture ? 56 : 24);
          card.thumb.style.height = picture ? "56px" : "24px";
        }
        card.title.textContent = stay ? this.words.observation(this.episode.held(stay)) : "empty";
      }
      if (card.drawn === key) continue;
      card.drawn = key;
      card.root.className = `slot ${stay ? "" : "empty"} ${recalled ? "recalled" : ""} ${tag}`;
      card.tag.textContent = tag;
      card.age.textContent = stay ? `${place(stay)}${ago(t, stay)}` : "";
      fillTo(card.fill, share);
      card.share.textContent = stay ? percent(share) : "";
      card.weight.textContent = stay ? this.weights(t, stay) : "";
      card.root.dataset.probability = stay ? String(share) : "";
      card.root.dataset.seen = stay ? String(stay.seen) : "";
      card.root.dataset.logWeight = stay ? String(stay.logWeight) : "";
      card.root.setAttribute("aria-label", stay ? this.label(t, stay, recalled) : `slot ${slot + 1}: empty`);
    }
    this.heading.replaceChildren("Memory ", h("small", {}, `${held} of ${memory.slots} slots`));
    this.exchange.replaceChildren(...this.changes(t, incoming, evicted));
  }

  private weights(t: number, stay: Stay): string {
    const [given, current] = [fromLog(stay.logWeight), fromLog(this.episode.memory!.logWeightAt(t, stay))];
    return given === current ? `weight ${given}` : `weight ${given}, now ${current}`;
  }

  private label(t: number, stay: Stay, recalled: boolean): string {
    const share = percent(this.episode.memory!.probabilityAt(t, stay.slot));
    return `slot ${stay.slot + 1}: ${place(stay)}${ago(t, stay)}, ${this.words.observation(this.episode.held(stay))}, ${this.weights(t, stay)}, query ${share}${recalled ? ", recalled" : ""}`;
  }

  private changes(t: number, incoming: Stay | null, evicted: number): HTMLElement[] {
    const memory = this.episode.memory!;
    const lines: HTMLElement[] = [];
    const what = this.words.observation(this.episode.seen(t));
    const weight = memory.logWriteWeight ? `, write weight ${fromLog(memory.logWriteWeight[t])}` : "";
    if (incoming) {
      lines.push(h("p", { class: "in" }, h("b", {}, "in "), `this step, ${what}, is stored in slot ${incoming.slot + 1}${weight}: it stays ${this.words.until(this.episode, incoming)}, recalled ${times(incoming.recalls)}, credit ${signed(incoming.credit)}`));
      if (evicted >= 0) {
        const old = memory.stays[evicted];
        lines.push(h("p", { class: "out" }, h("b", {}, "out "), `${place(old)}, ${this.words.observation(this.episode.held(old))}: stayed ${old.until - old.from} steps, recalled ${times(old.recalls)}, credit ${signed(old.credit)}`));
      }
    } else {
      const chance = memory.writeChance ? `, chance to be kept ${percent(memory.writeChance[t])}` : "";
      const last = t === this.episode.steps - 1;
      lines.push(h("p", { class: "not" }, last ? "the episode ends with this step" : `this step, ${what}, is not stored${weight}${chance}`));
    }
    return lines;
  }
}
