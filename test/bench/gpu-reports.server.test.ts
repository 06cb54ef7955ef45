import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { gpuReportText } from '../../bench/figures/gpu-reports.js';
import { misses, readGpuReports, reportedText } from '../../src/engine/native/gpu-reports.js';

const folder = mkdtempSync(join(tmpdir(), 'gpu-reports-'));
const script = fileURLToPath(new URL('../../native/tools/gpu_check.sh', import.meta.url));

/** Runs the check with stand-ins for the driver, the build and the programs. */
function check(
  state: { cpu: string; cuda: string },
  benchCode = 0,
): { code: number; printed: string; file: string } {
  const [bin, build] = ['bin-', 'build-'].map((kind) => mkdtempSync(join(folder, kind))) as [string, string];
  const file = join(build, 'report.json');
  const program = (path: string, text: string): void => {
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
  };
  program(join(bin, 'nvidia-smi'), 'echo "NVIDIA H100 80GB HBM3, 570.1, 81559"');
  for (const tool of ['nvcc', 'cmake', 'ctest', 'compute-sanitizer']) program(join(bin, tool), 'exit 0');
  program(join(build, 'longhaul-engine'), 'exit 0');
  const line = `{"tokens_per_second": 12.5, "state": "%s", "parameters": 500000000, "update_seconds": 2, "digest_seconds": 0.1, "copy_seconds": 2e-2, "bytes_of_plan": 0.97}\\n`;
  program(
    join(build, 'longhaul-gpu-rates'),
    `echo '{"kind":"peak","tflops":0.05,"gigabytes_per_second":1}'; echo '{"kind":"all products","tflops":30,"lowest_of_peak":0.6612}'`,
  );
  program(
    join(build, 'longhaul-bench'),
    `case "$*" in *--decode*) echo '{"bench":"decode","tokens_per_second":8,"bytes_per_token":1e8,"flops_per_token":1e3}'; exit;; esac
     [ "$LONGHAUL_DEVICE" = cpu ] && printf '${line}' ${state.cpu} || printf '${line}' ${state.cuda}
     exit ${benchCode}`,
  );
  program(
    join(bin, 'node'),
    `printf '{"cpu":"%s","device":"%s","moved":"%s"}\\n' ${state.cpu} ${state.cuda} ${state.cpu}; [ ${state.cpu} = ${state.cuda} ]`,
  );
  const env = { PATH: `${bin}:/usr/bin:/bin`, LONGHAUL_GPU_CHECK_DIR: build, HOME: folder };
  try {
    return { code: 0, printed: execFileSync('bash', [script, file], { env, encoding: 'utf8' }), file };
  } catch (error) {
    const { status, stdout } = error as { status: number; stdout: string };
    return { code: status, printed: stdout, file };
  }
}

test('gpu_check.sh passes a GPU whose bits are the CPU’s, and writes what the benchmarks print', () => {
  const { code, printed, file } = check({ cpu: 'aaaa', cuda: 'aaaa' });
  expect({ code, printed }).toEqual({ code: 0, printed: expect.stringContaining('written: ') as string });
  mkdirSync(join(folder, 'right'));
  writeFileSync(join(folder, 'right/h100.json'), readFileSync(file));
  const [report] = readGpuReports(join(folder, 'right'));
  if (!report) throw new Error('there is no report');
  expect(misses(report)).toBe(false);
  expect(reportedText(report.gpu, [report])).toMatch(/^this GPU was reported on .*: all .*bars held/);
  const text = gpuReportText(report);
  expect(text).toContain('NVIDIA H100 80GB HBM3, driver 570.1, 81559 MiB');
  expect(text).toMatch(/states after 20 steps of a run: CPU, GPU, CPU → GPU → CPU +aaaa aaaa aaaa/);
  expect(text).toMatch(/training, 0\.6 B, sequences of 1,024 +12\.50 tokens\/s/);
  // 12.5 tokens/s · 6 · 5e8 of 5e10 operations/s; 8 of 1e9 / 1e8 tokens/s, since memory is the nearer limit; 0.12 of 2 s.
  expect(text).toMatch(/training, 0\.6 B: of the peak +0\.75 +at least 0\.5 +holds/);
  expect(text).toMatch(/decoding, 0\.6 B: of the nearer limit +0\.80 +at least 0\.6 +holds/);
  expect(text).toMatch(/digest and copies of an update, 0\.6 B: of its time +0\.06 +at most 0\.1 +holds/);
  expect(text).toMatch(/the slowest, of the peak +0\.66 +at least 0\.65 +holds/);
  expect(text).toMatch(/speeds beside PyTorch +not measured/);
});

test('gpu_check.sh fails a GPU whose state has another digest', () => {
  const { code, file } = check({ cpu: 'aaaa', cuda: 'bbbb' });
  expect(code).toBe(1);
  mkdirSync(join(folder, 'wrong'));
  writeFileSync(join(folder, 'wrong/h100.json'), readFileSync(file));
  expect(readGpuReports(join(folder, 'wrong')).map(misses)).toEqual([true]);
});

test('gpu_check.sh fails a GPU on which a program crashes', () => {
  const { code, printed } = check({ cpu: 'aaaa', cuda: 'aaaa' }, 1);
  expect({ code, printed }).toEqual({
    code: 1,
    printed: expect.stringMatching(/a program failed +longhaul-bench train --size 6M: code 1/) as string,
  });
});

test('gpu_check.sh explains itself when it is asked to', () => {
  const { status, stdout } = spawnSync('bash', [script, '--help'], { encoding: 'utf8' });
  expect({ status, stdout }).toEqual({
    status: 2,
    stdout: expect.stringContaining('gpu_check.sh [RESULT.json]') as string,
  });
});
