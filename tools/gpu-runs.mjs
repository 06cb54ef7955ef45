// Shows that a training run ends in one state wherever it computes. Trains the same run three times through the command line: on the CPU, on
// another device, and moved from the CPU to that device and back.
// Usage: node tools/gpu-runs.mjs --engine PATH [--device NAME] [--spec FILE] [--within SECONDS] [KEY=VALUE...]
// KEY=VALUE changes the spec. Standard output is one line of JSON with the three states. Exit code 0: one state; 1: several states, or a run
// failed; 2: not understood; 3: the checkout is not set up; 124: not ended in time.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const repository = fileURLToPath(new URL('..', import.meta.url));
/**
 * Settings that give `presets/tiny.yaml` twenty steps: eight supervised ones, then twelve of GRPO. Each changes the weights. Evaluations change
 * no state, so they are kept small.
 */
const usualSettings = [
  ...['trainer.max_training_steps=12', 'trainer.eval_interval=1000'],
  ...['data.eval_tasks=1', 'data.final_eval_tasks=1'],
];
const exitCodes = { failed: 1, misunderstood: 2, notSetUp: 3, late: 124 };
/** The supervisor gives its processes up to 25 s, one after the other. */
const stackEndsWithinMs = 45_000;

class Ending extends Error {
  constructor(message, exitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Whether the three runs ended in one state. A run without a state is no proof. */
export function haveOneState({ cpu, device, moved }) {
  return Boolean(cpu) && cpu === device && cpu === moved;
}

/**
 * Trains the runs. `signal` ends the work early; even then all processes are ended and the folder is removed. A budget ends the moved run's
 * first and second part: it needs no command that could come too late, since a run may be over in seconds.
 */
async function trainAll({ engine, device, spec, settings }, signal) {
  // Real path: it is compared with the environments of running processes.
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'longhaul-gpu-runs-')));
  const stack = { folder: join(folder, 'stack'), engine, signal };
  const train = (at, name, ...more) => longhaul(at, ['train', spec, `name=${name}`, ...settings, ...more]);
  const part = (at, tokens) => train(at, 'moved', `budget.max_tokens=${Math.ceil(tokens)}`);
  try {
    const [cpu, first] = await withStack(stack, 'cpu', async (at) => {
      const whole = await train(at, 'cpu');
      return [whole, await part(at, whole.tokens / 4)];
    });
    const [second, other] = await withStack(stack, device, async (at) => {
      const moved = await part(at, first.tokens + (cpu.tokens - first.tokens) / 3);
      return [moved, await train(at, 'device')];
    });
    const moved = await withStack(stack, 'cpu', (at) => train(at, 'moved'));
    for (const { run, ended, step } of [cpu, other, moved])
      if (ended !== 'completed') throw new Error(`${run} ${ended} at step ${step}`);
    if (!(first.step < second.step && second.step < moved.step))
      throw new Error(
        `the run is too short to be moved: it ended after ${first.step}, ${second.step} and ${moved.step} steps`,
      );
    return {
      ...{ cpu: cpu.state, device: other.state, moved: moved.state },
      ...{ steps: moved.step, moved_after: [first.step, second.step] },
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs `longhaul up` with the engine on `device` while `use` works, and checks that the node computed there. */
async function withStack(stack, device, use) {
  say(`on ${device}`);
  const { signal } = stack;
  const environment = { ...ownEnvironment(), LONGHAUL_ENGINE: stack.engine, LONGHAUL_DEVICE: device };
  const up = spawn(
    process.execPath,
    [
      ...[join(repository, 'bin/longhaul'), 'up', '--folder', stack.folder, '--json', '--environments'],
      `'${process.execPath}' '${join(repository, 'dist/examples/apps/server/main.js')}'`,
    ],
    {
      ...{ cwd: repository, env: environment, stdio: ['ignore', 'pipe', 'pipe'] },
    },
  );
  const ended = new Promise((done) => up.once('close', done));
  const errors = textOf(up.stderr);
  try {
    const addresses = await Promise.race([
      once(createInterface(up.stdout), 'line').then(([line]) => JSON.parse(line)),
      ended.then(() => Promise.reject(new Error(`the stack did not start:\n${lastLines(errors.text)}`))),
      untilAborted(signal),
    ]);
    const flags = ['--folder', stack.folder, '--temporal-address', addresses.temporal];
    const at = { signal, flags, environment };
    const result = await use(at);
    const { nodes } = await longhaul(at, ['nodes']);
    const computedOn = nodes.map(({ gpu }) => (gpu ? 'a device' : 'the CPU')).join(', ');
    if (computedOn !== (device === 'cpu' ? 'the CPU' : 'a device'))
      throw new Error(`LONGHAUL_DEVICE was ${device}, but the node computed on ${computedOn || 'nothing'}`);
    return result;
  } catch (error) {
    const log = join(stack.folder, 'logs/node.log');
    if (existsSync(log)) say(`the node's log ends with:\n${lastLines(readFileSync(log, 'utf8'))}`);
    throw error;
  } finally {
    up.kill('SIGTERM');
    const late = AbortSignal.timeout(stackEndsWithinMs);
    await Promise.race([ended, untilAborted(late)]).catch(() => {
      up.kill('SIGKILL');
      endMarked(stack.folder);
    });
  }
}

/** Ends processes that a killed supervisor has left. Each has the supervisor's folder, which is ours alone, in its environment. */
function endMarked(folder) {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
      if (
        environment.some(
          (variable) => variable.startsWith('LONGHAUL_STACK=') && variable.endsWith(`:${folder}`),
        )
      )
        process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has ended, or belongs to another user.
    }
  }
}

