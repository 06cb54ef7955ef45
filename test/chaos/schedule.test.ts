import { describe, expect, it } from 'vitest';
import { allFaults } from './faults/catalogue.js';
import { scheduleOf, type ScheduleOptions } from './schedule.js';

const options: Omit<ScheduleOptions, 'seed'> = {
  faults: allFaults,
  steps: 32,
  strikes: 4,
  stores: ['directory', 's3'],
  longestOutageMs: 5_000,
  longestDelayMs: 1_000,
};
const seeds = Array.from({ length: 200 }, (_, seed) => seed);
const schedules = seeds.map((seed) => scheduleOf({ ...options, seed }));

describe('the schedule of a seed', () => {
  it('is always the same for a seed, and differs between seeds', () => {
    expect(seeds.map((seed) => scheduleOf({ ...options, seed }))).toEqual(schedules);
    expect(new Set(schedules.map((schedule) => JSON.stringify(schedule))).size).toBe(seeds.length);
  });

  it('has no fault that needs another kind of store', () => {
    for (const { store, strikes } of schedules) {
      const other = store === 's3' ? 'directory' : 's3';
      expect(strikes.filter(({ fault }) => fault.needs.includes(other))).toEqual([]);
    }
  });

  it('has one fault in each part of the run, in order, and no fault is longer than allowed', () => {
    for (const { strikes } of schedules) {
      expect(strikes.map(({ afterStep }) => Math.floor((afterStep + 1) / 7))).toEqual([0, 1, 2, 3]);
      expect(strikes.map(({ untilStep }) => untilStep)).toEqual([7, 14, 21, 28]);
      for (const { fault, lastsMs, delayMs } of strikes) {
        expect(lastsMs > 0).toBe(fault.lasts);
        expect(lastsMs).toBeLessThanOrEqual(5_000);
        expect(delayMs).toBeLessThanOrEqual(1_000);
      }
    }
  });

  it('leaves out no fault: the seeds of one deck together have all faults', () => {
    const hands = Math.ceil(allFaults.length / options.strikes);
    for (let first = 0; first + hands <= seeds.length; first += hands) {
      const dealt = schedules.slice(first, first + hands).flatMap(({ strikes }) => strikes);
      expect(new Set(dealt.map(({ fault }) => fault.name)).size).toBe(allFaults.length);
    }
  });

  it('still has all its faults if every fault needs one of two kinds of store', () => {
    const faults = allFaults.filter(({ needs }) => needs.includes('s3') || needs.includes('directory'));
    for (const seed of seeds.slice(0, 20)) {
      const { store, strikes } = scheduleOf({ ...options, faults, seed });
      const other = store === 's3' ? 'directory' : 's3';
      expect(strikes).toHaveLength(4);
      expect(strikes.filter(({ fault }) => fault.needs.includes(other))).toEqual([]);
    }
  });
});

it('every fault has its own name, and says what it does and how it ends', () => {
  expect(new Set(allFaults.map(({ name }) => name)).size).toBe(allFaults.length);
  for (const { does, undone, recoversWithinS } of allFaults) {
    expect(does).not.toBe('');
    expect(undone).not.toBe('');
    expect(recoversWithinS).toBeGreaterThan(0);
  }
});
