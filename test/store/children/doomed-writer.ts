// Writes one key into a directory store and kills itself before the k-th file system call (or in the middle of a write).
// Arguments: root, key, source file, `bytes` or `file`, k. Prints how many calls there were, where it lives to the end.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const [root = '', key = '', source = '', way = '', k = ''] = process.argv.slice(2);
const body = fs.readFileSync(source);
let calls = 0;

function dieAtCall(): void {
  calls++;
  if (calls === Number(k)) process.kill(process.pid, 'SIGKILL');
}

type Call = (...args: unknown[]) => Promise<unknown>;

function watch(target: object, name: string): void {
  const methods = target as Record<string, Call>;
  const original = methods[name] as Call;
  methods[name] = function (this: unknown, ...args) {
    dieAtCall();
    return original.apply(this, args);
  };
}

const probe = await fs.promises.open(source);
const handle = Object.getPrototypeOf(probe) as Record<string, Call>;
await probe.close();
const writeFile = handle.writeFile as Call;
handle.writeFile = async function (this: unknown, data) {
  const bytes = data as Buffer;
  const half = bytes.length >> 1;
  dieAtCall();
  await writeFile.call(this, bytes.subarray(0, half));
  dieAtCall();
  return writeFile.call(this, bytes.subarray(half));
};
for (const name of ['write', 'datasync', 'sync', 'close']) watch(handle, name);
for (const name of ['open', 'link', 'mkdir', 'rm', 'unlink', 'rename', 'stat', 'readdir'])
  watch(fs.promises, name);
syncBuiltinESMExports();

const { openDirectoryStore } = await import('../../../src/store/directory-store.js');
const store = await openDirectoryStore(root);
const answer = way === 'file' ? await store.createFromFile(key, source) : await store.create(key, body);
console.log(JSON.stringify({ calls, answer }));
