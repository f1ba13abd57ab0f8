// Why a stored observation was recalled, or not: its score by element, and what would have been done with it.

import { Bars } from "./bars";
import { h, number, percent, signed } from "./dom";
import type { Recording } from "./data";
import type { Episode, Memory } from "./episode";
import { place, type Words } from "./words";

const MOST = 10;

export class Why {
  readonly element = h("section", { class: "panel why", "aria-live": "off" });
  private readonly heading = h("h2");
  private readonly score = h("p", { class: "note" });
  private readonly bars = new Bars("contributions");
  private readonly rest = h("p", { class: "note" });
  private readonly otherwise = h("p", { class: "otherwise" });

  constructor(private readonly recording: Recording, private readonly words: Words) {
    this.element.append(this.heading, this.score, this.bars.element, this.rest, this.otherwise);
  }

  move(episode: Episode, t: number, selected: number | null): void {
    const memory = episode.memory;
    this.element.hidden = !memory;
    if (!memory) return;
    const slot = selected !== null && memory.stayAt(t, selected) ? selected : memory.recalled[t];
    const stay = slot < 0 ? null : memory.stayAt(t, slot);
    this.rest.textContent = this.otherwise.textContent = "";
    if (!stay) {
      this.heading.textContent = "Why this one?";
      this.score.textContent = "Nothing is stored yet: there is nothing to recall.";
      this.bars.set([]);
      return;
    }
    const own = memory.recalled[t] === slot;
    this.heading.replaceChildren(`Why ${own ? "did it recall" : "not"} ${place(stay)}? `, h("small", {}, this.words.observation(episode.held(stay))));
    const share = percent(memory.probabilityAt(t, slot));
    const shares = memory.shares(t, stay);
    if (shares) {
      const names = episode.document.memory?.key_names;
      const largest = Math.max(1e-12, Math.abs(shares[0].value));
      const shown = shares.slice(0, MOST).filter(({ value }, k) => value !== 0 || k === 0);
      this.score.textContent = `Its score q·S/τ by element, the largest first. Score ${number(memory.score(t, stay), 2)}${this.others(memory, t, slot)}: ${share} of the query.`;
      this.bars.set(shown.map(({ element, value }) => ({ name: this.words.keyElement(names, element), share: Math.abs(value) / largest, text: signed(value, 2), below: value < 0, data: { element, value } })));
      const others = shares.slice(shown.length).reduce((sum, { value }) => sum + value, 0);
      if (others) this.rest.textContent = `the ${shares.length - shown.length} others together: ${signed(others, 2)}`;
    } else {
      this.score.textContent = `${share} of the query; its score by element is not in this recording.`;
      this.bars.set([]);
    }
    this.say(episode, t, slot, own);
  }

  /** What the other slots score, without which a score says little. */
  private others(memory: Memory, t: number, own: number): string {
    const scores: number[] = [];
    for (let slot = 0; slot < memory.slots; slot++) {
      const stay = slot === own ? null : memory.stayAt(t, slot);
      if (stay) scores.push(memory.score(t, stay)!);
    }
    if (!scores.length) return "";
    const [low, high] = [number(Math.min(...scores), 2), number(Math.max(...scores), 2)];
    return `, the others ${low === high ? low : `${low} to ${high}`}`;
  }

  /** The policy with this one recalled. */
  private say(episode: Episode, t: number, slot: number, own: boolean): void {
    const policy = episode.memory!.policyIf(t, slot);
    const { names, kind } = this.recording.actions;
    if (!policy || kind === "gaussian") return;
    const order = policy.map((_, k) => k).sort((a, b) => policy[b] - policy[a]).slice(0, 3);
    const text = order.map((k) => `${names[k] ?? k} ${percent(policy[k])}`).join(", ");
    const influence = own ? episode.memory!.influenceAt(t) : 0;
    const others = own && episode.memory!.held(t) > 1;
    const besides = episode.hidden.length ? " It has a hidden state besides, which may know already." : "";
    const same = others ? ` With any other of these slots it would have done the same.${besides}` : "";
    const moved = influence > 0.01 ? ` Another slot would have moved the policy by up to ${percent(influence)}.` : same;
    this.otherwise.replaceChildren(h("b", {}, own ? "With it: " : "Had it been recalled: "), `${text}.${moved}`);
  }
}
