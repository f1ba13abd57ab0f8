// The page: reads what it carries (or asks its server), and puts it on stage.

import * as address from "./address";
import { BoardPage } from "./board";
import { forget } from "./colours";
import { carried, unpack, type Page, type Payload, type Recording } from "./data";
import { h } from "./dom";
import { FigurePage } from "./figure";
import { Theatre } from "./theatre";
import { Transport } from "./transport";

interface Part {
  element: HTMLElement;
  document: Page;
  /** Be as whoever looks has set the part that this one takes the place of. */
  follow(before: Part): void;
  open(): void;
  resize(): void;
  repaint(): void;
}

class Show {
  private parts: Part[] = [];
  private theatres: Theatre[] = [];
  private readonly transport: Transport;
  private readonly stage = h("main", { class: "parts" });
  private readonly help = h("p", { class: "help" });
  private moving = false;
  private noting = 0;

  constructor(private readonly root: HTMLElement) {
    this.transport = new Transport((step) => this.moved(step));
    const theme = h("button", { type: "button", class: "theme", "aria-label": "light or dark", title: "light or dark", click: () => this.turn() }, "◐");
    this.help.append("← → step, shift for ten, space to play, Home and End; hover or tap a slot to see why; click the score to go there.");
    this.root.replaceChildren(h("div", { class: "bar-top" }, this.transport.element, theme), this.stage, this.help);
    let [pending, width] = [0, 0];
    new ResizeObserver(() => {
      if (this.stage.clientWidth === width) return; // what is shown changes the height at every step
      width = this.stage.clientWidth;
      cancelAnimationFrame(pending);
      pending = requestAnimationFrame(() => this.parts.forEach((part) => part.resize()));
    }).observe(this.stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    window.addEventListener("hashchange", () => this.follow());
  }

  private repaint(): void {
    forget();
    this.parts.forEach((part) => part.repaint());
  }

  private turn(): void {
    const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark";
    this.repaint();
  }

  show(documents: Page[], keep = false): void {
    const before = keep ? this.parts : [];
    const top = window.scrollY;
    this.parts = documents.map((found, k) => (before[k] && JSON.stringify(before[k].document) === JSON.stringify(found) ? before[k] : this.part(found)));
    this.theatres = this.parts.filter((part) => part instanceof Theatre);
    const fresh = this.parts.filter((part, k) => part !== before[k]);
    const settle = this.parts.map((part, k) => (part === before[k] || !before[k] ? () => {} : taken(before[k], part)));
    if (!before.length) this.stage.replaceChildren(...this.parts.map((part) => part.element));
    this.stage.classList.toggle("several", this.parts.length > 1);
    this.transport.element.hidden = this.help.hidden = !this.theatres.length;
    document.title = documents.map((found) => found.title).join(", ");
    const place = address.read(location.hash);
    if (!keep && place.checkpoint !== null) this.theatres.forEach((theatre) => (theatre.checkpoint = Math.min(place.checkpoint!, theatre.recording.episodes.length - 1)));
    const step = keep ? this.transport.step : (place.step ?? this.theatres[0]?.start ?? 0);
    this.transport.steps = this.longest();
    fresh.forEach((part) => part.open());
    this.moving = true; // the address stays as it is until somebody moves
    this.transport.step = step;
    this.transport.extent(this.longest());
    this.moving = false;
    settle.forEach((end) => end());
    if (keep) window.scrollTo({ top, behavior: "instant" });
  }

  private part(found: Page): Part {
    if (found.format === "recollect figure") return new FigurePage(found);
    if (found.format === "recollect board") return new BoardPage(found);
    return new Theatre(found as Recording, (step) => this.transport.go(step), () => {
      this.transport.extent(this.longest());
    });
  }

  private longest(): number {
    return Math.max(1, ...this.theatres.map((theatre) => theatre.episode.steps));
  }

  private moved(step: number): void {
    this.theatres.forEach((theatre) => theatre.move(step));
    if (this.moving || !this.theatres.length) return;
    clearTimeout(this.noting);
    this.noting = window.setTimeout(() => this.note(step), 120); // browsers let an address change only so often
  }

  private note(step: number): void {
    const [first] = this.theatres;
    const last = first.checkpoint === first.recording.episodes.length - 1;
    try {
      history.replaceState(null, "", address.write({ step, checkpoint: last ? null : first.checkpoint }));
    } catch {
      // a page inside another page may have no address of its own
    }
  }

  /** Go where the address says. */
  private follow(): void {
    const place = address.read(location.hash);
    if (place.checkpoint !== null) this.theatres.forEach((theatre) => theatre.choose(place.checkpoint!, false));
    if (place.step !== null) this.transport.extent(Math.max(this.longest(), 1)), this.transport.go(place.step);
  }
}

const MARKS = ["type", "data-slot", "data-seed", "data-each", "data-step", "data-column", "data-claim"];

/** Put a part in the place of another; returns what to do once it is drawn: scroll and focus as before. */
function taken(before: Part, part: Part): () => void {
  part.follow(before);
  const opened = [...before.element.querySelectorAll("details")].map(({ open }) => open);
  part.element.querySelectorAll("details").forEach((place, k) => (place.open = opened[k] ?? false));
  const scrolled = [...before.element.querySelectorAll(".scroll")].map((place) => place.scrollTop);
  const focused = before.element.contains(document.activeElement) ? selectorOf(document.activeElement!) : null;
  before.element.replaceWith(part.element);
  return () => {
    part.element.querySelectorAll(".scroll").forEach((place, k) => (place.scrollTop = scrolled[k] ?? 0));
    if (focused) part.element.querySelector<HTMLElement>(focused)?.focus({ preventScroll: true });
  };
}

/** What finds an element's like in another part: what it is and which of several, and the row or column it is in. */
function selectorOf(element: Element): string {
  const described = (found: Element) => {
    const named = MARKS.filter((name) => found.hasAttribute(name)).map((name) => `[${name}="${CSS.escape(found.getAttribute(name)!)}"]`);
    return `${found.tagName.toLowerCase()}${found.classList.length ? `.${CSS.escape(found.classList[0])}` : ""}${named.join("")}`;
  };
  const within = element.parentElement!.closest("[data-column], [data-step], [data-claim]");
  return `${within ? described(within) : ""} ${described(element)}`;
}

/** Ask the server for what is new. */
async function follow(show: Show, every: number): Promise<void> {
  let known = "";
  for (;;) {
    try {
      const state = await (await fetch("state", { cache: "no-store" })).text();
      if (state !== known) {
        const found = await fetch("data", { cache: "no-store" });
        if (found.ok) {
          const payload = await unpack(new Uint8Array(await found.arrayBuffer()));
          if (payload.documents.length) show.show(payload.documents, known !== "");
          known = state;
        }
      }
      document.documentElement.classList.remove("lost");
    } catch {
      document.documentElement.classList.add("lost");
    }
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

async function begin(): Promise<void> {
  const root = document.getElementById("theatre")!;
  try {
    const payload: Payload = await carried(document.getElementById("data")!);
    const show = new Show(root);
    if (payload.live) await follow(show, payload.live.every);
    else show.show(payload.documents);
  } catch (error) {
    root.replaceChildren(h("p", { class: "failed", role: "alert" }, `This page cannot be shown: ${error instanceof Error ? error.message : String(error)}`));
    throw error;
  }
}

void begin();
