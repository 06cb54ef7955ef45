// Numbers on their way from a model's call to a server, and back in its result, are written as they were written first.
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { EnvironmentBackend } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { contentText } from '../../src/episode/observation.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { actionOf } from '../../src/episode/turn-action.js';
import { encodeLine, readJournal, type JournalHeader } from '../../src/episode/turn-journal.js';
import type { ToolCall } from '../../src/spec/records/task.js';
import { seededRandom } from '../chaos/random.js';
import { observationFrame, startScriptedServer, type ScriptedServer } from './scripted-server.js';
import { counterTask } from './stand-in.js';

const argumentsOf = (text: string): string => /"arguments":\s*(\{[^{}]*\})/.exec(text)?.[1] ?? 'none';

let server: ScriptedServer;
let backend: EnvironmentBackend;
beforeEach(async () => {
  server = await startScriptedServer({
    answers: ({ type, data }, _, text) => {
      if (type === 'reset') return [observationFrame({}, 0)];
      if (data['type'] === 'list_tools') return [];
      const result = `{"result":${argumentsOf(text)}}`;
      return [`{"type":"observation","data":{"observation":${result},"reward":1.0,"done":false}}`];
    },
  });
  backend = createOpenEnvBackend({ url: server.url, maxSessions: 1, callTimeoutMs: 10_000 });
});
afterEach(async () => {
  await backend.close();
  await server.close();
});

const random = seededRandom(7);
const digits = (count: number): string =>
  Array.from({ length: count }, (_, at) => String(at === 0 ? 1 + random.below(9) : random.below(10))).join(
    '',
  );

/** As JSON allows it. */
function number(): string {
  const whole = random.below(4) === 0 ? '0' : digits(1 + random.below(24));
  const fraction =
    random.below(2) === 0 ? '' : `.${digits(1 + random.below(5))}${'0'.repeat(random.below(3))}`;
  const exponent =
    random.below(4) > 0 ? '' : `${random.pick(['e', 'E', 'e+', 'e-'])}${digits(1 + random.below(2))}`;
  return `${random.below(3) === 0 ? '-' : ''}${whole}${fraction}${exponent}`;
}

const header = { schema: 'longhaul.journal/1' } as JournalHeader;

/** As another attempt finds it. */
function journaled(call: ToolCall): ToolCall {
  const first = encodeLine(header, 0);
  const second = encodeLine({ type: 'intent', turn: 0, call }, first.check);
  const [entry] = readJournal(Buffer.from(first.line + second.line), header)!.entries;
  return (entry as { call: ToolCall }).call;
}

it('10,000 numbers of calls and results', async () => {
  const options = { seed: 1, episodeId: 'e', tryNumber: 0 };
  const environment = await backend.open(counterTask(1), options, AbortSignal.timeout(60_000));
  for (let turn = 0; turn < 50; turn++) {
    const written = Array.from({ length: 200 }, number);
    const json = `{${written.map((one, at) => `"k${at}":${one}`).join(',')}}`;
    const text = `<tool_call>{"name":"look","arguments":${json}}</tool_call>`;
    const { asked } = actionOf(text, toolFormat('hermes'), { opensThinking: false, tools: [] });
    if (asked?.kind !== 'call') throw new Error('no call');
    const { content } = await environment.callTool(journaled(asked.call), { turn, tryNumber: 0 });
    expect(argumentsOf(server.texts.at(-1) ?? '')).toBe(json);
    expect(contentText(content)).toBe(json);
  }
  const { outcome } = await environment.grade({ finalAnswer: '', tryNumber: 0 });
  expect(outcome).toMatchObject({ value: 1 });
  await environment.close();
});
