// Writes one key into a directory store and kills itself before the k-th file system call (or in the middle of a write). Arguments: root,
// key, source file, way (`bytes`, `file`, or `beaten`: another writer stores the key a moment earlier), k. If it is not killed, it prints
// the beginning and the end of each call, in order.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { relative } from 'node:path';

export interface Traced {
  /** Name of the call, or `{name} ended`. */
  call: string;
  /** Path relative to the store's root; for a link, its new path. */
  path: string;
}

const [root = '', key = '', source = '', way = '', k = ''] = process.argv.slice(2);
const body = fs.readFileSync(source);
let calls = 0;
const trace: Traced[] = [];
const paths = new WeakMap<object, string>();

async function traced<T>(call: string, path: string, run: () => Promise<T>): Promise<T> {
  calls++;
  if (calls === Number(k)) process.kill(process.pid, 'SIGKILL');
  trace.push({ call, path });
  try {
    return await run();
  } finally {
    trace.push({ call: `${call} ended`, path });
  }
}

type Call = (...args: unknown[]) => Promise<unknown>;

function watch(target: object, name: string): void {
  const methods = target as Record<string, Call>;
  const original = methods[name] as Call;
  methods[name] = async function (this: object, ...args) {
    const path = name === 'link' ? args[1] : (paths.get(this) ?? args[0]);
    const result = await traced(name, relative(root, String(path)), () => {
      if (name === 'link' && way === 'beaten') fs.writeFileSync(String(path), 'other');
      return original.apply(this, args);
    });
    if (name === 'open') paths.set(result as object, String(path));
    return result;
  };
}

const probe = await fs.promises.open(source);
const handle = Object.getPrototypeOf(probe) as Record<string, Call>;
await probe.close();
const writeFile = handle.writeFile as Call;
handle.writeFile = async function (this: object, data) {
  const bytes = data as Buffer;
  const half = bytes.length >> 1;
  const path = relative(root, paths.get(this) ?? '');
  await traced('write', path, () => writeFile.call(this, bytes.subarray(0, half)));
  return traced('write', path, () => writeFile.call(this, bytes.subarray(half)));
};
for (const name of ['write', 'datasync', 'sync', 'close']) watch(handle, name);
for (const name of ['open', 'link', 'mkdir', 'rm', 'unlink', 'rename', 'stat', 'readdir'])
  watch(fs.promises, name);
syncBuiltinESMExports();

const { openDirectoryStore } = await import('../../../../src/store/objects/directory-store.js');
const store = await openDirectoryStore(root);
const answer = way === 'file' ? await store.createFromFile(key, source) : await store.create(key, body);
console.log(JSON.stringify({ calls, answer, trace }));
