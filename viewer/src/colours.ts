// Colours by name, from the style sheet's variables, read once for each theme.

import { h } from "./dom";

const known = new Map<string, [number, number, number]>();
const probe = h("i", { hidden: true });

/** To be called when the theme changes. */
export function forget(): void {
  known.clear();
  mixed.clear();
}

export function channels(name: string): [number, number, number] {
  let found = known.get(name);
  if (!found) {
    // As the colour of an element: the variable's own text names the colours of both themes.
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g)!.map(Number);
    found = [r, g, b];
    known.set(name, found);
  }
  return found;
}

const mixed = new Map<string, string[]>();

/** Between two colours, in 64 steps. */
export function mix(from: string, to: string, share: number): string {
  const key = `${from}|${to}`;
  let scale = mixed.get(key);
  if (!scale) {
    const [a, b] = [channels(from), channels(to)];
    scale = Array.from({ length: 64 }, (_, step) => `rgb(${a.map((x, k) => Math.round(x + ((b[k] - x) * step) / 63)).join(",")})`);
    mixed.set(key, scale);
  }
  return scale[Math.round(63 * Math.min(Math.max(share, 0), 1))];
}

export function paint(name: string, opacity = 1): string {
  const [r, g, b] = channels(name);
  return opacity >= 1 ? `rgb(${r},${g},${b})` : `rgba(${r},${g},${b},${opacity})`;
}
