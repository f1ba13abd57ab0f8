// Play, pause, scrub and the keys: one for all recordings of a page.

import { clamp, h, svg } from "./dom";

const SHAPES = {
  play: "M3 1.5v13l11-6.5z",
  pause: "M3 1.5h3.5v13H3zM9.5 1.5H13v13H9.5z",
  first: "M2 2h2v12H2zM14 2v12L5 8z",
  back: "M12 2v12L3 8z",
  forward: "M4 2v12l9-6z",
  last: "M12 2h2v12h-2zM2 2v12l9-6z",
};

const icon = (name: keyof typeof SHAPES) => svg("svg", { viewBox: "0 0 16 16", width: 13, height: 13, "aria-hidden": "true" }, svg("path", { d: SHAPES[name], fill: "currentColor" }));

const SPEEDS = [1, 2, 4, 8, 16, 32];

export class Transport {
  readonly element: HTMLElement;
  private readonly range: HTMLInputElement;
  private readonly button: HTMLButtonElement;
  private readonly place = h("output", { class: "place" });
  private readonly speed: HTMLSelectElement;
  private timer = 0;
  private last = 0;
  step = 0;
  steps = 1;

  constructor(private readonly moved: (step: number) => void) {
    this.range = h("input", { type: "range", min: 0, max: 0, step: 1, class: "scrub", "aria-label": "step of the episode", input: () => this.go(Number(this.range.value)) });
    this.button = h("button", { type: "button", class: "play", "aria-label": "play", click: () => this.toggle() }, icon("play"));
    this.speed = h("select", { "aria-label": "steps per second" }, ...SPEEDS.map((n) => h("option", { value: n, selected: n === 4 }, `${n}/s`)));
    const jump = (name: keyof typeof SHAPES, label: string, to: () => number) => h("button", { type: "button", "aria-label": label, title: label, click: () => this.go(to()) }, icon(name));
    this.element = h(
      "div",
      { class: "transport", role: "group", "aria-label": "playback" },
      this.button,
      jump("first", "first step", () => 0),
      jump("back", "step back", () => this.step - 1),
      jump("forward", "step forward", () => this.step + 1),
      jump("last", "last step", () => this.steps - 1),
      this.range,
      this.place,
      this.speed,
    );
    document.addEventListener("keydown", (event) => this.key(event));
  }

  get playing(): boolean {
    return this.timer !== 0;
  }

  extent(steps: number): void {
    this.steps = steps;
    this.range.max = String(steps - 1);
    this.go(this.step);
  }

  go(step: number): void {
    this.step = clamp(step, 0, this.steps - 1);
    this.range.value = String(this.step);
    this.range.setAttribute("aria-valuetext", `step ${this.step} of ${this.steps - 1}`);
    this.place.textContent = `step ${this.step} of ${this.steps - 1}`;
    this.moved(this.step);
  }

  toggle(): void {
    if (this.playing) return this.pause();
    if (this.step >= this.steps - 1) this.go(0);
    this.last = performance.now();
    this.label(true);
    const tick = (now: number) => {
      const due = Math.floor(((now - this.last) / 1000) * Number(this.speed.value));
      if (due > 0) {
        this.last = now;
        this.go(this.step + due);
      }
      if (this.step >= this.steps - 1) this.pause();
      else this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
  }

  pause(): void {
    cancelAnimationFrame(this.timer);
    this.timer = 0;
    this.label(false);
  }

  private label(playing: boolean): void {
    this.button.replaceChildren(icon(playing ? "pause" : "play"));
    this.button.setAttribute("aria-label", playing ? "pause" : "play");
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    const by = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowRight") this.go(this.step + by);
    else if (event.key === "ArrowLeft") this.go(this.step - by);
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(this.steps - 1);
    else if (event.key === " " && target.tagName !== "BUTTON" && target.tagName !== "SUMMARY" && target.tagName !== "A") this.toggle();
    else return;
    event.preventDefault();
  }
}
