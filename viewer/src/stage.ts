// What the agent sees now, and what it does.

import { Bars, type Bar } from "./bars";
import { h, number, percent, signed } from "./dom";
import type { Recording } from "./data";
import type { Episode } from "./episode";
import { barsOf, type Pictures } from "./picture";
import { place, type Words } from "./words";

const MOST_ACTIONS = 24;

export class Sees {
  readonly element = h("section", { class: "panel sees", "aria-label": "what the agent sees" });
  private readonly frame = h("canvas", { class: "frame", role: "img", hidden: true });
  private readonly rendered = h("pre", { class: "rendered", hidden: true });
  private readonly bars = new Bars("seen");
  private readonly note = h("p", { class: "note" });

  constructor(private readonly words: Words, private readonly pictures: Pictures) {
    this.element.append(h("h2", {}, "Sees"), this.frame, this.rendered, this.bars.element, this.note);
  }

  move(episode: Episode, t: number): void {
    const frame = this.pictures.frame(episode, t);
    const text = episode.document.texts?.[t] ?? "";
    this.frame.hidden = !frame && !this.words.isPicture;
    this.frame.setAttribute("aria-label", `the environment at step ${t}`);
    if (frame) this.pictures.drawFrame(this.frame, frame, frame.naturalWidth * Math.min(250 / frame.naturalWidth, 220 / frame.naturalHeight));
    else if (this.words.isPicture) {
      this.pictures.thumbnail(this.frame, episode, t, episode.seen(t), 200, 200);
      this.frame.style.width = "200px";
    }
    this.rendered.hidden = !text || frame !== null;
    this.rendered.textContent = text;
    if (this.words.isPicture) return;
    const seen = episode.seen(t);
    const bars = barsOf((k) => this.words.element(k), seen, (k) => this.words.rarity(k));
    this.bars.set(bars);
    this.note.textContent = bars.length < seen.length ? `the ${bars.length} largest of ${seen.length} elements` : "";
  }
}

interface Fact {
  key: string;
  name: string;
  text: string;
  why: string;
  value: number;
}

export class Does {
  readonly element = h("section", { class: "panel does", "aria-label": "what the agent does" });
  private readonly policy = new Bars("policy");
  private readonly facts = h("dl", { class: "facts" });
  private readonly known = new Map<string, HTMLElement>();

  constructor(private readonly recording: Recording) {
    this.element.append(h("h2", {}, "Does"), this.policy.element, this.facts);
  }

  move(episode: Episode, t: number): void {
    this.policy.set(this.choices(episode, t));
    const facts: Fact[] = [];
    if (episode.value) facts.push({ key: "value", name: "value V", text: number(episode.value[t]), why: "what it expects from here on", value: episode.value[t] });
    facts.push({ key: "reward", name: "reward", text: signed(episode.reward[t]), why: "what came of the action", value: episode.reward[t] });
    if (episode.delta) facts.push({ key: "delta", name: "surprise δ", text: signed(episode.delta[t]), why: "how much better it went than expected", value: episode.delta[t] });
    const memory = episode.memory;
    const stay = memory?.recalledStay(t);
    const credit = memory && stay ? memory.creditAt(t, stay.slot) : null;
    if (stay && credit !== null) facts.push({ key: "credit", name: "credit", text: `${signed(credit)} to ${place(stay)}`, why: "push on the write weight of what was recalled", value: credit });
    for (const fact of facts) {
      let place = this.known.get(fact.key);
      if (!place) {
        place = h("dd", { "data-fact": fact.key });
        this.known.set(fact.key, place);
        this.facts.append(h("div", { title: fact.why }, h("dt", {}, fact.name), place));
      }
      place.textContent = fact.text;
      place.dataset.value = String(fact.value);
    }
    for (const [key, place] of this.known) place.parentElement!.hidden = !facts.some((fact) => fact.key === key);
  }

  private choices(episode: Episode, t: number): Bar[] {
    const { names, kind, sizes } = this.recording.actions;
    const taken = episode.action ? episode.row(episode.action, t) : [];
    const policy = episode.policy ? episode.row(episode.policy, t) : [];
    if (kind === "gaussian") {
      const text = (x: number, k: number) => `${number(x)}, drawn from ${number(policy[k])} ± ${number(policy[taken.length + k])}`;
      return taken.map((x, k) => ({ name: names[k] ?? String(k), share: 0, text: text(x, k), kind: "chosen wide", data: { action: k, value: x } }));
    }
    const found: Bar[] = [];
    let start = 0;
    for (const [choice, count] of (sizes ?? [names.length]).entries()) {
      const order = Array.from({ length: count }, (_, k) => k);
      const shown = count > MOST_ACTIONS ? order.sort((a, b) => policy[start + b] - policy[start + a]).slice(0, MOST_ACTIONS) : order;
      for (const k of shown) {
        const share = policy[start + k];
        const chosen = taken[choice] === k;
        const name = names[start + k] ?? String(k);
        found.push({ name: chosen ? `▸ ${name}` : name, share: share ?? 0, text: share === undefined ? "" : percent(share), kind: chosen ? "chosen" : "", data: { action: start + k, value: share } });
      }
      start += count;
    }
    return found;
  }
}
