// An episode, indexed for looking at: who was in which slot when, what was recalled, what came and went.

import { decode, type EpisodeDocument, type MemoryDocument, type Numbers } from "./data";

/** What is known of one stay of a stored observation in a slot. */
export interface Stay {
  index: number;
  slot: number;
  /** The step it was seen at, −1 where that was before the episode. */
  seen: number;
  from: number;
  until: number;
  logWeight: number;
  recalls: number;
  credit: number;
}

/** One element's share in a slot's score. */
export interface Share {
  element: number;
  value: number;
}

export class Memory {
  readonly slots: number;
  readonly stays: Stay[] = [];
  /** [step, slot]: the stay there, −1 where the slot is empty. */
  readonly occupant: Int32Array;
  readonly probability: ArrayLike<number>;
  readonly recalled: Int32Array;
  /** The stay that holds what was seen at a step, −1 where it was not stored. */
  readonly storedAs: Int32Array;
  /** The stay that ended when what was seen at a step came in, −1 where none did. */
  readonly evictedBy: Int32Array;
  readonly logWriteWeight: ArrayLike<number> | null;
  readonly writeChance: ArrayLike<number> | null;
  readonly keySize: number;
  private readonly logWeightNow: ArrayLike<number> | null;
  private readonly credits: Numbers | null;
  private readonly query: Numbers | null;
  private readonly temperature: ArrayLike<number> | null;
  private readonly keys: Numbers | null;
  private readonly changing: { elements: ArrayLike<number>; now: Numbers } | null;
  private readonly policies: Numbers | null;

  constructor(found: MemoryDocument, steps: number, private readonly observation: Numbers) {
    const optional = (part: MemoryDocument["query"]) => (part === undefined ? null : decode(part));
    this.slots = found.slots;
    this.probability = decode(found.probability).data;
    this.recalled = Int32Array.from(decode(found.recalled).data);
    this.logWriteWeight = optional(found.log_write_weight)?.data ?? null;
    this.writeChance = optional(found.write_chance)?.data ?? null;
    this.logWeightNow = optional(found.log_weight_now)?.data ?? null;
    this.credits = optional(found.credit);
    this.query = optional(found.query);
    this.temperature = optional(found.temperature)?.data ?? null;
    this.keys = optional(found.keys);
    this.policies = optional(found.policies);
    this.changing = found.keys_changing
      ? { elements: decode(found.keys_changing.elements).data, now: decode(found.keys_changing.now) }
      : null;
    this.keySize = this.keys ? this.keys.shape[1] : observation.shape[1];
    this.occupant = new Int32Array(steps * this.slots).fill(-1);
    this.storedAs = new Int32Array(steps).fill(-1);
    this.evictedBy = new Int32Array(steps).fill(-1);
    const parts = {
      slot: decode(found.stays.slot).data,
      seen: decode(found.stays.seen).data,
      from: decode(found.stays.from).data,
      until: decode(found.stays.until).data,
      logWeight: decode(found.stays.log_weight).data,
    };
    for (let index = 0; index < parts.slot.length; index++) {
      const [slot, seen, from, until] = [parts.slot[index], parts.seen[index], parts.from[index], parts.until[index]];
      this.stays.push({ index, slot, seen, from, until, logWeight: parts.logWeight[index], recalls: 0, credit: 0 });
      for (let t = from; t < until; t++) this.occupant[t * this.slots + slot] = index;
      if (seen >= 0 && seen < steps) {
        this.storedAs[seen] = index;
        if (from > 0) this.evictedBy[seen] = this.occupant[(from - 1) * this.slots + slot];
      }
    }
    for (let t = 0; t < steps; t++) {
      const stay = this.recalledStay(t);
      if (stay) stay.recalls += 1;
      for (let slot = 0; slot < this.slots; slot++) {
        const index = this.occupant[t * this.slots + slot];
        if (index >= 0) this.stays[index].credit += this.creditAt(t, slot) ?? 0;
      }
    }
  }

  stayAt(t: number, slot: number): Stay | null {
    const index = this.occupant[t * this.slots + slot];
    return index < 0 ? null : this.stays[index];
  }

  /** How many slots hold something. */
  held(t: number): number {
    let count = 0;
    for (let slot = 0; slot < this.slots; slot++) count += this.occupant[t * this.slots + slot] >= 0 ? 1 : 0;
    return count;
  }

  recalledStay(t: number): Stay | null {
    return this.recalled[t] < 0 ? null : this.stayAt(t, this.recalled[t]);
  }

  probabilityAt(t: number, slot: number): number {
    return this.probability[t * this.slots + slot];
  }

  /** The log of the weight that the stored observation would be given now. */
  logWeightAt(t: number, stay: Stay): number {
    return this.logWeightNow ? this.logWeightNow[t * this.slots + stay.slot] : stay.logWeight;
  }

  creditAt(t: number, slot: number): number | null {
    if (!this.credits) return null;
    if (this.credits.shape.length === 1) return slot === this.recalled[t] ? this.credits.data[t] : 0;
    return this.credits.data[t * this.slots + slot];
  }

  /** −Σ p log p of the query, in nats; null while there is nothing to recall. */
  entropyAt(t: number): number | null {
    let [sum, any] = [0, false];
    for (let slot = 0; slot < this.slots; slot++) {
      const p = this.probabilityAt(t, slot);
      if (p > 0) [sum, any] = [sum - p * Math.log(p), true];
    }
    return any ? sum : null;
  }

