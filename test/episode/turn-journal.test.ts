// The file of an episode's turns: whatever happens to the file's bytes, a reader gets the first entries that were written, unchanged and in
// order.
import { createHash } from 'node:crypto';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { JournalFolder, type OpenJournal } from '../../src/episode/journal-folder.js';
import {
  encodeLine,
  type JournalEntry,
  type JournalHeader,
  nothingPast,
  pastOf,
  readJournal,
  transcriptDigest,
} from '../../src/episode/turn-journal.js';
import { seededRandom } from '../chaos/random.js';
import { ownFolder } from '../support/scratch-folder.js';

const header: JournalHeader = {
  schema: 'longhaul.journal/1',
  episode: 'runs/r/steps/000003/episodes/00001.002.json.gz',
  plan: 'a'.repeat(64),
  state: 'b'.repeat(64),
  sampling: 'c'.repeat(64),
  seed: 7,
  random: { seed: 1, domain: 'train', step: 3, slot: 1, sample: 2 },
};
const session = { url: 'http://127.0.0.1:1', id: 's', world: 'w' };
const call = { name: 'search', arguments: { query: 'größer\n\u2028"' } };
const float32 = (value: number): number => new Float32Array([value])[0]!;
const entries: JournalEntry[] = [
  { type: 'session', session },
  ...[0, 1, 2].flatMap((turn): JournalEntry[] => [
    {
      ...{ type: 'tokens', after: transcriptDigest([turn, 5]), tokens: [turn, 1023, 0] },
      logprobs: [float32(-0.1), float32(-1e-30), float32(-88.72)],
    },
    { type: 'intent', turn, call },
    { type: 'result', turn, observation: `Tool result:\n${turn}\n`, isError: turn === 1 },
  ]),
  { type: 'failure', place: 3, kind: 'unavailable', reason: 'socket_lost' },
  { type: 'session', session: null },
];

function fileOf(values: readonly (JournalHeader | JournalEntry)[]): Buffer {
  let check = 0;
  const lines = values.map((value) => {
    const encoded = encodeLine(value, check);
    check = encoded.check;
    return encoded.line;
  });
  return Buffer.from(lines.join(''));
}
const whole = fileOf([header, ...entries]);

describe('a journal', () => {
  it('returns what was noted, floats bit for bit', () => {
    expect(readJournal(whole, header)).toEqual({
      entries,
      length: whole.length,
      check: expect.any(Number) as number,
    });
  });

  it('that is cut off anywhere, as by the death of its writer, returns the complete entries', () => {
    const ends = [...whole.toString('latin1').matchAll(/\n/g)].map(({ index }) => index + 1);
    for (let length = 0; length <= whole.length; length++) {
      const read = readJournal(whole.subarray(0, length), header);
      const lines = ends.filter((end) => end <= length).length;
      if (lines === 0) expect(read).toBeNull();
      else expect(read).toMatchObject({ entries: entries.slice(0, lines - 1), length: ends[lines - 1] });
    }
  });

  it('with any bit flipped returns only written entries, and none after the damage', () => {
    for (let bit = 0; bit < 8 * whole.length; bit++) {
      const damaged = Buffer.from(whole);
      damaged[bit >> 3]! ^= 1 << (bit & 7);
      const read = readJournal(damaged, header);
      expect(read?.length ?? 0).toBeLessThanOrEqual(bit >> 3);
      if (read) expect(entries.slice(0, read.entries.length)).toEqual(read.entries);
    }
  });

  it('after 20,000 random damages, to bits, to ranges and to the end, never throws and returns only written entries', () => {
    const random = seededRandom(1);
    for (let i = 0; i < 20_000; i++) {
      let damaged = Buffer.from(whole);
      for (let times = 1 + random.below(4); times > 0; times--) {
        const at = random.below(damaged.length + 1);
        const run = random.below(64);
        switch (random.below(5)) {
          case 0:
            damaged = damaged.subarray(0, at);
            break;
          case 1:
            for (let j = at; j < Math.min(damaged.length, at + run); j++) damaged[j] = random.below(256);
            break;
          case 2:
            damaged.fill(0, at, Math.min(damaged.length, at + run));
            break;
          case 3:
            damaged = Buffer.concat([damaged.subarray(0, at), damaged.subarray(at + run)]);
            break;
          case 4:
            damaged = Buffer.concat([damaged.subarray(0, at), whole.subarray(random.below(whole.length))]);
        }
      }
      const read = readJournal(damaged, header);
      // The end of the same file may happen to be intact.
      if (read) expect(entries.slice(0, read.entries.length)).toEqual(read.entries);
    }
  });

  it.each<[string, Partial<JournalHeader>]>([
    ['plan', { plan: 'd'.repeat(64) }],
    ['state', { state: 'd'.repeat(64) }],
    ['sampling', { sampling: 'd'.repeat(64) }],
    ['world', { seed: 8 }],
    ['random numbers', { random: { ...header.random, slot: 2 } }],
    ['random numbers, of a step that is sampled again', { random: { ...header.random, seed: 8 } }],
  ])('of another %s is not read', (_, other) => {
    expect(readJournal(whole, { ...header, ...other })).toBeNull();
  });

  it('with moved lines or lines of an unknown kind ends there', () => {
    const lines = whole.toString().split('\n');
    const swapped = [...lines.slice(0, 2), lines[3], lines[2], ...lines.slice(4)].join('\n');
    expect(readJournal(Buffer.from(swapped), header)?.entries).toEqual(entries.slice(0, 1));
    const unknown = fileOf([header, { type: 'later' } as unknown as JournalEntry, ...entries]);
    expect(readJournal(unknown, header)?.entries).toEqual([]);
    const infinite: JournalEntry = { type: 'tokens', after: '', tokens: [1], logprobs: [-Infinity] };
    expect(readJournal(fileOf([header, infinite]), header)?.entries).toEqual([]);
  });
});

