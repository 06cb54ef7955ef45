// The wait for an environment that is down (R25) is measured from its first failure after its last answer.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { type EpisodeDeps, type EpisodePlay, playEpisode } from '../../src/episode/episode-loop.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import { counterTask, startCounterServer, token } from '../environments/stand-in.js';
import { hermes, sampling } from './fixtures.js';
import { scriptedPolicy } from './scripted-policy.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const increment = '<tool_call>{"name":"increment","arguments":{}}</tool_call>';
const policy = () => scriptedPolicy(tokenizer, [increment, increment, '<done>']);

function play(url: string, maxWaitMs: number, engine: EpisodeDeps['engine']): Promise<EpisodePlay> {
  const backend = createOpenEnvBackend({ url, gradingToken: token, maxSessions: 4 });
  return playEpisode(
    { engine, tokenizer, template, backend, ...hermes },
    {
      ...{ task: counterTask(2), sampling, state: 'a'.repeat(64), policyStep: 0, maxWaitMs },
      key: { seed: 1, domain: 'train', step: 1, slot: 0, sample: 0 },
      ...{ episodeSeed: 1, episodeId: 'e' },
    },
    AbortSignal.timeout(15_000),
  ).finally(() => backend.close());
}

it('the limit of the wait starts again with each outage: several short outages may together last longer', async () => {
  const maxWaitMs = 2_000;
  const outageMs = 1_200;
  let server = await startCounterServer();
  const { url } = server;
  let restarting = Promise.resolve();
  let downMs = 0;
  const scripted = policy();
  try {
    const { outcome, failures } = await play(url, maxWaitMs, {
      // The server goes down before each of the two tool calls. A turn that is played again is not sampled again.
      generate: async (request, signal) => {
        const turn = await scripted.generate(request, signal);
        if (scripted.requests.length > 2) return turn;
        await server.close();
        const from = performance.now();
        restarting = sleep(outageMs).then(async () => {
          downMs += performance.now() - from;
          server = await startCounterServer({ port: Number(new URL(url).port) });
        });
        return turn;
      },
    });
    expect(outcome).toEqual({ status: 'graded', value: 1 });
    expect(failures).toEqual({ socket_lost: 2 });
    expect(downMs).toBeGreaterThan(maxWaitMs);
  } finally {
    await restarting;
    await server.close();
  }
});

it('the wait continues during failures of a server that says it is healthy but opens no episode', async () => {
  const maxWaitMs = 1_000;
  let refused = 0;
  const server = createServer((_, response) => response.end('{"status":"healthy"}'));
  server.on('upgrade', (_, socket) => {
    refused += 1;
    socket.destroy();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const started = performance.now();
  try {
    await expect(
      play(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, maxWaitMs, policy()),
    ).rejects.toMatchObject({
      name: 'EnvironmentsUnavailable',
      message: expect.stringContaining('has been down for 1 s (no connection') as string,
    });
    const waitedMs = performance.now() - started;
    expect(waitedMs).toBeGreaterThanOrEqual(maxWaitMs - 5);
    expect(waitedMs).toBeLessThan(maxWaitMs + 3_000);
    expect(refused).toBeGreaterThan(1);
  } finally {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  }
});
