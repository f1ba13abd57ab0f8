// The score: an episode over time on one canvas. From the top: arcs from now to what could be recalled, what was
// seen, the memory slot by slot with the query's probability as shade, what was done, reward and δ.

import { clamp, h } from "./dom";
import { mix, paint } from "./colours";
import type { Recording } from "./data";
import type { Episode } from "./episode";
import type { Pictures } from "./picture";
import { place, type Words } from "./words";

const NARROWEST = 9; // CSS pixels of a step; below, a window of the episode is shown and an overview of all of it
const WIDE = 2200; // CSS pixels of a window from which on everything is larger, as in style.css

interface Row {
  kind: "seen" | "slot" | "hidden" | "done" | "reward" | "delta" | "frames" | "unused";
  index: number;
  /** Which vector of the hidden state. */
  part: number;
  top: number;
  height: number;
  label: string;
}

export class Score {
  readonly element: HTMLElement;
  // What moves is drawn over what stays, on a canvas of its own: copying pictures costs more than drawing does.
  private readonly base = h("canvas", { class: "score-base", "aria-hidden": "true" });
  private readonly canvas = h("canvas", { class: "score-canvas over", "aria-hidden": "true" });
  private readonly overviewBase = h("canvas", { class: "score-base", "aria-hidden": "true" });
  private readonly overview = h("canvas", { class: "score-overview over", "aria-hidden": "true" });
  private readonly overviewPlace = h("div", { class: "layers" }, this.overviewBase, this.overview);
  private readonly tip = h("div", { class: "tip", role: "status", hidden: true });
  private rows: Row[] = [];
  private height = 0;
  private largestHidden: number[] = [];
  private baseKey = "";
  private overviewDrawn = false;
  private episode!: Episode;
  private step = 0;
  private width = 0;
  private gutter = 90;
  /** How much larger than on a usual screen everything is, and the room for arcs. */
  private scale = 1;
  private arcs = 56;
  hovered: number | null = null;