describe('the past that the entries describe', () => {
  it('is the same for a journal of an older version, whose intents contain the try number', () => {
    const older = { ...{ type: 'intent', turn: 0, call }, try: 0 } as JournalEntry;
    const read = readJournal(fileOf([header, { type: 'session', session }, older]), header);
    expect(pastOf(read?.entries ?? []).world).toEqual({ session, calls: new Map([[0, { call }]]) });
  });

  it('contains the sampled turns, the failures, and the world of the last play', () => {
    const past = pastOf([...entries, { type: 'session', session }, { type: 'intent', turn: 0, call }]);
    expect([...past.sampled.keys()]).toEqual([0, 1, 2].map((turn) => transcriptDigest([turn, 5])));
    expect(past.failures).toEqual([{ place: 3, kind: 'unavailable', reason: 'socket_lost' }]);
    expect(past.world).toEqual({ session, calls: new Map([[0, { call }]]) });
  });

  it('has no world after a failure, or if the world cannot be attached to', () => {
    expect(pastOf(entries).world).toBeNull();
    expect(pastOf(entries.slice(0, -1)).world).toBeNull();
  });

  it('has calls with a result, and calls whose result is not known', () => {
    const { world } = pastOf(entries.slice(0, 6));
    expect([...world!.calls]).toEqual([
      [0, { call, result: { observation: 'Tool result:\n0\n', isError: false } }],
      [1, { call }],
    ]);
  });
});

