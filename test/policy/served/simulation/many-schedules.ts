// Simulates the schedules of many seeds, in two processes of their own.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { VerdictKind } from './verdict.js';

export interface Summary {
  right: number;
  blocked: number;
  wrong: number;
  spoiled: number;
  /** Schedules in which samples of a state came from other weights. */
  wrongSamples: number;
  operations: number;
  seconds: number;
}

interface Found {
  seed: number;
  kind: VerdictKind;
  reasons: string[];
}

const processes = 2;
/** Hundred schedules take two seconds of a processor. */
const longestSilenceMs = 10 * 60_000;
/** Measured: all of 12,000 schedules ended right; 5 of them, each with a frozen process, had samples of other weights. */
const leastRight = 0.999;
const mostWrongSamples = 0.002;
/** Measured: one of 10,000 schedules. */
const mostSpoiled = 0.0003;
/** Failures that a message shows. */
const mostShown = 10;

/** Throws if a schedule ends wrong, and says how to replay it; or if more are blocked, spoiled, or have samples of other weights, than usual. */
export async function simulateMany(first: number, last: number): Promise<Summary> {
  const each = Math.ceil((last - first + 1) / processes);
  const parts = Array.from({ length: processes }, (_, at) => {
    const from = first + at * each;
    return simulatePart(from, Math.max(0, Math.min(each, last - from + 1)));
  });
  const ended = await Promise.all(parts);
  const wrong = ended.flatMap(({ found }) => found).filter(({ kind }) => kind === 'wrong');
  if (wrong.length > 0) {
    const shown = wrong.slice(0, mostShown).map(({ seed, reasons }) => `  ${seed}: ${reasons[0]}`);
    throw new Error(
      `${wrong.length} of ${last - first + 1} schedules end wrong. Seeds:\n${shown.join('\n')}\nTo see what happens: ` +
        `LONGHAUL_SIMULATION_SEED=${wrong[0]!.seed} npx vitest run --project pure test/policy/served/simulation/simulator.test.ts`,
    );
  }
  const [one, ...others] = ended.map(({ summary }) => summary);
  const all = others.reduce(
    (sum, part) => ({
      right: sum.right + part.right,
      blocked: sum.blocked + part.blocked,
      wrong: sum.wrong + part.wrong,
      spoiled: sum.spoiled + part.spoiled,
      wrongSamples: sum.wrongSamples + part.wrongSamples,
      operations: sum.operations + part.operations,
      seconds: Math.max(sum.seconds, part.seconds),
    }),
    one!,
  );
  refuseUnusual(all);
  return all;
}

/** More runs that are blocked, or more samples of other weights, than were measured. */
function refuseUnusual({ right, blocked, spoiled, wrongSamples }: Summary): void {
  const schedules = right + blocked + spoiled;
  const isUsual =
    right >= leastRight * schedules &&
    spoiled <= 1 + mostSpoiled * schedules &&
    wrongSamples <= 1 + mostWrongSamples * schedules;
  if (isUsual) return;
  throw new Error(
    `of ${schedules} schedules only ${right} end right, ${spoiled} are spoiled, and ${wrongSamples} have samples of other weights`,
  );
}

async function simulatePart(first: number, count: number): Promise<{ found: Found[]; summary: Summary }> {
  const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
  const register = path('../../../support/preloads/typescript-register.mjs');
  const runner = spawn(
    process.execPath,
    ['--import', register, path('./runner.ts'), `${first}`, `${count}`],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  // How long all of it takes says nothing: the processes come last on a busy machine.
  const silence = setTimeout(() => runner.kill('SIGKILL'), longestSilenceMs);
  const lines: unknown[] = [];
  try {
    for await (const text of createInterface({ input: runner.stdout })) {
      silence.refresh();
      if (text !== '{}') lines.push(JSON.parse(text));
    }
  } finally {
    clearTimeout(silence);
  }
  if (runner.exitCode === null && runner.signalCode === null)
    await new Promise((resolve) => runner.once('exit', resolve));
  if (runner.exitCode !== 0)
    throw new Error(`the schedules from ${first} on ended with ${runner.exitCode ?? runner.signalCode}`);
  return { summary: lines.pop() as Summary, found: lines as Found[] };
}
