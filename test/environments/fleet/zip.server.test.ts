import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { zip } from '../../../src/environments/fleet/zip.js';

const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('skipped: zip files in Python: python3 is not installed');

const program = `
import io, json, sys, zipfile
file = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
assert file.testzip() is None
print(json.dumps([[i.filename, i.date_time, i.compress_type, i.external_attr >> 16, file.read(i).decode()] for i in file.infolist()]))
`;

it.runIf(hasPython)('Python reads the files, with their fixed times', () => {
  const code = 'def verify(env):\n    return "Größe 🏨"\n'.repeat(3000);
  const input = zip([
    ['requirements.txt', 'fleet-python'],
    ['verifier.py', code],
    ['größe.txt', ''],
  ]);
  const { stdout, stderr } = spawnSync('python3', ['-c', program], { input, encoding: 'utf8' });
  expect(stderr).toBe('');
  const date = [1980, 1, 1, 0, 0, 0];
  expect(JSON.parse(stdout)).toEqual([
    ['requirements.txt', date, 0, 0o600, 'fleet-python'],
    ['verifier.py', date, 0, 0o600, code],
    ['größe.txt', date, 0, 0o600, ''],
  ]);
});
