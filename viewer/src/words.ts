// Observations, actions and whole steps in words.

import { fromLog, number, percent, signed } from "./dom";
import { decode, type Recording } from "./data";
import type { Episode, Stay } from "./episode";

/** Parts of a sentence; `role` says what it speaks of, which is its colour. */
export interface Part {
  text: string;
  role?: "sees" | "recalls" | "does" | "gets";
}

/** The words that all names begin with, the space after them included. */
function shared(names: string[]): string {
  if (names.length < 2) return "";
  let words = names[0].split(" ").slice(0, -1);
  for (const name of names) {
    const own = name.split(" ").slice(0, -1);
    const end = words.findIndex((word, k) => own[k] !== word);
    if (end >= 0) words = words.slice(0, end);
  }
  return words.length ? `${words.join(" ")} ` : "";
}

/** Where a stored observation comes from. */
export const place = (stay: Stay) => (stay.seen < 0 ? "a step before this episode" : `step ${stay.seen}`);

export const times = (n: number) => `${n} time${n === 1 ? "" : "s"}`;

export class Words {
  private readonly common: string;

  constructor(private readonly recording: Recording) {
    this.common = shared(recording.actions.names);
  }

  /** An action's name without what all of them begin with. */
  short(name: string): string {
    return name.startsWith(this.common) ? name.slice(this.common.length) : name;
  }

  element(k: number): string {
    return this.recording.observation.names[k] ?? `element ${k}`;
  }

  keyElement(names: string[] | undefined, k: number): string {
    if (names && names[k] !== undefined) return names[k];
    return k < this.recording.observation.names.length ? this.element(k) : `element ${k}`;
  }

  private readonly counts = new Map<string, number>();

  /** How often something is on whose name begins with the same word, in the last episode. */
  rarity(k: number): number {
    if (!this.counts.size) {
      for (const episode of this.recording.episodes.slice(-1)) {
        const { data, shape } = decode(episode.observation);
        for (let at = 0; at < data.length; at++) {
          const kind = this.element(at % shape[1]).split(" ")[0];
          this.counts.set(kind, (this.counts.get(kind) ?? 0) + (data[at] ? 1 : 0));
        }
      }
    }
    return this.counts.get(this.element(k).split(" ")[0]) ?? 0;
  }

  get isPicture(): boolean {
    return Boolean(this.recording.observation.shape);
  }

  /** An observation in few words: what is on where all is on or off, else its largest elements. */
  observation(values: ArrayLike<number>): string {
    const list = Array.from(values);
    if (list.every((x) => x === 0)) return "nothing (all zeros)";
    if (this.isPicture) return "a view";
    if (list.every((x) => x === 0 || x === 1)) {
      const on = list.flatMap((x, k) => (x ? [k] : []));
      if (on.length <= 4) return on.map((k) => this.element(k)).join(" · ");
      // What is seldom on tells more than what always is: walls are everywhere, a key is not.
      on.sort((a, b) => this.rarity(a) - this.rarity(b) || a - b);
      return `${on.slice(0, 2).map((k) => this.element(k)).join(" · ")} and ${on.length - 2} more`;
    }
    const order = list.map((_, k) => k).sort((a, b) => Math.abs(list[b]) - Math.abs(list[a]) || a - b);
    // The name of one choice among several, "sign = 2", says all when it is the one.
    const said = (k: number) => (list[k] === 1 && this.element(k).includes(" = ") ? this.element(k) : `${this.element(k)} ${number(list[k], 2)}`);
    return order.slice(0, 2).sort((a, b) => a - b).map(said).join(" · ");
  }

  /** What was done, and the policy's probability of it; a mean and its deviation for a continuous action. */
  actions(episode: Episode, t: number): { name: string; probability: number | null }[] {
    const { names, kind, sizes } = this.recording.actions;
    if (!episode.action) return [];
    const taken = episode.row(episode.action, t);
    const policy = episode.policy ? episode.row(episode.policy, t) : null;
    if (kind === "gaussian") return taken.map((x, k) => ({ name: `${names[k] ?? k}: ${number(x)}`, probability: null }));
    let start = 0;
    return taken.map((x, k) => {
      const chosen = { name: names[start + x] ?? String(x), probability: policy ? policy[start + x] : null };
      start += sizes?.[k] ?? names.length;
      return chosen;
    });
  }

  /** A step as sentences. */
  step(episode: Episode, t: number): Part[] {
    const parts: Part[] = [{ text: `At step ${t} it sees ` }, { text: this.observation(episode.seen(t)), role: "sees" }, { text: ". " }];
    const memory = episode.memory;
    if (memory) {
      const stay = memory.recalledStay(t);
      if (stay) {
        const age = t - stay.seen;
        const ago = stay.seen < 0 ? "" : age === 0 ? ", seen just now" : `, from ${age} step${age === 1 ? "" : "s"} ago`;
        parts.push({ text: "It recalls " });
        parts.push({ text: `${place(stay)}, ${this.observation(episode.held(stay))}`, role: "recalls" });
        parts.push({ text: `${ago} (${percent(memory.probabilityAt(t, stay.slot))} of the query). ` });
      } else {
        parts.push({ text: memory.occupant.subarray(t * memory.slots, (t + 1) * memory.slots).some((x) => x >= 0) ? "It recalls nothing. " : "Its memory is empty. " });
      }
    }
    const actions = this.actions(episode, t);
    if (actions.length) {
      parts.push({ text: "It does " });
      actions.forEach(({ name, probability }, k) => {
        if (k) parts.push({ text: ", " });
        parts.push({ text: name, role: "does" });
        if (probability !== null) parts.push({ text: ` (${percent(probability)})` });
      });
      const reward = episode.reward[t];
      parts.push({ text: reward === 0 ? " and gets nothing." : " and gets " });
      if (reward !== 0) parts.push({ text: signed(reward), role: "gets" }, { text: "." });
    }
    return parts;
  }

  /** What became of the observation of a step. */
  fate(episode: Episode, t: number): string[] {
    const memory = episode.memory;
    if (!memory) return [];
    const lines: string[] = [];
    const weight = memory.logWriteWeight ? `write weight ${fromLog(memory.logWriteWeight[t])}` : "";
    const chance = memory.writeChance ? `chance to be kept ${percent(memory.writeChance[t])}` : "";
    const stay = memory.storedAs[t] < 0 ? null : memory.stays[memory.storedAs[t]];
    if (!stay) {
      const last = t === episode.steps - 1;
      lines.push(last ? "The episode ends here: nothing more is stored." : `Not stored. ${[weight, chance].filter(Boolean).join(", ")}`);
      return lines;
    }
    lines.push(`Stored in slot ${stay.slot + 1} ${this.until(episode, stay)}. ${[weight, chance].filter(Boolean).join(", ")}`);
    lines.push(`Recalled ${times(stay.recalls)}; credit ${signed(stay.credit)} in all.`);
    return lines;
  }

  /** How long a stored observation can be recalled. */
  until(episode: Episode, stay: Stay): string {
    return stay.until >= episode.steps ? "to the end" : `until step ${stay.until - 1}`;
  }
}
