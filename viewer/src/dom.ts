// Elements and numbers. Text only ever becomes text: nothing here or elsewhere reads HTML from data.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

function filled<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag) as SVGElement, attributes, children);
}

/** A number in few characters, the same wherever it is shown. */
export function number(x: number | null | undefined, digits = 3): string {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  let text: string;
  if (size >= 1e7 || size < 10 ** -digits) text = x.toExponential(Math.max(0, digits - 2));
  else if (size >= 1000) text = thousands(Math.round(x));
  else text = trimmed(x.toFixed(size >= 100 ? 1 : digits));
  return text.replaceAll("-", "−"); // the sign, and that of an exponent
}

const trimmed = (text: string) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

export const signed = (x: number | null | undefined, digits = 3) => (x !== null && x !== undefined && x > 0 ? `+${number(x, digits)}` : number(x, digits));

/** The number whose natural logarithm is given, which may be too small for a number. */
export function fromLog(log: number): string {
  if (log === -Infinity) return "0";
  return log < -690 ? `1e−${Math.round(-log / Math.LN10)}` : number(Math.exp(log));
}

export function percent(p: number): string {
  if (p > 0 && p < 0.01) return "<\u00a01\u00a0%";
  if (p > 0.99 && p < 1) return ">\u00a099\u00a0%";
  return `${Math.round(100 * p)}\u00a0%`;
}

export const thousands = (n: number) => n.toLocaleString("en-US");
export const clamp = (x: number, low: number, high: number) => Math.min(Math.max(x, low), high);
