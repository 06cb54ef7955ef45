// The journals of a node: one folder for each collect or evaluation activity, one file for each episode in flight.
//
// Invariants: no disk error fails an episode; a file has only one writer; a finished episode has no file. Data is not synced to disk: the
// data survives the death of the process, but if the machine dies, a file may be cut off anywhere.
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import { mkdir, readdir, readFile, rm, rmdir, stat, truncate } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { SpareFiles } from './spare-files.js';
import {
  encodeLine,
  type JournalEntry,
  type JournalHeader,
  type JournaledPast,
  nothingPast,
  pastOf,
  readJournal,
  type TurnJournal,
  unkeptJournal,
} from './turn-journal.js';

/**
 * A journal that can be ended. `close` keeps the file for the next attempt. `remove` deletes it once the episode's record is stored; a
 * `close` after that does nothing. Neither rejects.
 */
export interface OpenJournal extends TurnJournal {
  /** True if the next attempt will find what was written. */
  readonly isKept: boolean;
  close(): Promise<void>;
  remove(): Promise<void>;
}

// These functions cost half as much as file handles, and the episodes of a step write thousands of times.
const [open, write, close, unlink] = [
  promisify(fs.open),
  promisify(fs.write<Buffer>),
  promisify(fs.close),
  promisify(fs.unlink),
];

/**
 * Folders kept besides the current one. A node that served a hundred runs needs this many after a restart; further folders belong to ended
 * runs.
 */
const foldersKept = 128;

export class JournalFolder {
  private readonly inUse = new Set<string>();
  private readonly spares: SpareFiles;

  constructor(
    private readonly folder: string,
    private readonly log: (message: string) => void,
  ) {
    this.spares = new SpareFiles(`${folder}-spare`);
  }

  /**
   * The journals of all episodes under `key`, which ends with a slash. Removes the journals of the run's earlier steps, which are
   * committed.
   */
  async below(key: string): Promise<EpisodeJournals> {
    const name = encodeURIComponent(key);
    const names: string[] = await readdir(this.folder).catch(() => []);
    const isOver = (other: string): boolean => isEarlierStep(decoded(other), key);
    await Promise.all(names.filter(isOver).map((other) => this.sweep(other)));
    const others = names.filter((other) => other !== name && !isOver(other));
    if (others.length > foldersKept) await this.sweepOldest(others);
    const folder = join(this.folder, name);
    const left: string[] = names.includes(name) ? await readdir(folder).catch(() => []) : [];
    return new EpisodeJournals(folder, new Set(left), this.inUse, this.spares, this.log);
  }

  private async sweepOldest(names: readonly string[]): Promise<void> {
    const dated = await Promise.all(
      names.map(async (name) => ({
        name,
        at: (await stat(join(this.folder, name)).catch(() => null))?.mtimeMs ?? 0,
      })),
    );
    const oldest = dated.sort((a, b) => b.at - a.at).slice(foldersKept);
    await Promise.all(oldest.map(({ name }) => this.sweep(name)));
  }

