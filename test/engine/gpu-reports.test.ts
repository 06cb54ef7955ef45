// What is known of a GPU from the reports in docs/gpu/*.json, and which folder holds them.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  findGpuReports,
  type GpuReport,
  readGpuReports,
  reportedText,
} from '../../src/engine/native/gpu-reports.js';

const h100 = 'NVIDIA H100 80GB HBM3';
const row = (name: string, holds: boolean | null, bar = 'passes'): GpuReport['rows'][number] => ({
  ...{ name, value: '', unit: '', bar, holds },
});
const report = (rows: GpuReport['rows'], changed: Partial<GpuReport> = {}): GpuReport => ({
  ...{ gpu: h100, driver: '570.1', memory_mib: '81559', date: '2026-11-28', commit: '0123456789abcdef' },
  rows,
  ...changed,
});

test('a GPU that was reported is named with date, commit and whether its bars held', () => {
  const sound = report([row('selftest', true), row('training', null, '')]);
  expect(reportedText(h100, [sound])).toBe(
    'this GPU was reported on 2026-11-28 at commit 01234567: all its bars held',
  );
});

test('bars that did not hold or were not measured are named', () => {
  const rows = [row('selftest', false), row('kernels', true), row('memcheck', null)];
  expect(reportedText(h100, [report(rows, { commit: '' })])).toBe(
    'this GPU was reported on 2026-11-28 at an unknown commit: not held: selftest; not measured: memcheck',
  );
});

test('the newest report of this model counts', () => {
  const reports = [
    report([row('selftest', true)], { date: '2026-12-02' }),
    report([row('selftest', false)], { date: '2026-12-01' }),
    report([row('selftest', false)], { gpu: 'NVIDIA A100-SXM4-80GB', date: '2026-12-03' }),
  ];
  expect(reportedText(h100, reports)).toContain('on 2026-12-02 at commit 01234567: all its bars held');
});

test('another GPU was never reported, and the text says how to report it', () => {
  const how = 'run native/tools/gpu_check.sh and send in the file that it writes';
  expect(reportedText('NVIDIA L4', [report([]), report([])])).toBe(
    `this GPU was never reported, only NVIDIA H100 80GB HBM3: ${how}`,
  );
  expect(reportedText('NVIDIA L4', [])).toBe(`nothing has run on a GPU yet that anybody reported: ${how}`);
});

test('an installation without docs/ does not know what was reported', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gpu-reports-'));
  expect(findGpuReports(join(folder, 'docs'))).toBeNull();
  expect(reportedText(h100, null)).toBe('docs/gpu of a checkout has what was reported of GPUs');
  mkdirSync(join(folder, 'docs'));
  expect(findGpuReports(join(folder, 'docs'))).toEqual([]);
});

test('a file that is no report is named', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gpu-reports-'));
  writeFileSync(join(folder, 'x.json'), '{"gpu": 1}');
  expect(() => readGpuReports(folder)).toThrow(/\/x\.json is no report/);
});

test('the reports of this checkout can be read', () => {
  expect(findGpuReports()).toEqual(readGpuReports('docs/gpu'));
});
