// What was seen at a step, drawn small: the environment's picture, the view itself, or a row of cells.

import type { Bar } from "./bars";
import { number } from "./dom";
import type { Recording } from "./data";
import type { Episode } from "./episode";
import { mix } from "./colours";

const MOST_CELLS = 48;

export class Pictures {
  private readonly images = new Map<string, HTMLImageElement>();

  constructor(private readonly recording: Recording, private readonly changed: () => void) {}

  /** The environment's own picture of a step, once the browser has read it. */
  frame(episode: Episode, t: number): HTMLImageElement | null {
    const frames = episode.document.frames;
    const at = frames ? frames.of[t] : -1;
    if (!frames || at === undefined || at < 0) return null;
    const source = frames.png[at];
    let image = this.images.get(source);
    if (!image) {
      image = new Image();
      image.addEventListener("load", this.changed);
      image.src = `data:image/png;base64,${source}`;
      this.images.set(source, image);
    }
    return image.complete && image.naturalWidth > 0 ? image : null;
  }

  hasFrames(episode: Episode): boolean {
    return Boolean(episode.document.frames);
  }

  /** Whether a picture tells more than cells do: not where the elements are few and have names. */
  preferred(episode: Episode): boolean {
    return Boolean(this.recording.observation.shape) || (this.hasFrames(episode) && this.recording.observation.names.length > 16);
  }

  /** The picture that stands for a step in small: the environment's own, where that tells more than cells do. */
  private small(episode: Episode, t: number): HTMLImageElement | null {
    return this.preferred(episode) ? this.frame(episode, t) : null;
  }

  /** What was seen at a step (−1: before the episode), small on a canvas of its own, so many CSS pixels high. */
  thumbnail(canvas: HTMLCanvasElement, episode: Episode, t: number, values: Float64Array, width: number, height: number): void {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d")!;
    context.scale(ratio, ratio);
    this.draw(context, this.small(episode, t), values, 0, 0, width, height);
  }

  /** The environment's own picture, whatever the observation is. */
  drawFrame(canvas: HTMLCanvasElement, frame: HTMLImageElement, width: number): void {
    const ratio = window.devicePixelRatio || 1;
    const height = (width * frame.naturalHeight) / frame.naturalWidth;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    canvas.style.width = `${width}px`;
    const context = canvas.getContext("2d")!;
    context.imageSmoothingEnabled = width < frame.naturalWidth;
    context.drawImage(frame, 0, 0, canvas.width, canvas.height);
  }

  /** A step of an episode, within a rectangle. */
  drawStep(context: CanvasRenderingContext2D, episode: Episode, t: number, x: number, y: number, width: number, height: number): void {
    this.draw(context, this.small(episode, t), episode.seen(t), x, y, width, height);
  }

  private draw(context: CanvasRenderingContext2D, frame: HTMLImageElement | null, values: Float64Array, x: number, y: number, width: number, height: number): void {
    if (frame) {
      const scale = Math.min(width / frame.naturalWidth, height / frame.naturalHeight);
      const [w, hgt] = [frame.naturalWidth * scale, frame.naturalHeight * scale];
      context.imageSmoothingEnabled = scale < 1;
      context.drawImage(frame, x + (width - w) / 2, y + (height - hgt) / 2, w, hgt);
      return;
    }
    const shape = this.recording.observation.shape;
    if (shape) this.view(context, values, shape, x, y, width, height);
    else cells(context, values, x, y, width, height);
  }

  /** A picture observation: three channels as colours, others by their strongest. */
  private view(context: CanvasRenderingContext2D, values: Float64Array, shape: number[], x: number, y: number, width: number, height: number): void {
    const [rows, columns, channels] = shape;
    const side = Math.min(width / columns, height / rows);
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const at = (i * columns + j) * channels;
        let fill: string;
        if (channels === 3) fill = `rgb(${[0, 1, 2].map((c) => Math.round(255 * values[at + c])).join(",")})`;
        else if (channels === 1) fill = mix("cell-off", "cell-on", values[at]);
        else {
          let best = -1;
          for (let c = 0; c < channels; c++) if (values[at + c] > 0.5) best = c;
          fill = best < 0 ? mix("cell-off", "cell-on", 0) : `hsl(${(best * 137) % 360} 55% 50%)`;
        }
        context.fillStyle = fill;
        context.fillRect(x + j * side, y + i * side, side + 0.5, side + 0.5);
      }
    }
  }
}

/** A vector as a grid of cells, more of the colour the larger the number; below 0 the other colour. */
function cells(context: CanvasRenderingContext2D, values: Float64Array, x: number, y: number, width: number, height: number): void {
  const shown = Math.min(values.length, MOST_CELLS);
  const columns = Math.min(shown, Math.ceil(Math.sqrt((shown * width) / height)));
  const rows = Math.ceil(shown / columns);
  const side = Math.min(width / columns, height / rows);
  const gap = side > 6 ? 2 : 0.5;
  let largest = 1;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  const left = x + (width - side * columns) / 2;
  const top = y + (height - side * rows) / 2;
  for (let k = 0; k < shown; k++) {
    context.fillStyle = mix("line", values[k] < 0 ? "cell-below" : "cell-on", Math.abs(values[k]) / largest);
    context.fillRect(left + (k % columns) * side + gap / 2, top + Math.floor(k / columns) * side + gap / 2, side - gap, side - gap);
  }
}

const MOST_BARS = 40;

/** An observation as labelled bars, all of them up to forty elements, else the largest. */
export function barsOf(names: (k: number) => string, values: ArrayLike<number>, rarity: (k: number) => number): Bar[] {
  const list = Array.from(values, (value, k) => ({ value, k }));
  const shown = list.length > MOST_BARS ? list.sort((a, b) => Math.abs(b.value) - Math.abs(a.value) || rarity(a.k) - rarity(b.k) || a.k - b.k).slice(0, 12) : list;
  const largest = Math.max(1, ...shown.map(({ value }) => Math.abs(value)));
  return shown.map(({ value, k }) => ({
    name: names(k),
    share: Math.abs(value) / largest,
    text: number(value),
    kind: value ? "" : "off",
    below: value < 0,
    data: { element: k, value },
  }));
}
