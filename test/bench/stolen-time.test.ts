// Tests the share of CPU time that other machines on the same host got, as the kernel counts it.
import { expect, it } from 'vitest';
import { countStolenTime } from '../../bench/figures/stolen-time.js';

it('stolen time is a share of the wanted time, without idle time and guests', () => {
  const stats = [
    'cpu  100 10 50 9000 400 0 20 30 7 7\ncpu0 1 1 1',
    'cpu  1000 110 250 99000 4000 100 120 530 7 7\ncpu0 2',
  ];
  const stolen = countStolenTime(() => stats.shift() ?? '');
  expect(stolen()).toBeCloseTo(500 / (900 + 100 + 200 + 100 + 100 + 500), 10);
});

it('stolen time is 0 if too little time was wanted, or if the kernel does not report it', () => {
  const stats = ['cpu  100 0 0 0 0 0 0 0', 'cpu  110 0 0 0 0 0 0 300'];
  expect(countStolenTime(() => stats.shift() ?? '')()).toBe(0);
  expect(countStolenTime(() => '')()).toBe(0);
});