  /** The policy, had this slot been recalled. */
  policyIf(t: number, slot: number): number[] | null {
    if (!this.policies) return null;
    const outputs = this.policies.shape[2];
    const start = (t * this.slots + slot) * outputs;
    return Array.from({ length: outputs }, (_, k) => this.policies!.data[start + k]);
  }

  /** How far the policy would have moved, at most, had another slot been recalled: half the sum of differences. */
  influenceAt(t: number): number {
    const slot = this.recalled[t];
    const own = slot < 0 ? null : this.policyIf(t, slot);
    if (!own) return 0;
    let most = 0;
    for (let other = 0; other < this.slots; other++) {
      if (other === slot || !this.stayAt(t, other)) continue;
      const policy = this.policyIf(t, other)!;
      most = Math.max(most, policy.reduce((sum, p, k) => sum + Math.abs(p - own[k]), 0) / 2);
    }
    return most;
  }

  /** The score q·S/τ of a stored observation by element, the largest first; null where the query is not recorded. */
  shares(t: number, stay: Stay): Share[] | null {
    const found = this.products(t, stay);
    if (!found) return null;
    return Array.from(found, (value, element) => ({ element, value })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value) || a.element - b.element);
  }

  /** The score itself. */
  score(t: number, stay: Stay): number | null {
    return this.products(t, stay)?.reduce((sum, x) => sum + x, 0) ?? null;
  }

  /** q_k S_k / τ of every element. */
  private products(t: number, stay: Stay): Float64Array | null {
    if (!this.query) return null;
    const size = this.query.shape[1];
    const tau = this.temperature ? this.temperature[t] : 1;
    const key = new Float64Array(size);
    const source = this.keys ?? this.observation;
    const row = this.keys ? stay.index : stay.seen;
    for (let k = 0; k < size; k++) key[k] = source.data[row * source.shape[1] + k];
    this.changing?.now.shape.length === 3 && this.applyChanges(t, stay, key);
    for (let k = 0; k < size; k++) key[k] *= this.query.data[t * size + k] / tau;
    return key;
  }

  /** The key of a stay, or as much of it as an observation has: for what was seen before the episode. */
  keyOf(stay: Stay): Float64Array {
    const row = new Float64Array(this.observation.shape[1]);
    const keys = this.keys;
    if (keys) for (let k = 0; k < Math.min(row.length, keys.shape[1]); k++) row[k] = keys.data[stay.index * keys.shape[1] + k];
    return row;
  }

  private applyChanges(t: number, stay: Stay, key: Float64Array): void {
    const { elements, now } = this.changing!;
    for (let j = 0; j < elements.length; j++) {
      key[elements[j]] = now.data[(t * this.slots + stay.slot) * elements.length + j];
    }
  }
}

export class Episode {
  readonly steps: number;
  readonly observation: Numbers;
  readonly reward: ArrayLike<number>;
  readonly action: Numbers | null;
  readonly policy: Numbers | null;
  readonly value: ArrayLike<number> | null;
  readonly delta: ArrayLike<number> | null;
  readonly hidden: { name: string; values: Numbers }[];
  readonly memory: Memory | null;
  readonly total: number;

  constructor(readonly document: EpisodeDocument) {
    this.steps = document.steps;
    this.observation = decode(document.observation);
    this.reward = decode(document.reward).data;
    this.action = document.action === undefined ? null : decode(document.action);
    this.policy = document.policy === undefined ? null : decode(document.policy);
    this.value = document.value === undefined ? null : decode(document.value).data;
    this.delta = document.delta === undefined ? null : decode(document.delta).data;
    this.hidden = (document.hidden ?? []).map(({ name, values }) => ({ name, values: decode(values) }));
    this.memory = document.memory ? new Memory(document.memory, this.steps, this.observation) : null;
    this.total = document.return ?? Array.from(this.reward).reduce((a, b) => a + b, 0);
  }

  seen(t: number): Float64Array {
    const size = this.observation.shape[1];
    const row = new Float64Array(size);
    for (let k = 0; k < size; k++) row[k] = this.observation.data[t * size + k];
    return row;
  }

  /** What a slot holds during a stay. */
  held(stay: Stay): Float64Array {
    return stay.seen >= 0 ? this.seen(stay.seen) : this.memory!.keyOf(stay);
  }

  row(numbers: Numbers, t: number): number[] {
    const size = numbers.shape.length > 1 ? numbers.shape[1] : 1;
    return Array.from({ length: size }, (_, k) => numbers.data[t * size + k]);
  }

  /** The steps at which what was recalled made the most difference, the first of them first. */
  moments(most = 3): number[] {
    const rewards = Array.from(this.reward);
    const usual = rewards.length > 1 && rewards.every((r) => r === rewards[0]) ? rewards[0] : 0;
    const merit = rewards.map((reward, t) => {
      const paid = Math.abs(reward - usual);
      if (!this.memory) return paid;
      const stay = this.memory.recalledStay(t);
      if (!stay) return 0;
      const distance = Math.log1p(t - stay.seen);
      return (this.memory.influenceAt(t) + 0.1) * (0.2 + paid) * (0.5 + distance);
    });
    const order = merit.map((_, t) => t).sort((a, b) => merit[b] - merit[a] || b - a);
    const chosen: number[] = [];
    for (const t of order) {
      if (chosen.length >= most || merit[t] <= 0 || merit[t] < 0.5 * merit[order[0]]) break;
      if (chosen.every((other) => Math.abs(other - t) > 1)) chosen.push(t);
    }
    return chosen.length ? chosen : [this.steps - 1];
  }
}