describe("a node's folder of journals", () => {
  let folder: string;
  let said: string[];
  let journals: JournalFolder;
  beforeEach(() => {
    folder = ownFolder();
    said = [];
    journals = new JournalFolder(join(folder, 'journal'), (message) => said.push(message));
  });

  const fileName = `${createHash('sha256').update(header.episode).digest('hex')}.journal`;
  const step3 = 'runs/r/steps/000003/episodes/';
  const names = (): string[] => readdirSync(join(folder, 'journal')).map(decodeURIComponent).sort();
  const files = (key = step3): string[] =>
    readdirSync(join(folder, 'journal', encodeURIComponent(key))).map((name) =>
      join(folder, 'journal', encodeURIComponent(key), name),
    );
  async function begin(key = step3, episode = header.episode): Promise<OpenJournal> {
    const opened = await (await journals.below(key)).open({ ...header, episode });
    opened.note(entries[0]!);
    await opened.write();
    return opened;
  }

  it('returns what the last attempt wrote, and continues where the file was torn', async () => {
    const first = await begin();
    for (const entry of entries.slice(1, 3)) first.note(entry);
    await first.close();
    writeFileSync(files()[0]!, readFileSync(files()[0]!).subarray(0, -5));
    const second = await begin();
    expect(second.past).toEqual(pastOf(entries.slice(0, 2)));
    await second.close();
    const [third] = [await (await journals.below(step3)).open(header)];
    expect(third.past).toEqual(pastOf([...entries.slice(0, 2), entries[0]!]));
    await third.close();
  });

  it('writes nothing before `write`, and leaves no file of a finished episode', async () => {
    const below = await journals.below(step3);
    const quick = await below.open(header);
    quick.note(entries[0]!);
    await quick.remove();
    expect(() => names()).toThrow('ENOENT');
    const slow = await below.open(header);
    slow.note(entries[0]!);
    await slow.write();
    expect(files()).toHaveLength(1);
    slow.note(entries[1]!);
    await slow.remove();
    await slow.close();
    await below.close();
    expect(names()).toEqual([]);
  });

  it('allows one writer for each file: a second one plays without a journal', async () => {
    const first = await begin();
    const second = await begin();
    await second.remove();
    expect(files()).toHaveLength(1);
    await first.close();
    const third = await begin();
    expect(third.past.world).not.toBeNull();
    await third.close();
  });

  it('starts again if the file belongs to another plan', async () => {
    await (await begin()).close();
    const other = await (await journals.below(step3)).open({ ...header, plan: 'e'.repeat(64) });
    expect(other.past).toEqual(nothingPast());
    other.note(entries[1]!);
    await other.close();
    const [file] = files();
    expect(readJournal(readFileSync(file!), header)).toBeNull();
    expect(readJournal(readFileSync(file!), { ...header, plan: 'e'.repeat(64) })?.entries).toEqual([
      entries[1],
    ]);
  });

  it('removes committed steps of the same run, and all but the newest of the other folders', async () => {
    const others = Array.from({ length: 130 }, (_, i) => `evals/${i}/s/episodes/`);
    const kept = ['runs/r/steps/000004/episodes/', 'runs/r~2/steps/000001/episodes/'];
    const dead = ['runs/r/steps/000001/episodes/', 'runs/r/steps/000002/episodes/'];
    for (const [age, key] of [...others, ...kept, ...dead].entries()) {
      const path = join(folder, 'journal', encodeURIComponent(key));
      mkdirSync(path, { recursive: true });
      utimesSync(path, 1000 + age, 1000 + age);
    }
    await (await begin()).close();
    expect(names()).toEqual([step3, ...kept, ...others.slice(-126)].sort());
    expect(statSync(files()[0]!).size).toBeLessThan(1000);
  });

  it('reuses the file of a finished episode for the next one, which finds nothing in it', async () => {
    const first = await begin();
    const inode = statSync(files()[0]!).ino;
    await first.remove();
    expect(files()).toEqual([]);
    const other = 'runs/r/steps/000003/episodes/00002.000.json.gz';
    const second = await begin(step3, other);
    expect(statSync(files()[0]!).ino).toBe(inode);
    await second.close();
    const read = readJournal(readFileSync(files()[0]!), { ...header, episode: other });
    expect(read?.entries).toEqual([entries[0]]);
  });

  it('on a full disk gives up the journal but not the episode, and logs this once', async () => {
    const journal = await (await journals.below(step3)).open(header);
    const path = join(folder, 'journal', encodeURIComponent(step3), fileName);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync('/dev/full', path);
    for (const entry of entries) {
      journal.note(entry);
      await journal.write();
    }
    expect(said).toEqual([expect.stringMatching(/^episodes continue without journals: ENOSPC/)]);
    expect(journal.isKept).toBe(false);
    expect(files()).toEqual([]);
    await journal.close();
    expect((await begin()).past).toEqual(nothingPast());
  });

  it('does not fail if a file is in the folder’s place, or a folder in the place of a journal', async () => {
    writeFileSync(join(folder, 'journal'), '');
    const first = await begin();
    await first.close();
    rmSync(join(folder, 'journal'));
    mkdirSync(join(folder, 'journal', encodeURIComponent(step3), fileName), { recursive: true });
    const second = await begin();
    expect(second.past).toEqual(nothingPast());
    await second.close();
    expect(said).toHaveLength(2);
  });
});
