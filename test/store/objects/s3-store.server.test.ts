import { readdir, readFile, writeFile } from 'node:fs/promises';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CreateMultipartUploadCommand, ListMultipartUploadsCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore, probeStore } from '../../../src/store/open-store.js';
import { parseS3Address } from '../../../src/store/objects/s3-address.js';
import { openS3Store, type S3Options } from '../../../src/store/objects/s3-store.js';
import { freePort } from '../../../src/stack/free-port.js';
import {
  breakFirst,
  startFaultProxy,
  type Fault,
  type FaultProxy,
} from '../../support/servers/fault-proxy.js';
import { startS3Server, type S3Server } from '../../support/servers/s3-server.js';
import { repository } from '../../support/repository.js';
import { bytesOf, conformance } from './conformance.js';
import { ownFolder } from '../../support/scratch-folder.js';

const partBytes = 5 << 20;

let server: S3Server;
let proxy: FaultProxy;
beforeAll(async () => {
  server = await startS3Server();
  proxy = await startFaultProxy(server.endpoint);
});
afterEach(() => proxy.plan(() => null));
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});

function openAt(prefix: string, options: S3Options = {}, endpoint?: string): ObjectStore {
  return openS3Store(parseS3Address(server.address(prefix, endpoint)), { partBytes: partBytes, ...options });
}
const throughProxy = (options: S3Options = {}) =>
  openAt(
    `p${randomBytes(5).toString('hex')}`,
    { deadlineMs: 20_000, requestTimeoutMs: 1_000, ...options },
    proxy.endpoint,
  );

describe('a store in a bucket', () => {
  conformance(() => Promise.resolve(openAt('conformance')));

  it('keeps two prefixes of a bucket apart', async () => {
    const [one, other] = [openAt('one'), openAt('one-more')];
    expect(await one.create('key', bytesOf('1'))).toBe('created');
    expect(await other.create('key', bytesOf('2'))).toBe('created');
    expect(await one.listFolder('')).toEqual(['key']);
  });
});

const isPut = ({ method, url }: { method: string; url: string }) =>
  method === 'PUT' && !url.includes('uploadId=');
const isCompletion = ({ method, url }: { method: string; url: string }) =>
  method === 'POST' && url.includes('uploadId=');

describe('after an unclear answer, the store reads the key (R3)', () => {
  const faults: [string, Fault][] = [
    ['500 after the object was stored', { kind: 'answerAfter', status: 500, code: 'InternalError' }],
    ['503 after the object was stored', { kind: 'answerAfter', status: 503, code: 'SlowDown' }],
    ['a reply lost after the object was stored', { kind: 'loseReply' }],
    ['a time-out after the object was stored', { kind: 'hang' }],
    [
      '409 after the object was stored',
      { kind: 'answerAfter', status: 409, code: 'ConditionalRequestConflict' },
    ],
    ['500 before anything was stored', { kind: 'answer', status: 500, code: 'InternalError' }],
    ['409 before anything was stored', { kind: 'answer', status: 409, code: 'ConditionalRequestConflict' }],
  ];

  it.each(faults)('%s: the store sees that its own put was stored', async (_, fault) => {
    const store = throughProxy();
    proxy.plan(breakFirst(1, isPut, fault));
    expect(await store.create('key', bytesOf('mine'))).toBe('created');
    expect(Buffer.from((await store.get('key')) ?? []).toString()).toBe('mine');
  });

  it.each(faults)('%s: the store sees that the object is another author’s', async (_, fault) => {
    const store = throughProxy();
    expect(await store.create('key', bytesOf('theirs'))).toBe('created');
    proxy.plan(breakFirst(1, isPut, fault));
    expect(await store.create('key', bytesOf('mine'))).toBe('exists');
    expect(Buffer.from((await store.get('key')) ?? []).toString()).toBe('theirs');
  });

  it('a 412 as the first answer means another author, even if the bytes are equal', async () => {
    const store = throughProxy();
    await store.create('key', bytesOf('same'));
    expect(await store.create('key', bytesOf('same'))).toBe('exists');
  });

  it.each(faults)('%s: the store sees that its own large upload was completed', async (_, fault) => {
    const store = throughProxy();
    const folder = ownFolder();
    const path = join(folder, 'file');
    await writeFile(path, randomBytes(partBytes + 1000));
    proxy.plan(breakFirst(1, isCompletion, fault));
    expect(await store.createFromFile('large', path)).toBe('created');
    expect(await store.head('large')).toMatchObject({ size: partBytes + 1000 });
  });

  it('a request that is refused because of the machine’s clock is tried again', async () => {
    const store = throughProxy();
    proxy.plan(breakFirst(1, () => true, { kind: 'answer', status: 403, code: 'RequestTimeTooSkewed' }));
    expect(await store.create('key', bytesOf('x'))).toBe('created');
  });

  it('reads are tried again', async () => {
    const store = throughProxy();
    await store.create('a/key', bytesOf('x'));
    const once = (method: string) =>
      breakFirst(4, (request) => request.method === method, {
        kind: 'answer',
        status: 503,
        code: 'SlowDown',
      });
    proxy.plan(once('GET'));
    expect(await store.get('a/key')).toHaveLength(1);
    proxy.plan(once('HEAD'));
    expect(await store.head('a/key')).not.toBeNull();
    proxy.plan(once('GET'));
    expect(await store.listFolder('a/')).toEqual(['key']);
  });

  it('a store that stays down causes StoreUnavailable within the deadline', async () => {
    const store = throughProxy({ deadlineMs: 1_500 });
    proxy.plan(() => ({ kind: 'answer', status: 503, code: 'SlowDown' }));
    const started = Date.now();
    await expect(store.create('key', bytesOf('x'))).rejects.toMatchObject({
      name: 'StoreUnavailable',
      message: expect.stringContaining('503') as string,
    });
    expect(Date.now() - started).toBeLessThan(10_000);
  });
});

