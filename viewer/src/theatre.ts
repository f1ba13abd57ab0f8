// One recording on stage: its parts, and the step and checkpoint they all show.

import { clamp, h, signed } from "./dom";
import type { Recording } from "./data";
import { Episode } from "./episode";
import { Learning } from "./learning";
import { Pictures } from "./picture";
import { Score } from "./score";
import { Slots } from "./slots";
import { Does, Sees } from "./stage";
import { Table } from "./table";
import { Why } from "./why";
import { Words } from "./words";

export class Theatre {
  readonly element: HTMLElement;
  readonly words: Words;
  private readonly episodes = new Map<number, Episode>();
  private readonly pictures: Pictures;
  private readonly sees: Sees;
  private readonly slots: Slots;
  private readonly does: Does;
  private readonly why: Why;
  private readonly score: Score;
  private readonly table: Table;
  private readonly learning: Learning;
  private readonly sentence = h("p", { class: "sentence", "aria-live": "polite" });
  private readonly result = h("span", { class: "result" });
  private readonly momentButtons = h("span", { class: "moments" });
  checkpoint: number;
  step = 0;

  constructor(readonly recording: Recording, private readonly go: (step: number) => void, private readonly switched: (theatre: Theatre) => void) {
    this.words = new Words(recording);
    this.checkpoint = recording.episodes.length - 1;
    let queued = false;
    this.pictures = new Pictures(recording, () => {
      if (queued) return;
      queued = true; // pictures arrive many at a time
      requestAnimationFrame(() => {
        queued = false;
        this.score.repaint();
        this.move(this.step);
      });
    });
    this.sees = new Sees(this.words, this.pictures);
    this.slots = new Slots(this.words, this.pictures, () => this.why.move(this.episode, this.step, this.slots.selected));
    this.does = new Does(recording);
    this.why = new Why(recording, this.words);
    this.score = new Score(recording, this.words, this.pictures, go);
    this.table = new Table(this.words, go);
    this.learning = new Learning(recording, (k) => this.at(k), (k) => this.choose(k));
    this.element = h(
      "article",
      { class: "theatre" },
      this.head(),
      this.sentence,
      this.score.element,
      h("div", { class: "stage" }, this.sees.element, this.slots.element, h("div", { class: "right" }, this.does.element, this.why.element)),
      this.learning.element,
      this.table.element,
    );
  }

  private head(): HTMLElement {
    const { environment, agent, title } = this.recording;
    const options = Object.entries(environment.options ?? {}).map(([name, value]) => `${name} ${String(value)}`);
    const facts = [agent?.name ? `${agent.name} agent` : "", environment.name, ...options, this.learning.status()].filter(Boolean);
    return h("header", { class: "head" }, h("div", {}, h("h1", {}, title), h("p", { class: "facts-line" }, facts.join(" · "))), h("div", { class: "controls" }, this.learning.slider, this.result, this.momentButtons));
  }

  at(k: number): Episode {
    let found = this.episodes.get(k);
    if (!found) {
      found = new Episode(this.recording.episodes[k]);
      this.episodes.set(k, found);
    }
    return found;
  }

  /** Whose agent had been trained for so many steps, or the last before it; null where that is not known. */
  trainedFor(steps: number | null | undefined): number | null {
    if (steps === null || steps === undefined) return null;
    const found = this.recording.episodes.findLastIndex((episode) => (episode.trained ?? Infinity) <= steps);
    return found < 0 ? null : found;
  }

  get episode(): Episode {
    return this.at(this.checkpoint);
  }

  get document(): Recording {
    return this.recording;
  }

  /** Who looks at the newest agent goes on doing so; of an earlier one, the place among the others may be another now. */
  follow(before: unknown): void {
    if (!(before instanceof Theatre)) return;
    const { episodes } = before.recording;
    if (before.checkpoint < episodes.length - 1) this.checkpoint = this.trainedFor(episodes[before.checkpoint].trained) ?? this.checkpoint;
    this.table.follow(before.table);
  }

  /** The moment to begin with. */
  get start(): number {
    return this.episode.moments(1)[0];
  }

  /** Draw everything; needs to be in the page. */
  open(): void {
    this.choose(this.checkpoint, false);
    this.learning.draw();
  }

  choose(k: number, tell = true): void {
    this.checkpoint = clamp(k, 0, this.recording.episodes.length - 1);
    const { episode } = this;
    const ended = episode.document.ended === "cut" ? "cut off" : (episode.document.ended ?? "");
    this.result.replaceChildren(`${episode.steps} steps, return `, h("b", {}, signed(episode.total)), ended && ended !== "terminated" ? ` (${ended})` : "");
    const moments = episode.moments();
    this.momentButtons.replaceChildren(...moments.map((t, k) => h("button", { type: "button", class: "moment", "data-step": t, click: () => this.go(t), title: "where what was recalled made the most difference" }, k ? `step ${t}` : `★ moment that mattered: step ${t}`)));
    this.slots.show(episode);
    this.score.show(episode);
    this.table.show(episode);
    this.learning.move(this.checkpoint);
    this.move(this.step);
    if (tell) this.switched(this);
  }

  move(step: number): void {
    this.step = clamp(step, 0, this.episode.steps - 1);
    const { episode } = this;
    this.sentence.replaceChildren(...this.words.step(episode, this.step).map(({ text, role }) => (role ? h("mark", { class: role }, text) : text)));
    this.score.move(this.step);
    this.sees.move(episode, this.step);
    this.slots.move(this.step);
    this.does.move(episode, this.step);
    this.why.move(episode, this.step, this.slots.selected);
  }

  resize(): void {
    this.score.layout();
    this.learning.draw();
    this.learning.move(this.checkpoint);
  }

  repaint(): void {
    this.slots.show(this.episode);
    this.score.repaint();
    this.move(this.step);
    this.learning.draw();
    this.learning.move(this.checkpoint);
  }
}
