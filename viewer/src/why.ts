// Why a stored observation was recalled, or not: its score by element, and what would have been done with it.

import { h, number, percent, signed } from "./dom";
import type { Recording } from "./data";
import type { Episode } from "./episode";
import type { Words } from "./words";

const MOST = 10;

export class Why {
  readonly element = h("section", { class: "panel why", "aria-live": "off" });

  constructor(private readonly recording: Recording, private readonly words: Words) {}

  move(episode: Episode, t: number, selected: number | null): void {
    const memory = episode.memory;
    this.element.hidden = !memory;
    if (!memory) return;
    const slot = selected !== null && memory.stayAt(t, selected) ? selected : memory.recalled[t];
    const stay = slot < 0 ? null : memory.stayAt(t, slot);
    if (!stay) {
      this.element.replaceChildren(h("h2", {}, "Why this one?"), h("p", { class: "note" }, "Nothing is stored yet: there is nothing to recall."));
      return;
    }
    const own = memory.recalled[t] === slot;
    const what = this.words.observation(episode.seen(stay.seen));
    const parts: (HTMLElement | null)[] = [h("h2", {}, own ? `Why did it recall step ${stay.seen}?` : `Why not step ${stay.seen}?`, " ", h("small", {}, what))];
    const shares = memory.shares(t, stay);
    if (shares) {
      const names = this.recording.episodes.find((one) => one === episode.document)?.memory?.key_names;
      const largest = Math.max(1e-12, ...shares.map(({ value }) => Math.abs(value)));
      const total = shares.reduce((sum, { value }) => sum + value, 0);
      const shown = shares.slice(0, MOST).filter(({ value }, k) => value !== 0 || k === 0);
      const rows = shown.map(({ element, value }) => {
        const fill = h("i", { class: value < 0 ? "fill below" : "fill" });
        fill.style.width = `${(100 * Math.abs(value)) / largest}%`;
        return h("div", { class: "bar", "data-element": element, "data-value": value }, h("span", { class: "name" }, this.words.keyElement(names, element)), h("span", { class: "track" }, fill), h("span", { class: "figure" }, signed(value, 2)));
      });
      const rest = shares.slice(shown.length).reduce((sum, { value }) => sum + value, 0);
      parts.push(h("p", { class: "note" }, `Its score q·S/τ by element, the largest first. Score ${number(total, 2)}, ${percent(memory.probabilityAt(t, slot))} of the query.`));
      parts.push(h("div", { class: "bars contributions" }, ...rows));
      if (rest) parts.push(h("p", { class: "note" }, `the ${shares.length - shown.length} others together: ${signed(rest, 2)}`));
    } else {
      parts.push(h("p", { class: "note" }, `${percent(memory.probabilityAt(t, slot))} of the query; its score by element is not in this recording.`));
    }
    parts.push(this.otherwise(episode, t, slot, own));
    this.element.replaceChildren(...parts.filter((part) => part !== null));
  }

  /** The policy with this one recalled, beside the policy there was. */
  private otherwise(episode: Episode, t: number, slot: number, own: boolean): HTMLElement | null {
    const policy = episode.memory!.policyIf(t, slot);
    const { names, kind } = this.recording.actions;
    if (!policy || kind === "gaussian") return null;
    const order = policy.map((_, k) => k).sort((a, b) => policy[b] - policy[a]).slice(0, 3);
    const text = order.map((k) => `${names[k] ?? k} ${percent(policy[k])}`).join(", ");
    const influence = episode.memory!.influenceAt(t);
    const moved = own && influence > 0.01 ? ` Another slot would have moved the policy by up to ${percent(influence)}.` : "";
    return h("p", { class: "otherwise" }, h("b", {}, own ? "With it: " : "Had it been recalled: "), `${text}.${moved}`);
  }
}