describe('a reply that stops half-way or is too slow', () => {
  const stall: Fault = { kind: 'stall' };
  const isGet = ({ method }: { method: string }) => method === 'GET';
  const content = randomBytes(300_000);
  const patient = (options: S3Options = {}) => throughProxy({ requestTimeoutMs: 300, ...options });
  async function withObject(options: S3Options = {}): Promise<ObjectStore> {
    const store = patient(options);
    await store.create('a/key', content);
    return store;
  }

  it('is requested again by get, getToFile and lists', async () => {
    const store = await withObject();
    const folder = ownFolder();
    const path = join(folder, 'file');
    proxy.plan(breakFirst(1, isGet, stall));
    expect(Buffer.compare((await store.get('a/key'))!, content)).toBe(0);
    proxy.plan(breakFirst(1, isGet, stall));
    expect(await store.getToFile('a/key', path)).toBe(true);
    expect(Buffer.compare(await readFile(path), content)).toBe(0);
    proxy.plan(breakFirst(1, isGet, stall));
    expect(await store.listFolder('a/')).toEqual(['key']);
  });

  it('causes an error within the deadline if every reply stops, and leaves no part of a file', async () => {
    const store = await withObject({ deadlineMs: 700 });
    const folder = ownFolder();
    proxy.plan(() => stall);
    const unavailable = { name: 'StoreUnavailable' };
    await Promise.all([
      expect(store.get('a/key')).rejects.toMatchObject(unavailable),
      expect(store.getToFile('a/key', join(folder, 'file'))).rejects.toMatchObject(unavailable),
      expect(store.listFolder('a/')).rejects.toMatchObject(unavailable),
    ]);
    expect(await readdir(folder)).toEqual([]);
  });

  it('ends a stream with StoreUnavailable, which names the key', async () => {
    const store = await withObject();
    proxy.plan(breakFirst(1, isGet, stall));
    const read = async (): Promise<number> => {
      let bytes = 0;
      for await (const piece of (await store.stream('a/key')) ?? []) bytes += piece.length;
      return bytes;
    };
    await expect(read()).rejects.toMatchObject({
      name: 'StoreUnavailable',
      message: expect.stringContaining('a/key') as string,
    });
    expect(await read()).toBe(content.length);
  });

  it('is treated like a reply that never came: both are requested again', async () => {
    const store = await withObject();
    for (const method of ['GET', 'HEAD']) {
      proxy.plan(breakFirst(1, (request) => request.method === method, { kind: 'hang' }));
      expect(method === 'GET' ? await store.get('a/key') : await store.head('a/key')).not.toBeNull();
    }
  });

  it('causes an error within the deadline if it is too slow, even if it never pauses', async () => {
    const store = await withObject({ deadlineMs: 0 });
    proxy.plan(() => ({ kind: 'trickle', everyMs: 20 }));
    const unavailable = { name: 'StoreUnavailable' };
    await Promise.all([
      expect(store.get('a/key')).rejects.toMatchObject({
        ...unavailable,
        message: expect.stringContaining('too slow') as string,
      }),
      expect(store.listFolder('a/')).rejects.toMatchObject(unavailable),
    ]);
  });

  it('ends at once, with the signal’s reason, if the caller aborts', async () => {
    const store = patient({ requestTimeoutMs: 15_000 });
    await store.create('a/key', content);
    const folder = ownFolder();
    const stop = new AbortController();
    proxy.plan((request) => {
      if (!isGet(request)) return null;
      setTimeout(() => stop.abort(new Error('enough')), 50);
      return stall;
    });
    await expect(store.getToFile('a/key', join(folder, 'file'), { signal: stop.signal })).rejects.toThrow(
      'enough',
    );
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('a failure of the node’s own disk', () => {
  let gets = 0;
  async function withObject(): Promise<ObjectStore> {
    const store = throughProxy();
    await store.create('a/key', randomBytes(300_000));
    gets = 0;
    proxy.plan(({ method }) => {
      if (method === 'GET') gets += 1;
      return null;
    });
    return store;
  }

  it('is thrown unchanged, and the object is not fetched again', async () => {
    const store = await withObject();
    const path = join(tmpdir(), `longhaul-${randomBytes(6).toString('hex')}`, 'no-such-folder', 'file');
    await expect(store.getToFile('a/key', path)).rejects.toMatchObject({ code: 'ENOENT' });
    expect(gets).toBe(1);
  });

  it('for lack of space says at once where to make room, and leaves no part of a file', async ({ skip }) => {
    const folder = ownFolder();
    const mount = ['-t', 'tmpfs', '-o', 'size=64k', 'longhaul-test', folder];
    const mounted = spawnSync('mount', mount, { stdio: 'ignore' }).status === 0;
    try {
      if (!mounted) return skip('this user may not mount a small file system');
      const store = await withObject();
      const fetching = store.getToFile('a/key', join(folder, 'file'));
      await expect(fetching).rejects.toMatchObject({ name: 'StoreFull' });
      await expect(fetching).rejects.toThrow(`no space for ${join(folder, 'file')}`);
      expect(gets).toBe(1);
      expect(await readdir(folder)).toEqual([]);
    } finally {
      if (mounted) spawnSync('umount', [folder]);
    }
  });

  it('is not treated as the store’s failure: an error in the reader’s own code is thrown at once', async () => {
    const store = await withObject();
    const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    const onProgress = (): void => {
      throw full;
    };
    const folder = ownFolder();
    const fetching = store.getToFile('a/key', join(folder, 'file'), { onProgress });
    await expect(fetching).rejects.toMatchObject({ name: 'StoreFull', cause: full });
    expect(gets).toBe(1);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('a problem that no retry can fix', () => {
  it('a missing bucket: the error names it', async () => {
    const store = openS3Store(parseS3Address(server.address('p').replace(server.bucket, 'no-such-bucket')));
    await expect(store.create('key', bytesOf('x'))).rejects.toMatchObject({ name: 'StoreUnfit' });
    await expect(store.create('key', bytesOf('x'))).rejects.toThrow(/no such bucket/);
    await expect(store.listFolder('')).rejects.toThrow(/no such bucket/);
  });

  it.each([
    [301, 'PermanentRedirect'],
    [307, 'TemporaryRedirect'],
    [400, 'AuthorizationHeaderMalformed'],
  ])(
    'another region’s answer (%d %s): the error comes at once and names the setting',
    async (status, code) => {
      const store = throughProxy();
      proxy.plan(() => ({ kind: 'answer', status, code }));
      for (const ask of [() => store.get('key'), () => store.create('key', bytesOf('x'))]) {
        proxy.seen.length = 0;
        await expect(ask()).rejects.toMatchObject({
          name: 'StoreUnfit',
          message: expect.stringMatching(/another region.*region=.*AWS_REGION/) as string,
        });
        expect(proxy.seen).toHaveLength(1);
      }
    },
  );

  describe('a missing or wrong setting: the error comes at once and says how to set', () => {
    beforeEach(() => {
      for (const name of ['AWS_REGION', 'AWS_PROFILE']) vi.stubEnv(name, undefined);
      for (const name of ['AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE'])
        vi.stubEnv(name, '/no-such-folder/file');
      vi.stubEnv('AWS_EC2_METADATA_DISABLED', 'true');
    });
    afterEach(() => vi.unstubAllEnvs());
    async function asked(address: string): Promise<unknown> {
      const begun = performance.now();
      const store = openS3Store(parseS3Address(address), { deadlineMs: 20_000 });
      const errors = await Promise.all(
        [store.get('key'), store.create('key', bytesOf('x')), store.listFolder('')].map((asking) =>
          asking.then(
            () => null,
            (error: unknown) => error,
          ),
        ),
      );
      expect(performance.now() - begun).toBeLessThan(5_000);
      expect(errors[1]).toEqual(errors[0]);
      expect(errors[2]).toEqual(errors[0]);
      return errors[0];
    }

    it('the region', async () => {
      expect(await asked('s3://bucket/p')).toMatchObject({
        name: 'StoreUnfit',
        message: expect.stringMatching(/^s3:\/\/bucket\/p: no usable region; set AWS_REGION/) as string,
      });
      expect(await asked('s3://bucket/p?region=us_east/1')).toMatchObject({
        name: 'StoreUnfit',
        message: expect.stringContaining('us_east/1') as string,
      });
    });

    it('the credentials', async () => {
      vi.stubEnv('AWS_ACCESS_KEY_ID', undefined);
      vi.stubEnv('AWS_SECRET_ACCESS_KEY', undefined);
      expect(await asked('s3://bucket/p?region=us-east-1')).toMatchObject({
        name: 'StoreUnfit',
        message: expect.stringContaining('set AWS_ACCESS_KEY_ID') as string,
      });
    });

    it.each(['127.0.0.1:9000', 'localhost:9000', 'ftp://127.0.0.1'])('an endpoint such as %s', (endpoint) => {
      expect(() => parseS3Address(`s3://bucket/p?endpoint=${endpoint}`)).toThrow(/use http:\/\/host:port/);
    });
  });

  it('an endpoint that does not answer is tried again, and the error says what to check', async () => {
    const address = parseS3Address(server.address('p', `http://127.0.0.1:${await freePort()}`));
    await expect(openS3Store(address, { deadlineMs: 500 }).get('key')).rejects.toMatchObject({
      name: 'StoreUnavailable',
      message: expect.stringMatching(/[2-9] tries.*ECONNREFUSED.*check.*endpoint=/) as string,
    });
  });

  it('refused access: the error says so without the secret', async () => {
    const store = throughProxy();
    proxy.plan(() => ({ kind: 'answer', status: 403, code: 'SignatureDoesNotMatch' }));
    await expect(store.get('key')).rejects.toThrow(/access was refused.*SignatureDoesNotMatch/);
    await expect(store.get('key')).rejects.not.toThrow(/test-secret-key/);
  });
});

it('an upload that the service drops between its parts leaves no object, and the next try succeeds', async () => {
  const store = throughProxy();
  const folder = ownFolder();
  const path = join(folder, 'file');
  await writeFile(path, randomBytes(partBytes + 1000));
  let dropped: string | null = null;
  proxy.plan((request) => {
    const upload = new URLSearchParams(request.url.split('?')[1]).get('uploadId');
    if (request.url.includes('partNumber=2')) dropped ??= upload;
    return upload && upload === dropped ? { kind: 'answer', status: 404, code: 'NoSuchUpload' } : null;
  });
  await expect(store.createFromFile('large', path)).rejects.toMatchObject({ name: 'StoreUnavailable' });
  expect(await store.head('large')).toBeNull();
  expect(await store.createFromFile('large', path)).toBe('created');
  expect(await store.head('large')).toMatchObject({ size: partBytes + 1000 });
});

it('an upload that the service drops before its completion fails at once: a retry could not succeed', async () => {
  const store = throughProxy();
  const folder = ownFolder();
  const path = join(folder, 'file');
  await writeFile(path, randomBytes(partBytes + 1000));
  proxy.plan((request) =>
    isCompletion(request) ? { kind: 'answer', status: 404, code: 'NoSuchUpload' } : null,
  );
  const begun = performance.now();
  await expect(store.createFromFile('large', path)).rejects.toMatchObject({ name: 'StoreUnavailable' });
  expect(performance.now() - begun).toBeLessThan(10_000);
});

it('opening a bucket prints no warning about future SDK versions', () => {
  // This needs its own process, as the SDK warns only once in a process.
  const script = `const { openStore } = await import('./src/store/open-store.ts'); await openStore('${server.address('p')}')`;
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['--import', './test/support/preloads/typescript-register.mjs', '--input-type=module', '--eval', script],
    { cwd: repository, encoding: 'utf8' },
  );
  expect({ status, output: stdout + stderr }).toEqual({ status: 0, output: '' });
});

it('old unfinished uploads are swept', async () => {
  const store = openAt('swept');
  const client = new S3Client({ endpoint: server.endpoint, region: 'us-east-1', forcePathStyle: true });
  await client.send(new CreateMultipartUploadCommand({ Bucket: server.bucket, Key: 'swept/left' }));
  expect(await store.sweep(60_000)).toBe(0);
  expect(await store.sweep(-60_000)).toBe(1);
  const left = await client.send(
    new ListMultipartUploadsCommand({ Bucket: server.bucket, Prefix: 'swept/' }),
  );
  expect(left.Uploads ?? []).toEqual([]);
});

it('the probe refuses a server that ignores If-None-Match, and says how to fix it', async () => {
  const careless = await startS3Server({ createOnly: false });
  try {
    const store = await openStore(careless.address('probe'));
    await expect(probeStore(store)).rejects.toMatchObject({
      name: 'StoreUnfit',
      message: expect.stringMatching(/simultaneous creates.*If-None-Match/s) as string,
    });
  } finally {
    await careless.stop();
  }
});
