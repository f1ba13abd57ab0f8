// What a page carries: documents as JSON, their arrays as nested lists or as bytes in base64.

export type Encoded = number[] | number[][] | number[][][] | { dtype: string; shape: number[]; data: string; scale?: number };

/** Numbers of any shape, in C order. */
export interface Numbers {
  readonly data: ArrayLike<number>;
  readonly shape: readonly number[];
}

export interface EpisodeDocument {
  steps: number;
  trained?: number;
  seed?: number;
  return?: number;
  ended?: string;
  observation: Encoded;
  action?: Encoded;
  reward: Encoded;
  policy?: Encoded;
  value?: Encoded;
  delta?: Encoded;
  frames?: { png: string[]; of: number[] };
  texts?: string[];
  hidden?: { name: string; values: Encoded }[];
  memory?: MemoryDocument;
}

export interface MemoryDocument {
  slots: number;
  stays: { slot: Encoded; seen: Encoded; from: Encoded; until: Encoded; log_weight: Encoded };
  recalled: Encoded;
  probability: Encoded;
  policies?: Encoded;
  log_weight_now?: Encoded;
  credit?: Encoded;
  log_write_weight?: Encoded;
  write_chance?: Encoded;
  query?: Encoded;
  temperature?: Encoded;
  keys?: Encoded;
  keys_changing?: { elements: Encoded; now: Encoded };
  key_names?: string[];
}

export interface Recording {
  format: "recollect recording";
  version: number;
  title: string;
  environment: { name: string; options?: Record<string, unknown> };
  agent?: { name?: string; class?: string; options?: Record<string, unknown> };
  observation: { names: string[]; shape?: number[] | null };
  actions: { names: string[]; kind: string; sizes?: number[] };
  training?: { status?: string; steps?: number; goal?: number; columns: Record<string, (number | null)[]> };
  episodes: EpisodeDocument[];
}

export interface Series {
  name: string;
  group: string;
  values: (number | null)[];
}

/** A figure of the paper: panels of curves over the same abscissa, and a table of claims. */
export interface Figure {
  format: "recollect figure";
  title: string;
  subtitle: string;
  panels: { title: string; x: number[]; xlabel: string; series: Series[] }[];
  claims: { claim: string; criterion: string; measured: string; verdict: string; holding: number; seeds: number; values: Record<string, unknown[]> }[];
  notes: string[];
}

/** A table with curves: a benchmark's report. */
export interface Board {
  format: "recollect board";
  title: string;
  subtitle: string;
  columns: { name: string; label: string; numeric: boolean }[];
  rows: Record<string, string | number | null>[];
  curves: { title: string; x: number[]; xlabel: string; ylabel: string; series: Series[] }[];
  notes: string[];
}

export type Page = Recording | Figure | Board;

export interface Payload {
  documents: Page[];
  /** Where a server has the documents, and how often to ask it, in milliseconds; left out in a file. */
  live?: { every: number };
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}

const VIEWS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  int32: Int32Array,
  float32: Float32Array,
} as const;

export function decode(found: Encoded): Numbers {
  if (Array.isArray(found)) {
    const shape: number[] = [];
    for (let level: unknown = found; Array.isArray(level); level = level[0]) shape.push(level.length);
    return { data: (found as unknown[]).flat(2) as number[], shape };
  }
  const view = VIEWS[found.dtype as keyof typeof VIEWS];
  if (view === undefined) throw new Error(`an array of ${found.dtype} cannot be read`);
  const raw = new view(bytesOf(found.data).buffer);
  if (found.scale === undefined || found.scale === 1) return { data: raw, shape: found.shape };
  const data = new Float32Array(raw.length);
  for (let k = 0; k < raw.length; k++) data[k] = raw[k] * found.scale;
  return { data, shape: found.shape };
}

export async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<Payload> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text()) as Payload;
}

export async function carried(element: Element): Promise<Payload> {
  return unpack(bytesOf((element.textContent ?? "").trim()));
}
