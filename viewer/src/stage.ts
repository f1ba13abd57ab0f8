// What the agent sees now, and what it does.

import { h, number, percent, signed } from "./dom";
import type { Recording } from "./data";
import type { Episode } from "./episode";
import { bars, type Pictures } from "./picture";
import type { Words } from "./words";

const MOST_ACTIONS = 24;

export class Sees {
  readonly element = h("section", { class: "panel sees", "aria-label": "what the agent sees" });
  private readonly body = h("div", { class: "seen" });

  constructor(private readonly words: Words, private readonly pictures: Pictures) {
    this.element.append(h("h2", {}, "Sees"), this.body);
  }

  move(episode: Episode, t: number): void {
    const parts: HTMLElement[] = [];
    const frame = this.pictures.frame(episode, t);
    if (frame) {
      const canvas = h("canvas", { class: "frame", role: "img", "aria-label": `the environment at step ${t}` });
      this.pictures.drawFrame(canvas, frame, frame.naturalWidth * Math.min(250 / frame.naturalWidth, 220 / frame.naturalHeight));
      parts.push(canvas);
    } else if (episode.document.texts?.[t]) {
      parts.push(h("pre", { class: "rendered" }, episode.document.texts[t]));
    }
    if (!this.words.isPicture) parts.push(bars((k) => this.words.element(k), episode.seen(t), (k) => this.words.rarity(k)));
    else if (!frame) {
      const canvas = h("canvas", { class: "frame", role: "img", "aria-label": `the view at step ${t}` });
      this.pictures.thumbnail(canvas, episode, t, 200, 200);
      canvas.style.width = "200px";
      parts.push(canvas);
    }
    this.body.replaceChildren(...parts);
  }
}

export class Does {
  readonly element = h("section", { class: "panel does", "aria-label": "what the agent does" });
  private readonly body = h("div");

  constructor(private readonly recording: Recording) {
    this.element.append(h("h2", {}, "Does"), this.body);
  }

  move(episode: Episode, t: number): void {
    const parts: HTMLElement[] = [this.policy(episode, t)];
    const facts: [key: string, name: string, text: string, why: string, value: number][] = [];
    if (episode.value) facts.push(["value", "value V", number(episode.value[t]), "what it expects from here on", episode.value[t]]);
    facts.push(["reward", "reward", signed(episode.reward[t]), "what came of the action", episode.reward[t]]);
    if (episode.delta) facts.push(["delta", "surprise δ", signed(episode.delta[t]), "how much better it went than expected", episode.delta[t]]);
    const memory = episode.memory;
    const stay = memory?.recalledStay(t);
    const credit = memory && stay ? memory.creditAt(t, stay.slot) : null;
    if (stay && credit !== null) facts.push(["credit", "credit", `${signed(credit)} to step ${stay.seen}`, "push on the write weight of what was recalled", credit]);
    parts.push(h("dl", { class: "facts" }, ...facts.map(([key, name, text, why, value]) => h("div", { title: why }, h("dt", {}, name), h("dd", { "data-fact": key, "data-value": value }, text)))));
    this.body.replaceChildren(...parts);
  }

  private policy(episode: Episode, t: number): HTMLElement {
    const { names, kind, sizes } = this.recording.actions;
    const taken = episode.action ? episode.row(episode.action, t) : [];
    const policy = episode.policy ? episode.row(episode.policy, t) : [];
    if (kind === "gaussian") return this.gaussian(names, taken, policy);
    const rows: HTMLElement[] = [];
    let start = 0;
    for (const [choice, count] of (sizes ?? [names.length]).entries()) {
      const order = Array.from({ length: count }, (_, k) => k);
      const shown = count > MOST_ACTIONS ? order.sort((a, b) => policy[start + b] - policy[start + a]).slice(0, MOST_ACTIONS) : order;
      for (const k of shown) {
        const share = policy[start + k];
        const chosen = taken[choice] === k;
        const fill = h("i", { class: "fill" });
        fill.style.width = `${100 * (share ?? 0)}%`;
        rows.push(h("div", { class: chosen ? "bar chosen" : "bar", "data-action": start + k, "data-value": share }, h("span", { class: "name" }, chosen ? "▸ " : "", names[start + k] ?? String(k)), h("span", { class: "track" }, fill), h("span", { class: "figure" }, share === undefined ? "" : percent(share))));
      }
      start += count;
    }
    return h("div", { class: "bars policy" }, ...rows);
  }

  private gaussian(names: string[], taken: number[], policy: number[]): HTMLElement {
    const rows = taken.map((x, k) => h("div", { class: "bar chosen" }, h("span", { class: "name" }, names[k] ?? String(k)), h("span", { class: "figure wide" }, `${number(x)} drawn from ${number(policy[k])} ± ${number(policy[taken.length + k])}`)));
    return h("div", { class: "bars policy" }, ...rows);
  }
}
