// Learning: curves over training, with the moments at which an agent was kept, and a slider over these.

import { Charts, type ChartOptions } from "./charts";
import type { Recording } from "./data";
import { h, number, signed, thousands } from "./dom";
import type { Episode } from "./episode";

const CURVES: [column: string, title: string, colour: string][] = [
  ["return", "return", "gain"],
  ["length", "episode length", "see"],
  ["write_weight", "mean write weight", "slot-strong"],
  ["query_entropy", "query entropy", "recall"],
];

export class Learning {
  readonly slider: HTMLElement;
  readonly element = h("section", { class: "learning", "aria-label": "learning" });
  private readonly input: HTMLInputElement;
  private readonly output = h("output", { class: "trained" });
  private readonly charts = new Charts();
  private readonly watch: HTMLButtonElement;
  private current = 0;
  private timer = 0;

  constructor(private readonly recording: Recording, private readonly episodes: (k: number) => Episode, private readonly pick: (k: number) => void) {
    const last = recording.episodes.length - 1;
    this.input = h("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "checkpoint the episode is played from", input: () => pick(Number(this.input.value)) });
    this.watch = h("button", { type: "button", class: "watch", title: "the same episode, by the agent of then and then", click: () => this.toggle() }, "▸ watch it learn");
    this.slider = h("div", { class: "checkpoints" }, h("span", {}, "Agent after "), this.output, last > 0 && this.input, last > 0 && this.watch);
    this.element.append(h("h2", {}, "Learning"), this.charts.element);
    this.element.hidden = last === 0 && !recording.training;
  }

  /** Whose episode is shown. */
  move(k: number): void {
    this.current = k;
    this.input.value = String(k);
    const episode = this.recording.episodes[k];
    const trained = episode.trained === undefined ? "" : `${thousands(episode.trained)} steps`;
    this.input.setAttribute("aria-valuetext", trained);
    this.output.textContent = `${trained}: return ${signed(this.episodes(k).total)}`;
    this.charts.mark();
  }

  /** One checkpoint after another, from the first. */
  private toggle(): void {
    const stop = () => {
      clearInterval(this.timer);
      this.timer = 0;
      this.watch.textContent = "▸ watch it learn";
    };
    if (this.timer) return stop();
    this.watch.textContent = "stop";
    this.pick(0);
    this.timer = window.setInterval(() => {
      if (!this.input.isConnected || this.current >= this.recording.episodes.length - 1) stop();
      else this.pick(this.current + 1);
    }, 900);
  }

  /** Draw the curves; needs to be in the page. */
  draw(): void {
    if (this.element.hidden) return;
    const at = this.recording.episodes.map((episode) => episode.trained ?? 0);
    const marks = () => ({ at, current: this.current });
    const pick = (x: number) => {
      let best = 0;
      at.forEach((steps, k) => {
        if (Math.abs(steps - x) < Math.abs(at[best] - x)) best = k;
      });
      this.pick(best);
    };
    const columns = this.recording.training?.columns ?? {};
    const charts: ChartOptions[] = [];
    const add = (title: string, x: number[], values: (number | null)[], colour: string, points: boolean) => {
      if (x.length < 2 || values.every((value) => value === null)) return;
      charts.push({ title, x, xlabel: "steps", lines: [{ label: title, values, colour, points }], marks, pick, height: 170 });
    };
    for (const [column, title, colour] of CURVES) {
      if (columns.steps && columns[column]) add(title, columns.steps as number[], columns[column], colour, false);
    }
    if (at.length > 1) {
      if (!columns.query_entropy?.some((value) => value !== null)) add("query entropy of this episode", at, at.map((_, k) => this.entropy(k)), "recall", true);
      if (!columns.return) add("return of this episode", at, at.map((_, k) => this.episodes(k).total), "gain", true);
    }
    this.charts.draw(charts);
  }

  private entropy(k: number): number | null {
    const { memory, steps } = this.episodes(k);
    if (!memory) return null;
    const found = Array.from({ length: steps }, (_, t) => memory.entropyAt(t)).filter((x) => x !== null);
    return found.length ? found.reduce((a, b) => a + b, 0) / found.length : null;
  }

  /** For the head of the page. */
  status(): string {
    const training = this.recording.training;
    if (!training?.status) return "";
    const done = training.goal && training.steps !== undefined ? `, ${number((100 * training.steps) / training.goal, 0)} % of ${thousands(training.goal)} steps` : "";
    return `${training.status}${training.status === "running" ? done : ""}`;
  }
}