  constructor(
    private readonly recording: Recording,
    private readonly words: Words,
    private readonly pictures: Pictures,
    private readonly go: (step: number) => void,
  ) {
    this.element = h("div", { class: "score" }, this.overviewPlace, h("div", { class: "layers" }, this.base, this.canvas), this.tip);
    const follow = (canvas: HTMLCanvasElement, at: (x: number) => number) => {
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        this.go(at(event.offsetX));
      });
      canvas.addEventListener("pointermove", (event) => {
        if (event.buttons & 1) this.go(at(event.offsetX));
        this.hover(at(event.offsetX), event.offsetX, canvas);
      });
      canvas.addEventListener("pointerleave", () => this.hover(null, 0, canvas));
    };
    follow(this.canvas, (x) => this.stepAt(x));
    follow(this.overview, (x) => clamp(Math.floor((x / Math.max(1, this.width)) * this.episode.steps), 0, this.episode.steps - 1));
  }

  show(episode: Episode): void {
    this.episode = episode;
    this.layout();
  }

  /** The rows there are, and how high each is. */
  layout(): void {
    this.width = Math.max(200, this.element.clientWidth || 800);
    this.scale = window.innerWidth >= WIDE ? 1.4 : 1;
    this.arcs = Math.round(56 * this.scale);
    this.gutter = this.width < 520 ? 84 : Math.round(104 * this.scale);
    const { episode } = this;
    this.rows = [];
    let top = episode.memory ? this.arcs : 6;
    const add = (kind: Row["kind"], index: number, usual: number, label: string, part = 0) => {
      const height = usual * this.scale;
      this.rows.push({ kind, index, part, top, height, label });
      top += height;
    };
    const names = this.recording.observation.names;
    if (this.pictures.preferred(episode)) add("frames", 0, 44, "sees");
    else names.slice(0, 16).forEach((name, k) => add("seen", k, names.length > 8 ? 11 : 15, name));
    top += 10;
    if (episode.memory) {
      const used = [...new Set(episode.memory.stays.map(({ slot }) => slot))].sort((a, b) => a - b);
      const height = used.length <= 8 ? 20 : Math.max(3, Math.min(14, 224 / used.length));
      for (const slot of used) add("slot", slot, height, `slot ${slot + 1}`);
      const empty = episode.memory.slots - used.length;
      if (empty) add("unused", 0, 16, `${empty} more empty`);
      top += 10;
    }
    episode.hidden.forEach(({ name, values }, part) => {
      const units = Math.min(values.shape[1], 64);
      const height = Math.max(3, Math.min(12, 140 / units));
      for (let k = 0; k < units; k++) add("hidden", k, height, k === 0 ? name : "", part);
      top += 10;
    });
    this.largestHidden = episode.hidden.map(({ values }) => {
      let largest = 1e-9;
      for (let k = 0; k < values.data.length; k++) largest = Math.max(largest, Math.abs(values.data[k]));
      return largest;
    });
    if (episode.action) add("done", 0, 18, "does");
    add("reward", 0, 26, "reward");
    if (episode.delta) add("delta", 0, 26, "δ");
    this.height = top + 18 * this.scale;
    this.repaint();
  }

  get windowed(): boolean {
    return (this.width - this.gutter) / this.episode.steps < NARROWEST;
  }

  /** The first step shown, and how many. */
  private span(): [number, number] {
    const { steps } = this.episode;
    if (!this.windowed) return [0, steps];
    const shown = Math.min(steps, Math.floor((this.width - this.gutter) / NARROWEST));
    // The window moves by an eighth of itself at a time: within it only the mark of the step is drawn anew.
    const by = Math.max(1, Math.floor(shown / 8));
    return [clamp(by * Math.floor((this.step - Math.floor(shown * 0.7)) / by), 0, steps - shown), shown];
  }

  private stepAt(x: number): number {
    const [first, shown] = this.span();
    return clamp(first + Math.floor(((x - this.gutter) / (this.width - this.gutter)) * shown), 0, this.episode.steps - 1);
  }

  private hover(step: number | null, x: number, over: HTMLElement): void {
    this.hovered = step;
    this.tip.hidden = step === null;
    if (step === null) return;
    const lines = [`Step ${step}: ${this.words.observation(this.episode.seen(step))}`, ...this.words.fate(this.episode, step)];
    this.tip.replaceChildren(...lines.map((line) => h("p", {}, line)));
    this.tip.style.left = `${clamp(x - 120, 4, Math.max(4, this.width - 264))}px`;
    this.tip.style.top = `${over.parentElement!.offsetTop + over.offsetHeight + 4}px`;
  }

  move(step: number): void {
    this.step = step;
    this.draw();
  }

  repaint(): void {
    this.baseKey = "";
    this.overviewDrawn = false;
    this.draw();
  }

  private sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
    const ratio = window.devicePixelRatio || 1;
    const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== hgt) {
      canvas.width = w;
      canvas.height = hgt;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  private draw(): void {
    if (!this.episode) return;
    const [first, shown] = this.span();
    const key = `${first} ${shown} ${this.width} ${this.height}`;
    if (key !== this.baseKey) {
      const context = this.sized(this.base, this.width, this.height);
      context.clearRect(0, 0, this.width, this.height);
      this.drawRows(context, first, shown);
      this.baseKey = key;
    }
    const context = this.sized(this.canvas, this.width, this.height);
    context.clearRect(0, 0, this.width, this.height);
    this.drawNow(context, first, shown);
    this.overviewPlace.hidden = !this.windowed;
    if (this.windowed) this.drawOverview(first, shown);
  }

  private drawRows(context: CanvasRenderingContext2D, first: number, shown: number): void {
    const { episode } = this;
    const cell = (this.width - this.gutter) / shown;
    const x = (t: number) => this.gutter + (t - first) * cell;
    const gap = cell > 6 ? 1 : 0;
    context.font = `${Math.round(11 * this.scale)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const largestReward = Math.max(1e-9, ...Array.from(episode.reward.length > 4000 ? [1] : episode.reward, Math.abs));
    let largestDelta = 1e-9;
    if (episode.delta) for (let t = first; t < first + shown; t++) largestDelta = Math.max(largestDelta, Math.abs(episode.delta[t]));
    const size = episode.observation.shape[1];
    for (const row of this.rows) {
      const middle = row.top + row.height / 2;
      if (row.label && (row.kind === "hidden" || row.height >= 10 || row.index % Math.ceil(11 / row.height) === 0)) {
        context.fillStyle = paint("quiet");
        context.textAlign = "right";
        context.fillText(fitted(context, row.label, this.gutter - 10), this.gutter - 6, middle);
      }
      if (row.kind === "slot") this.drawSlot(context, row, first, shown, cell, x);
      if (row.kind === "seen" || row.kind === "hidden") {
        context.fillStyle = paint("cell-off");
        context.fillRect(x(first), row.top, shown * cell - gap, row.height - (row.height > 4 ? 1 : 0));
      }
      if (row.kind === "done") {
        context.fillStyle = paint("do", 0.18);
        context.fillRect(x(first), row.top, shown * cell - gap, row.height - 2);
      }
      const quiet = row.kind === "slot" || row.kind === "frames" || row.kind === "unused" || (row.kind === "done" && cell < 14);
      for (let t = first; t < first + shown && !quiet; t++) {
        if (row.kind === "seen") {
          const value = episode.observation.data[t * size + row.index];
          if (value === 0) continue;
          context.fillStyle = mix("cell-off", value < 0 ? "cell-below" : "cell-on", Math.min(1, Math.abs(value)));
          context.fillRect(x(t), row.top, cell - gap, row.height - 1);
        } else if (row.kind === "hidden") {
          const { values } = episode.hidden[row.part];
          const value = values.data[t * values.shape[1] + row.index];
          context.fillStyle = mix("cell-off", value < 0 ? "cell-below" : "recall", Math.abs(value) / this.largestHidden[row.part]);
          context.fillRect(x(t), row.top, cell - gap, row.height - (row.height > 4 ? 1 : 0));
        } else if (row.kind === "done") {
          const name = this.words.actions(episode, t).map((action) => this.words.short(action.name)).join(", ");
          context.fillStyle = paint("do-text");
          context.textAlign = "center";
          context.fillText(fitted(context, name, cell - 3), x(t) + cell / 2, middle);
        } else if (row.kind === "reward" || row.kind === "delta") {
          const value = row.kind === "reward" ? episode.reward[t] : episode.delta![t];
          const length = ((row.height - 6) / 2) * Math.min(1, Math.abs(value) / (row.kind === "reward" ? largestReward : largestDelta));
          context.fillStyle = paint(value < 0 ? "loss" : "gain");
          if (value) context.fillRect(x(t) + cell * 0.2, value > 0 ? middle - length : middle, Math.max(1, cell * 0.6), Math.max(1, length));
        }
      }
      if (row.kind === "reward" || row.kind === "delta") {
        context.fillStyle = paint("line");
        context.fillRect(this.gutter, middle, this.width - this.gutter, 1);
      }
      if (row.kind === "frames") this.drawFrames(context, row, first, shown, cell, x);
    }
    this.drawLabels(context, first, shown, cell, x);
    context.fillStyle = paint("quiet");
    context.textAlign = "center";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n * cell >= 34) ?? 1000;
    for (let t = Math.ceil(first / every) * every; t < first + shown; t += every) context.fillText(String(t), x(t) + cell / 2, this.height - 8 * this.scale);
  }

  /** Stretches of the same stay and shade are one rectangle. */
  private drawSlot(context: CanvasRenderingContext2D, row: Row, first: number, shown: number, cell: number, x: (t: number) => number): void {
    const memory = this.episode.memory!;
    const inner = row.height - (row.height > 6 ? 3 : 1);
    const end = first + shown;
    let t = first;
    while (t < end) {
      const stay = memory.occupant[t * memory.slots + row.index];
      const fill = stay < 0 ? "" : mix("slot", "recall", memory.probabilityAt(t, row.index));
      let until = t + 1;
      while (until < end && memory.occupant[until * memory.slots + row.index] === stay && (stay < 0 || mix("slot", "recall", memory.probabilityAt(until, row.index)) === fill)) until++;
      if (stay >= 0) {
        const begins = cell > 4 && t === memory.stays[stay].from ? 2 : 0;
        context.fillStyle = fill;
        context.fillRect(x(t) + begins, row.top + 1, (until - t) * cell - begins + 0.3, inner);
      }
      t = until;
    }
    if (row.height < 3) return;
    context.fillStyle = paint("recall-mark");
    const thick = row.height >= 12 ? 3 : 1;
    for (let t = first; t < end; t++) {
      if (memory.recalled[t] === row.index) context.fillRect(x(t) + cell * 0.15, row.top + inner + 1 - thick, Math.max(1, cell * 0.7), thick);
    }
  }

  private drawLabels(context: CanvasRenderingContext2D, first: number, shown: number, cell: number, x: (t: number) => number): void {
    const memory = this.episode.memory;
    if (!memory) return;
    context.textAlign = "left";
    for (const row of this.rows) {
      if (row.kind !== "slot" || row.height < 12) continue;
      let last = -1;
      for (let t = first; t < first + shown; t++) {
        const stay = memory.stayAt(t, row.index);
        if (!stay || stay.index === last) continue;
        last = stay.index;
        const room = (Math.min(stay.until, first + shown) - t) * cell - 12;
        if (room < 24) continue;
        const text = fitted(context, `${place(stay)}: ${this.words.observation(this.episode.held(stay))}`, room);
        // Read over any shade: dark on a light rim, or the other way round.
        context.lineWidth = 3;
        context.lineJoin = "round";
        context.strokeStyle = paint("panel", 0.85);
        context.strokeText(text, x(t) + 6, row.top + row.height / 2 - 1);
        context.fillStyle = paint("text");
        context.fillText(text, x(t) + 6, row.top + row.height / 2 - 1);
      }
    }
  }

  private drawFrames(context: CanvasRenderingContext2D, row: Row, first: number, shown: number, cell: number, x: (t: number) => number): void {
    const every = Math.max(1, Math.ceil(44 / cell));
    for (let t = first; t < first + shown; t += every) {
      this.pictures.drawStep(context, this.episode, t, x(t) + 1, row.top, Math.max(cell * every - 2, 8), row.height - 2);
    }
  }

  /** The step that is looked at, and the arcs from it to what the memory holds. */
  private drawNow(context: CanvasRenderingContext2D, first: number, shown: number): void {
    const { episode, step } = this;
    const cell = (this.width - this.gutter) / shown;
    const centre = (t: number) => this.gutter + (t - first + 0.5) * cell;
    context.strokeStyle = paint("now");
    context.lineWidth = 2;
    const top = episode.memory ? this.arcs - 2 : 2;
    context.strokeRect(centre(step) - cell / 2, top, Math.max(cell - 1, 3), this.height - top - 17 * this.scale);
    const memory = episode.memory;
    if (!memory) return;
    context.save();
    context.beginPath();
    context.rect(this.gutter - 40, 0, this.width, this.arcs);
    context.clip();
    for (let slot = 0; slot < memory.slots; slot++) {
      const stay = memory.stayAt(step, slot);
      const share = stay ? memory.probabilityAt(step, slot) : 0;
      const own = memory.recalled[step] === slot;
      if (!stay || (share < 0.01 && !own)) continue;
      const [from, to] = [centre(step), Math.max(centre(stay.seen), this.gutter - 30)];
      const rise = Math.min(this.arcs - 12, 14 + 0.16 * Math.abs(from - to));
      context.strokeStyle = paint("recall", own ? 1 : 0.25 + 0.5 * share);
      context.lineWidth = own ? 3 : 1 + 3 * share;
      context.setLineDash(own ? [] : [4, 3]);
      context.beginPath();
      context.moveTo(from, this.arcs - 3);
      context.bezierCurveTo(from, this.arcs - 3 - rise * 1.3, to, this.arcs - 3 - rise * 1.3, to, this.arcs - 3);
      context.stroke();
      if (own) this.arrow(context, to, this.arcs - 2);
    }
    context.restore();
    const recalled = memory.recalledStay(step);
    const seen = this.rows.filter((row) => row.kind === "seen" || row.kind === "frames");
    if (recalled && recalled.seen >= first && seen.length) {
      context.strokeStyle = paint("recall");
      context.lineWidth = 2.5;
      const last = seen[seen.length - 1];
      context.strokeRect(centre(recalled.seen) - cell / 2 + 1, this.arcs - 1, Math.max(cell - 3, 3), last.top + last.height - this.arcs + 1);
    }
  }

  private arrow(context: CanvasRenderingContext2D, x: number, y: number): void {
    context.setLineDash([]);
    context.fillStyle = paint("recall");
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 5, y - 9);
    context.lineTo(x + 5, y - 9);
    context.fill();
  }

  /** All of a long episode in a few pixels: how far back was recalled, rewards, and the window that is shown. */
  private drawOverview(first: number, shown: number): void {
    const height = 54;
    const { episode } = this;
    const scale = this.width / episode.steps;
    if (!this.overviewDrawn) {
      this.overviewDrawn = true;
      const context = this.sized(this.overviewBase, this.width, height);
      context.clearRect(0, 0, this.width, height);
      context.fillStyle = paint("slot");
      context.fillRect(0, 0, this.width, height);
      for (let t = 0; t < episode.steps; t++) {
        const stay = episode.memory?.recalledStay(t);
        if (stay) {
          // Where in the episode the recalled moment lies: on the diagonal it is the latest, below it the past.
          context.fillStyle = paint("recall", 0.6);
          context.fillRect(t * scale, height - 10 - ((height - 14) * stay.seen) / episode.steps, Math.max(1, scale), 2);
        }
        const reward = episode.reward[t];
        if (reward) {
          context.fillStyle = paint(reward < 0 ? "loss" : "gain");
          context.fillRect(t * scale, height - 6, Math.max(1, scale), 6);
        }
      }
    }
    const context = this.sized(this.overview, this.width, height);
    context.clearRect(0, 0, this.width, height);
    context.fillStyle = paint("now", 0.15);
    context.fillRect(first * scale, 0, Math.max(3, shown * scale), height);
    context.fillStyle = paint("now");
    context.fillRect(this.step * scale, 0, 2, height);
  }
}

const widths = new Map<string, string>();

function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  const key = `${text}|${Math.round(room)}`;
  let found = widths.get(key);
  if (found === undefined) {
    found = text;
    while (found.length > 1 && context.measureText(found).width > room) found = `${found.slice(0, -2)}…`;
    if (found.length <= 1 && text.length > 1) found = room > 6 ? text[0] : "";
    if (widths.size > 20_000) widths.clear();
    widths.set(key, found);
  }
  return found;
}
