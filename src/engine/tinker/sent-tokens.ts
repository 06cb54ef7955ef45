// What this process has sent to a Tinker server and no record counts yet. A request is counted each time it is sent.
import { AsyncLocalStorage } from 'node:async_hooks';
import { NewestEntries } from '../../base/newest-entries.js';
import type { ServedTokens } from '../../spec/budget.js';

/** What requests are sent for. */
interface Purpose {
  run: string;
  item: string;
}

/** One update, or one training episode: records show the least that was sent for it. */
export const itemOf = {
  update: (step: number): string => `${step} update`,
  episode: (step: number, slot: number, sample: number): string => `${step} ${slot}.${sample}`,
  other: 'other',
};

type Items = Map<string, ServedTokens>;

const purposes = new AsyncLocalStorage<Purpose>();

/** All requests within `use` are sent for `purpose`. */
export function sentFor<T>(purpose: Purpose, use: () => Promise<T>): Promise<T> {
  return purposes.run(purpose, use);
}

const nothing: ServedTokens = { train: 0, prefill: 0, sample: 0, saves: 0 };

export class SentTokens {
  /** By run. `offered`: what is to be in the update committed at `at`. */
  private readonly runs = new NewestEntries<{ open: Items; offered: { at: string; items: Items } | null }>();

  /** What no run has asked for is not counted. */
  add(part: Partial<ServedTokens>): void {
    const purpose = purposes.getStore();
    if (!purpose) return;
    const { open } = this.of(purpose.run);
    open.set(purpose.item, plus(open.get(purpose.item) ?? nothing, part));
  }

  /**
   * What is to be counted in the update that is about to be committed at `at` (ISO 8601). `recorded`: what records show of its items; where
   * a process that has died sent some of it, that is the larger part.
   */
  offer(run: string, at: string, recorded: ReadonlyMap<string, Partial<ServedTokens>>): ServedTokens {
    const items = this.reopened(run);
    for (const [item, part] of recorded) items.set(item, larger(items.get(item) ?? nothing, part));
    this.runs.set(run, { open: new Map(), offered: { at, items } });
    return [...items.values()].reduce(plus, nothing);
  }

  /** Call with each update that is committed, by whichever process: one that another process has committed counts its items itself. */
  committed(run: string, step: number, at: string): void {
    const { open, offered } = this.of(run);
    if (offered?.at === at) {
      this.runs.set(run, { open, offered: null });
      return;
    }
    const items = this.reopened(run);
    for (const item of items.keys()) if (item.startsWith(`${step} `)) items.delete(item);
    this.runs.set(run, { open: items, offered: null });
  }

  /** With what was offered for an update that was not committed. */
  private reopened(run: string): Items {
    const { open, offered } = this.of(run);
    const items = new Map(offered?.items ?? []);
    for (const [item, part] of open) items.set(item, plus(items.get(item) ?? nothing, part));
    return items;
  }

  private of(run: string): { open: Items; offered: { at: string; items: Items } | null } {
    const known = this.runs.get(run) ?? { open: new Map<string, ServedTokens>(), offered: null };
    this.runs.set(run, known);
    return known;
  }
}

function plus(one: ServedTokens, part: Partial<ServedTokens>): ServedTokens {
  return {
    train: one.train + (part.train ?? 0),
    prefill: one.prefill + (part.prefill ?? 0),
    sample: one.sample + (part.sample ?? 0),
    saves: one.saves + (part.saves ?? 0),
  };
}

function larger(one: ServedTokens, part: Partial<ServedTokens>): ServedTokens {
  return {
    train: Math.max(one.train, part.train ?? 0),
    prefill: Math.max(one.prefill, part.prefill ?? 0),
    sample: Math.max(one.sample, part.sample ?? 0),
    saves: Math.max(one.saves, part.saves ?? 0),
  };
}