/** Runs one command to its end, and returns the last JSON object that it prints. */
async function longhaul({ signal, flags, environment }, args) {
  signal.throwIfAborted();
  const child = spawn(process.execPath, [join(repository, 'bin/longhaul'), ...args, ...flags, '--json'], {
    ...{ cwd: repository, env: environment, stdio: ['ignore', 'pipe', 'pipe'] },
  });
  const [output, errors] = [textOf(child.stdout), textOf(child.stderr)];
  const ended = new Promise((done) => child.once('close', done));
  const end = () => child.kill('SIGKILL');
  signal.addEventListener('abort', end);
  const code = await ended;
  signal.removeEventListener('abort', end);
  signal.throwIfAborted();
  if (code !== 0)
    throw new Error(`longhaul ${args.join(' ')} failed:\n${lastLines(errors.text + output.text)}`);
  return JSON.parse(output.text.trim().split('\n').at(-1));
}

/** The environment without variables that would lead the commands to another server, store or node. */
function ownEnvironment() {
  const kept = ['LONGHAUL_CACHE', 'LONGHAUL_TEMPORAL', 'LONGHAUL_TEST_RUN'];
  const entries = Object.entries(process.env).filter(
    ([name]) => kept.includes(name) || !/^(TEMPORAL|LONGHAUL)_/.test(name),
  );
  return Object.fromEntries(entries);
}

function textOf(stream) {
  const read = { text: '' };
  stream.on('data', (bytes) => (read.text += bytes.toString()));
  return read;
}

function lastLines(text) {
  return text.trimEnd().split('\n').slice(-8).join('\n');
}

function untilAborted(signal) {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}

function say(message) {
  process.stderr.write(`gpu-runs: ${message}\n`);
}

function readArguments() {
  const string = { type: 'string' };
  const options = { engine: string, device: string, spec: string, within: string };
  let parsed;
  try {
    parsed = parseArgs({ options, allowPositionals: true });
  } catch (error) {
    throw new Ending(error.message, exitCodes.misunderstood);
  }
  const { engine, device = 'cuda', spec, within = '240' } = parsed.values;
  if (engine === undefined) throw new Ending('--engine PATH is missing', exitCodes.misunderstood);
  if (device === 'cpu')
    throw new Ending('--device is the other device, not the CPU', exitCodes.misunderstood);
  if (!(Number(within) > 0))
    throw new Ending(`--within takes seconds, not ${within}`, exitCodes.misunderstood);
  return {
    ...{ engine: resolve(engine), device, seconds: Number(within) },
    spec: resolve(spec ?? join(repository, 'presets/tiny.yaml')),
    settings: [...(spec === undefined ? usualSettings : []), ...parsed.positionals],
  };
}

/** All that is missing is installed by one command, except Node itself. */
function requireSetUp() {
  const temporal = [
    process.env['LONGHAUL_TEMPORAL'] ?? '',
    ...(process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'temporal')),
    join(repository, 'dist/temporal-path'),
  ];
  const missing = [
    ...(Number.parseInt(process.versions.node) >= 20 ? [] : [`Node 20 (this is ${process.versions.node})`]),
    ...['node_modules', 'dist/cli/main.js'].filter((path) => !existsSync(join(repository, path))),
    ...(temporal.some((path) => path !== '' && existsSync(path)) ? [] : ['a Temporal server']),
  ];
  if (missing.length > 0)
    throw new Ending(`${missing.join(', ')} is missing: run \`npm run setup\``, exitCodes.notSetUp);
}

async function main() {
  const begun = performance.now();
  const ending = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.on(name, () => ending.abort(new Ending(`ended by ${name}`, exitCodes.failed)));
  try {
    const { seconds, ...wanted } = readArguments();
    requireSetUp();
    const late = new Ending(`not ended within ${seconds} s`, exitCodes.late);
    const timer = setTimeout(() => ending.abort(late), seconds * 1000);
    const result = await trainAll(wanted, ending.signal).finally(() => clearTimeout(timer));
    const took = Math.round((performance.now() - begun) / 100) / 10;
    console.log(JSON.stringify({ ...result, seconds: took }));
    if (!haveOneState(result)) throw new Ending('the runs ended in several states', exitCodes.failed);
  } catch (error) {
    say(error.message);
    process.exitCode = error.exitCode ?? exitCodes.failed;
  }
}

if (import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) await main();
