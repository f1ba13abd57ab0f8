// The part of the address after #: which step, which checkpoint.

export interface Place {
  step: number | null;
  checkpoint: number | null;
}

const whole = (text: string | null) => (text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null);

export function read(hash: string): Place {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  return { step: whole(found.get("step")), checkpoint: whole(found.get("checkpoint")) };
}

export function write(place: Place): string {
  const parts = [`step=${place.step ?? 0}`];
  if (place.checkpoint !== null) parts.push(`checkpoint=${place.checkpoint}`);
  return `#${parts.join("&")}`;
}
