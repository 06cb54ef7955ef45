// What `longhaul env check` finds on servers of each kind.
import { afterEach, describe, expect, test } from 'vitest';
import { tryEnvironment } from '../../../src/cli/stack/environment-trial.js';
import { startHttpWorld } from '../../environments/http-world.js';
import { counterTask, startCounterServer, token } from '../../environments/stand-in.js';
import { longhaul } from '../../support/command-line.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const about = (check: string, detail: RegExp, ok = true) => ({
  ...{ check, ok },
  detail: expect.stringMatching(detail) as string,
});

describe('env check', () => {
  test('finds a server’s tools, its answers to mistakes, and its grade', async () => {
    const server = await startCounterServer();
    closers.push(() => server.close());
    const found = await tryEnvironment({
      server: { url: server.url, gradingToken: token },
      task: counterTask(2),
    });
    expect(found).toEqual([
      about('contract', /^tools; over \/ws/),
      about(
        'episode',
        /^increment\(\), refuse\(\), crash\(\), shout\(\)\nthe reset shows the model nothing$/,
      ),
      about('seed', /begin alike/),
      about('mistake', /is an error for the model: unknown tool no_such_tool/),
      about('grade', /^doing nothing is graded 0 \(counted to 0/),
      about('reward', /^after the mistake the grade is 0$/),
      about('latency', /^an episode begins in \d+ ms$/),
    ]);
  });

  test('finds the action of a server without tools and sockets, and that it gives no reward yet', async () => {
    const world = await startHttpWorld();
    closers.push(() => world.close());
    const { code, output } = await longhaul(['env', 'check', world.url, '--reset', '{"goal":5}', '--json']);
    expect(JSON.parse(output)).toEqual([
      about('contract', /^actions of its own, as one tool; over POST/),
      about('episode', /^act\(by\)\nit begins with: Count to 5\.$/),
      about('seed', /begin alike/),
      about('mistake', /an action without fields is answered with/),
      about('grade', /^doing nothing is graded 0 \(no call was made, and the reset gave no reward\)$/),
      about('reward', /^after the mistake the grade is 0$/),
      about('latency', /^an episode begins in \d+ ms$/),
    ]);
    expect(code).toBe(0);
  });

  test('says that a mistake of the model must not fail the episode', async () => {
    const world = await startHttpWorld();
    closers.push(() => world.close());
    world.answer = (path) => (path === '/step' ? { status: 500, body: { detail: 'KeyError' } } : null);
    const found = await tryEnvironment({ server: { url: world.url }, task: counterTask(2) });
    expect(found[3]).toEqual(about('mistake', /fails the episode, as if the server were broken/, false));
  });

  test.each([
    ['a server that is away', 'http://127.0.0.1:9', [], /127.0.0.1:9 does not answer/],
    ['a text that is not an address', 'localhost:8000', [], /of the form http:\/\/host:port/],
    ['a reset that is no object', 'http://127.0.0.1:9', ['--reset', '[1]'], /must be a JSON object/],
    ['a variable that is not set', 'http://127.0.0.1:9', ['--headers-env', 'NOT_SET'], /NOT_SET/],
  ])('ends with one error for %s', async (_, url, flags, message) => {
    const { code, output, errors } = await longhaul(['env', 'check', url, ...flags]);
    expect(output + errors).toMatch(message);
    expect(code).not.toBe(0);
  });
});
