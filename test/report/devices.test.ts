// The report names the devices on which the steps of a run were computed.
import { describe, expect, test } from 'vitest';
import { devicesText } from '../../src/report/run-facts.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

const { update } = recordsOfAllKinds();
const onGpu = (device: string): UpdateRecord => ({ ...update, observed: { ...update.observed, device } });
const served: UpdateRecord = {
  ...update,
  identity: { ...update.identity, numerics: { backend: 'tinker', version: 1, service: 's', model: 'm' } },
};

describe('the devices of a run', () => {
  test('are one name if all steps were computed on the same', () => {
    expect(devicesText([update, update])).toBe('CPU');
    expect(devicesText([onGpu('NVIDIA L4')])).toBe('NVIDIA L4');
    expect(devicesText([served])).toBe('a Tinker server');
    expect(devicesText([])).toBe('–');
  });

  test('have their numbers of steps if the run moved', () => {
    expect(devicesText([update, onGpu('NVIDIA L4'), update])).toBe('CPU (2 steps), NVIDIA L4 (1 step)');
  });
});
