// Refuses an input that a Temporal server would refuse, in words that name its size, the limit and its largest part.
import { InvalidSpec } from '../spec/invalid-spec.js';

/** A Temporal server takes 2 MiB in one payload; the rest is for what travels with the input. */
const mostBytes = 2 * 1024 * 1024 - 64 * 1024;

const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value) ?? '');
const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(2)} MB`;

/** Throws `InvalidSpec`. `where`: what it is. */
export function refuseLargeInput(spec: object, where: string): void {
  const size = bytesOf(spec);
  if (size <= mostBytes) return;
  const [key, largest] = Object.entries(spec)
    .map(([name, value]) => [name, bytesOf(value)] as const)
    .reduce((most, one) => (one[1] > most[1] ? one : most));
  const problem = `takes ${megabytes(size)} as JSON, and the limit is ${megabytes(mostBytes)}; ${key} alone takes ${megabytes(largest)}`;
  throw new InvalidSpec(
    [{ path: '', problem: `it ${problem}`, fix: `shorten the texts of ${key}, or have fewer entries` }],
    where,
  );
}