  private async sweep(name: string): Promise<void> {
    const folder = join(this.folder, name);
    if ([...this.inUse].some((path) => dirname(path) === folder)) return;
    await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

export class EpisodeJournals {
  private readonly resumed = { episodes: 0, turns: 0, tokens: 0 };
  private made: Promise<unknown> | undefined;
  private complained = false;

  constructor(
    private readonly folder: string,
    /** Names of the files left by earlier attempts. */
    private readonly left: ReadonlySet<string>,
    private readonly inUse: Set<string>,
    private readonly spares: SpareFiles,
    private readonly log: (message: string) => void,
  ) {}

  /** Opens a journal. If an earlier attempt left a journal with the same header, that journal is continued. */
  async open(header: JournalHeader): Promise<OpenJournal> {
    const name = `${createHash('sha256').update(header.episode).digest('hex')}.journal`;
    const path = join(this.folder, name);
    // Two runs may evaluate the same state at the same time; the second one plays without a journal.
    if (this.inUse.has(path)) {
      const ends = { close: () => Promise.resolve(), remove: () => Promise.resolve() };
      return { ...unkeptJournal(), ...ends, isKept: false };
    }
    this.inUse.add(path);
    const file = new JournalFile(
      path,
      this.spares,
      () => this.make(),
      () => this.inUse.delete(path),
      (problem) => this.complain(problem),
    );
    await file.begin(header, this.left.has(name));
    const { sampled } = file.past;
    if (sampled.size > 0) this.resumed.episodes += 1;
    this.resumed.turns += sampled.size;
    for (const { tokens } of sampled.values()) this.resumed.tokens += tokens.length;
    return file;
  }

  /** Hundreds of episodes open their files together; only the first creates the folder. */
  private make(): Promise<unknown> {
    return (this.made ??= mkdir(this.folder, { recursive: true }));
  }

  /** Logs only the first problem, because on a full disk every episode would report the same. */
  private complain({ message }: Error): void {
    if (!this.complained) this.log(`episodes continue without journals: ${message}`);
    this.complained = true;
  }

  /** Call when no episode is being played any more. Removes the folder if it is empty. */
  async close(): Promise<void> {
    const { episodes, turns, tokens } = this.resumed;
    if (episodes > 0)
      this.log(`${episodes} episodes continued from their journals: ${turns} turns of ${tokens} tokens`);
    await rmdir(this.folder).catch(() => undefined);
  }
}

class JournalFile implements OpenJournal {
  past: JournaledPast = nothingPast();
  private lines = '';
  private check = 0;
  private file: number | null = null;
  private exists = false;
  private writing: Promise<void> = Promise.resolve();
  /** If true, nothing more is written. */
  private broken = false;
  private over = false;

  constructor(
    private readonly path: string,
    private readonly spares: SpareFiles,
    private readonly makeFolder: () => Promise<unknown>,
    private readonly ended: () => void,
    private readonly complain: (problem: Error) => void,
  ) {}

  /** `exists`: an earlier attempt left this file. */
  async begin(header: JournalHeader, exists: boolean): Promise<void> {
    this.exists = exists;
    const bytes = exists ? await readFile(this.path).catch(() => null) : null;
    const read = bytes && readJournal(bytes, header);
    try {
      if (read) this.past = pastOf(read.entries);
      // Cut off a damaged end, or the whole file if its header differs: entries written after the damage could not be read.
      const length = read?.length ?? 0;
      if (bytes && length < bytes.length) await truncate(this.path, length);
    } catch (error) {
      await this.giveUp(error as Error);
    }
    if (read) this.check = read.check;
    else this.add(header);
  }

  get isKept(): boolean {
    return !this.broken;
  }

  note(entry: JournalEntry): void {
    this.add(entry);
  }

  write(): Promise<void> {
    const lines = this.lines;
    this.lines = '';
    if (lines !== '' && !this.broken)
      this.writing = this.writing.then(() => this.append(lines)).catch((error: Error) => this.giveUp(error));
    return this.writing;
  }

  async close(): Promise<void> {
    if (this.over) return;
    await this.write();
    await this.closeFile();
    this.end();
  }

  async remove(): Promise<void> {
    this.broken = true;
    await this.writing;
    const file = this.file;
    this.file = null;
    if (file !== null) await this.spares.give(this.path, file);
    else if (this.exists) await unlink(this.path).catch(() => undefined);
    this.end();
  }

  private end(): void {
    this.over = true;
    this.ended();
  }

  private add(value: JournalHeader | JournalEntry): void {
    const { line, check } = encodeLine(value, this.check);
    this.lines += line;
    this.check = check;
  }

  private async append(lines: string): Promise<void> {
    if (this.broken) return;
    this.file ??= await this.openFile();
    const bytes = Buffer.from(lines);
    const { bytesWritten } = await write(this.file, bytes, 0, bytes.length, null);
    if (bytesWritten < bytes.length) throw new Error('the disk is full');
  }

  private async openFile(): Promise<number> {
    await this.makeFolder();
    const spare = this.exists ? null : await this.spares.take(this.path);
    return spare ?? open(this.path, 'a');
  }

  /** Deletes the journal after a disk error: with entries missing, it would mislead the next attempt. */
  private async giveUp(problem: Error): Promise<void> {
    this.broken = true;
    this.past = nothingPast();
    this.complain(problem);
    await this.closeFile();
    await unlink(this.path).catch(() => undefined);
  }

  private async closeFile(): Promise<void> {
    const file = this.file;
    this.file = null;
    if (file !== null) await close(file).catch(() => undefined);
  }
}

/** True if `key` lies below an earlier step of the same run as `current`. */
function isEarlierStep(key: string, current: string): boolean {
  const steps = /^runs\/[^/]+\/steps\//.exec(current)?.[0];
  return steps !== undefined && key.startsWith(steps) && key < current;
}

/** Decodes a folder's name; empty if it is not one of ours. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return '';
  }
}
