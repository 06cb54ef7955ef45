import { execFileSync } from 'node:child_process';
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
function check(state: { cpu: string; cuda: string }): { code: number; printed: string; file: string } {
  const bin = join(folder, `bin-${state.cuda}`);
  const build = join(folder, `build-${state.cuda}`);
  const file = join(folder, `${state.cuda}.json`);
  const program = (path: string, text: string): void => {
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
  };
  for (const made of [bin, build]) mkdirSync(made);
  program(join(bin, 'nvidia-smi'), 'echo "NVIDIA H100 80GB HBM3, 570.1, 81559"');
  for (const tool of ['nvcc', 'cmake', 'ctest']) program(join(bin, tool), 'exit 0');
  program(join(build, 'longhaul-engine'), 'exit 0');
  const line = `{"tokens_per_second": 12.5, "state": "%s"}\\n`;
  program(
    join(build, 'longhaul-bench'),
    `[ "$LONGHAUL_DEVICE" = cpu ] && printf '${line}' ${state.cpu} || printf '${line}' ${state.cuda}`,
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
  expect(text).toMatch(/training, 0\.6 B, sequences of 1,024 +12\.5 tokens\/s/);
});

test('gpu_check.sh fails a GPU whose state has another digest', () => {
  const { code, file } = check({ cpu: 'aaaa', cuda: 'bbbb' });
  expect(code).toBe(1);
  mkdirSync(join(folder, 'wrong'));
  writeFileSync(join(folder, 'wrong/h100.json'), readFileSync(file));
  expect(readGpuReports(join(folder, 'wrong')).map(misses)).toEqual([true]);
});
