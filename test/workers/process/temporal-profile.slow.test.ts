// Remote Temporal servers: client certificates and API keys from the profile of the `temporal` CLI. The tests use a real server behind a
// gateway that terminates TLS.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { temporalConfig } from '../../../src/cli/temporal-access.js';
import { writings } from '../../../src/base/secrets.js';
import {
  plainTemporalConfig,
  readTemporalConfig,
  readWorkerConfig,
} from '../../../src/workers/process/config.js';
import { lockFolder } from '../../../src/workers/process/folder-lock.js';
import { freePort } from '../../../src/stack/free-port.js';
import { ownerState } from '../../../src/workers/orchestrator/temporal-cluster.js';
import { connectClient } from '../../../src/workers/temporal/temporal-connection.js';
import { connectWorker } from '../../../src/workers/temporal/worker-connection.js';
import { hasOpenssl, makeAuthority, type Certificate } from '../../support/servers/certificates.js';
import { findEngine } from '../../support/find-tools.js';
import { startTemporalGateway, type TemporalGateway } from '../../support/servers/temporal-gateway.js';
import { ended, startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import { until } from '../../support/until.js';

const apiKey = 'key-of-the-team+/=7f3a';
const wrongKey = 'key-of-somebody-else+/=41c9';

describe.skipIf(!hasOpenssl())('a Temporal server behind TLS (certificates made by openssl)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-tls-'));
  const own = makeAuthority(folder, 'own');
  const foreign = makeAuthority(folder, 'foreign');
  const [server, client, stranger] = [own.sign('server'), own.sign('client'), foreign.sign('client')];
  const file = join(folder, 'temporal.toml');
  let temporal: TestTemporal;
  /** A gateway that requires a client certificate. */
  let certified: TemporalGateway;
  /** A gateway that requires an API key; its refusal quotes the key that it received. */
  let keyed: TemporalGateway;

  beforeAll(async () => {
    temporal = await startTemporal();
    const behind = { target: temporal.address, certificate: server };
    certified = await startTemporalGateway({ ...behind, clientAuthority: own.cert });
    keyed = await startTemporalGateway({
      ...behind,
      apiKey,
      refusal: (authorization) => `no such key: ${authorization}`,
    });
    writeFileSync(
      file,
      [
        ...['[profile.certified]', `address = "${certified.address}"`, ...tlsTable('certified', client)],
        ...['[profile.keyed]', `address = "${keyed.address}"`, `api_key = "${apiKey}"`, ...tlsTable('keyed')],
      ].join('\n'),
    );
  });
  afterEach(() => vi.unstubAllEnvs());
  afterAll(async () => {
    await Promise.all([certified?.stop(), keyed?.stop()]);
    await temporal?.stop();
    rmSync(folder, { recursive: true });
  });

  function tlsTable(profile: string, certificate?: Certificate): string[] {
    return [
      `[profile.${profile}.tls]`,
      `server_ca_cert_path = "${own.cert}"`,
      ...(certificate
        ? [`client_cert_path = "${certificate.cert}"`, `client_key_path = "${certificate.key}"`]
        : []),
    ];
  }

  const authority = { TEMPORAL_TLS_SERVER_CA_CERT_PATH: own.cert };
  const certificate = (of: Certificate) => ({
    TEMPORAL_TLS_CLIENT_CERT_PATH: of.cert,
    TEMPORAL_TLS_CLIENT_KEY_PATH: of.key,
  });
  /** The gateway and the variables that a user would export, for each way to configure access. */
  const ways: Record<string, () => { gateway: TemporalGateway; env: Record<string, string> }> = {
    'a certificate, by profile': () => ({
      gateway: certified,
      env: { TEMPORAL_CONFIG_FILE: file, TEMPORAL_PROFILE: 'certified' },
    }),
    'a certificate, by variables': () => ({
      gateway: certified,
      env: { TEMPORAL_ADDRESS: certified.address, ...authority, ...certificate(client) },
    }),
    'an API key, by profile': () => ({
      gateway: keyed,
      env: { TEMPORAL_CONFIG_FILE: file, TEMPORAL_PROFILE: 'keyed' },
    }),
    'an API key, by variables': () => ({
      gateway: keyed,
      env: { TEMPORAL_ADDRESS: keyed.address, ...authority, TEMPORAL_API_KEY: apiKey },
    }),
  };

  function configured(env: Record<string, string>) {
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
    return readTemporalConfig();
  }

  it.each(Object.keys(ways))('admits both clients with %s', async (way) => {
    const { gateway, env } = ways[way]!();
    const config = configured(env);
    const before = gateway.passed();
    const [{ client: opened, close }, native] = await Promise.all([
      connectClient(config),
      connectWorker(config),
    ]);
    await opened.workflowService.describeNamespace({ namespace: 'default' });
    await Promise.all([close(), native.close()]);
    expect(gateway.passed()).toBeGreaterThanOrEqual(before + 3);
  });

  const refusals: Record<string, () => { env: Record<string, string>; says: RegExp }> = {
    'no client certificate': () => ({
      env: { TEMPORAL_ADDRESS: certified.address, ...authority },
      says: /requires a client certificate; .*TEMPORAL_TLS_CLIENT_CERT_PATH/,
    }),
    'a client certificate of another authority': () => ({
      env: { TEMPORAL_ADDRESS: certified.address, ...authority, ...certificate(stranger) },
      says: /does not accept the client certificate; .*TEMPORAL_TLS_CLIENT_CERT_PATH/,
    }),
    'a key that belongs to another certificate': () => ({
      env: {
        TEMPORAL_ADDRESS: certified.address,
        ...authority,
        ...certificate({ cert: client.cert, key: stranger.key }),
      },
      says: /the client certificate and key cannot be used .*mismatch.*; .*TEMPORAL_TLS_CLIENT_KEY_PATH/,
    }),
    'an unknown signer of the server’s certificate': () => ({
      env: { TEMPORAL_ADDRESS: certified.address, ...certificate(client) },
      says: /its certificate is not trusted .*; .*TEMPORAL_TLS_SERVER_CA_CERT_PATH/,
    }),
    'a server name that the certificate does not have': () => ({
      env: {
        TEMPORAL_ADDRESS: certified.address,
        ...authority,
        ...certificate(client),
        TEMPORAL_TLS_SERVER_NAME: 'elsewhere.example',
      },
      says: /its certificate is for another host name; .*TEMPORAL_TLS_SERVER_NAME/,
    }),
    'no TLS': () => ({
      env: { TEMPORAL_ADDRESS: certified.address },
      says: /it uses TLS, but this connection does not; set TEMPORAL_TLS=true/,
    }),
    'TLS for a server that does not speak TLS': () => ({
      env: { TEMPORAL_ADDRESS: temporal.address, TEMPORAL_API_KEY: apiKey },
      says: /it does not use TLS, but this connection does; .*TEMPORAL_TLS=false/,
    }),
    'no API key': () => ({
      env: { TEMPORAL_ADDRESS: keyed.address, ...authority },
      says: /it requires an API key .*; .*TEMPORAL_API_KEY/,
    }),
    'a wrong API key': () => ({
      env: { TEMPORAL_ADDRESS: keyed.address, ...authority, TEMPORAL_API_KEY: wrongKey },
      says: /it does not accept the API key \(no such key: Bearer \[secret removed\]\); .*TEMPORAL_API_KEY/,
    }),
  };

  it.each(Object.keys(refusals))(
    'refuses both clients at once, given %s, and the error says how to fix it',
    async (name) => {
      const { env, says } = refusals[name]!();
      const config = configured(env);
      const begun = performance.now();
      const errors = await Promise.all(
        [connectClient(config, 20_000), connectWorker(config, 20_000)].map((attempt) =>
          attempt.then(
            () => new Error('it was let in'),
            (thrown: Error) => thrown,
          ),
        ),
      );
      for (const error of errors) {
        expect(error).toMatchObject({
          name: 'TemporalRefused',
          message: expect.stringMatching(says) as string,
        });
        expect(error.message).toContain(config.address);
        expectNoKey(`${error.message}\n${error.stack}`);
      }
      // This is well before the deadline: the clients did not keep retrying.
      expect(performance.now() - begun).toBeLessThan(15_000);
    },
  );

  it('causes TemporalUnreachable if it does not answer', async () => {
    const config = configured({
      TEMPORAL_ADDRESS: `127.0.0.1:${await freePort()}`,
      TEMPORAL_API_KEY: apiKey,
    });
    await expect(connectClient(config, 1_000)).rejects.toMatchObject({ name: 'TemporalUnreachable' });
  });

  it.each([
    [
      'a profile file that is not TOML',
      '[profile.default]\napi_key = "KEY\n',
      {},
      /temporal\.toml is not valid TOML: see line 2/,
    ],
    ['a missing profile', '[profile.a]\n', { TEMPORAL_PROFILE: 'b' }, /has no profile "b"/],
    [
      'a missing certificate file',
      '[profile.default.tls]\nclient_cert_path = "/nowhere/c.pem"\nclient_key_path = "/nowhere/c.key"\n',
      {},
      /names \/nowhere\/c\.pem, which cannot be read \(ENOENT\)/,
    ],
    [
      'a certificate without its key',
      '[profile.default.tls]\nclient_cert_path = "/nowhere/c.pem"\n',
      {},
      /a client certificate without its key; give both/,
    ],
    [
      'an address with a password',
      '[profile.default]\naddress = "u:KEY@host:7233"\n',
      {},
      /must be host:port/,
    ],
    [
      'an address with a scheme',
      '[profile.default]\naddress = "https://host:7233"\n',
      {},
      /must be host:port/,
    ],
  ])(
    '%s causes an error that says how to fix it and does not quote what may be a key',
    (_what, text, env, says) => {
      const broken = join(folder, 'broken', 'temporal.toml');
      mkdirSync(join(folder, 'broken'), { recursive: true });
      writeFileSync(broken, text.replaceAll('KEY', apiKey));
      const read = () => configured({ TEMPORAL_CONFIG_FILE: broken, ...env });
      expect(read).toThrow(says);
      expect(messageOf(read)).not.toContain(apiKey);
    },
  );

  it('a missing configuration file is an error if the user named it', () => {
    expect(() => configured({ TEMPORAL_CONFIG_FILE: join(folder, 'nowhere.toml') })).toThrow(
      /which does not exist/,
    );
  });

  it('the profile is not used for the embedded stack, which has neither keys nor certificates', () => {
    const env = { TEMPORAL_API_KEY: apiKey, TEMPORAL_NAMESPACE: 'of-the-team' };
    const address = '127.0.0.1:7999';
    const lock = lockFolder(join(folder, 'stack'), 'a test');
    writeFileSync(join(folder, 'stack', 'stack.json'), JSON.stringify({ temporal: address }));
    configured(env);
    try {
      expect(temporalConfig({ folder: join(folder, 'stack') }).config).toEqual(plainTemporalConfig(address));
    } finally {
      lock.release();
    }
    const args = [
      '--temporal-address',
      address,
      '--no-temporal-profile',
      '--store',
      'dir:x',
      '--folder',
      folder,
    ];
    expect(readWorkerConfig(args).temporal).toEqual(plainTemporalConfig(address));
  });

  it('the key is sent only to the profile’s server, even if a record names another address', async () => {
    const heard: string[] = [];
    const gateway = await startTemporalGateway({
      target: temporal.address,
      certificate: server,
      apiKey,
      refusal: (authorization) => {
        heard.push(authorization);
        return 'no';
      },
    });
    gateway.setApiKey('nobody has this one');
    const config = configured({ TEMPORAL_ADDRESS: keyed.address, ...authority, TEMPORAL_API_KEY: apiKey });
    const { client: opened, close } = await connectClient(config);
    try {
      const record = {
        schema: 'longhaul.owner/3',
        n: 1,
        address: `localhost:${gateway.address.split(':')[1]}`,
        clusterId: 'another',
        namespace: 'default',
        workflowId: 'train/x',
        firstExecutionRunId: 'y',
        observed: { at: '2026-01-01T00:00:00.000Z', by: 'a test' },
      } as const;
      expect(await ownerState(record, config, opened, 'box')).toBe('unreachable');
      expect(heard).toEqual([]);
    } finally {
      await close();
      await gateway.stop();
    }
  });

  /** Runs a command until it ends or `served` is true. `code`: its exit code; null if it was still running and then stopped. */
  async function processOf(
    command: readonly string[],
    env: Record<string, string>,
    served: (pid: number) => Promise<boolean>,
  ): Promise<{ code: number | null; output: string; seconds: number }> {
    const begun = performance.now();
    const child = spawn(command[0]!, command.slice(1), { cwd: folder, env: { ...process.env, ...env } });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (piece: Buffer) => (output += piece.toString()));
    const exit = once(child, 'close');
    await until(
      async () => child.exitCode !== null || (await served(child.pid!)),
      `${command[1]} to serve or to end`,
    );
    const code = child.exitCode;
    const seconds = (performance.now() - begun) / 1000;
    await ended(child);
    await exit;
    return { code, output, seconds };
  }

  const worker = (name: string, id: string): string[] => [
    ...[process.execPath, resolve(`dist/workers/${name}-main.js`), '--node', id, '--engine', findEngine()],
    ...['--store', `dir:${join(folder, 'store')}`, '--folder', join(folder, id)],
  ];
  const commands: Record<string, (id: string) => { command: string[]; queue: string | null }> = {
    'the command line': () => ({ command: [resolve('bin/longhaul'), 'runs', '--json'], queue: null }),
    'the orchestrator': (id) => ({ command: worker('orchestrator', id), queue: 'longhaul' }),
    'a node with its engine': (id) => ({ command: worker('node', id), queue: `longhaul-node.${id}.gpu` }),
  };
  const polled = async (queue: string | null, pid: number): Promise<boolean> => {
    if (queue === null) return false;
    const { pollers } = await temporal.client.workflowService.describeTaskQueue({
      namespace: 'default',
      taskQueue: { name: queue },
      taskQueueType: 2,
    });
    return (pollers ?? []).some(({ identity }) => identity?.endsWith(` ${pid}`));
  };

  describe.each(Object.keys(commands))('%s', (who) => {
    it.each(['a certificate, by profile', 'an API key, by variables'])('works with %s', async (way) => {
      const { gateway, env } = ways[way]!();
      const { command, queue } = commands[who]!(way.startsWith('a certificate') ? 'certified' : 'keyed');
      const before = gateway.passed();
      const { code, output } = await processOf(command, env, (pid) => polled(queue, pid));
      expect(gateway.passed()).toBeGreaterThan(before);
      expect(code, output).toBe(queue === null ? 0 : null);
      expectNoKey(output);
    });

    it.each(['a wrong API key', 'no client certificate'])(
      'ends with one clear error for %s',
      async (name) => {
        const { env, says } = refusals[name]!();
        const { command } = commands[who]!('refused');
        const { code, output, seconds } = await processOf(command, env, () => Promise.resolve(false));
        expect(code).toBe(1);
        expect(output).toMatch(says);
        expect(output.match(/cannot be used/g)).toHaveLength(who === 'the command line' ? 1 : 2);
        expectNoKey(output);
        expect(seconds).toBeLessThan(20);
      },
    );
  });
});

function expectNoKey(text: string): void {
  for (const key of [apiKey, wrongKey])
    for (const writing of writings(key)) expect(text).not.toContain(writing);
}

function messageOf(call: () => unknown): string {
  try {
    call();
    return '';
  } catch (error) {
    return `${(error as Error).message}\n${(error as Error).stack}`;
  }
}
