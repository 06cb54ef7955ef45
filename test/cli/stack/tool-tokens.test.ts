// What `longhaul doctor --spec` says of long tool lists.
import { describe, expect, it } from 'vitest';
import { toolTokensText } from '../../../src/cli/stack/environment-checks.js';
import { readTools } from '../../../src/environments/tool-results.js';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import { toolListText } from '../../../src/episode/tool-list.js';
import { readFileSync } from 'node:fs';
import type { RunSpec } from '../../../src/spec/run-spec.js';

const tools = readTools(
  Array.from({ length: 224 }, (_, index) => ({
    name: `tool_${index}`,
    description: 'Changes a row of the table, if the user may do so.',
    inputSchema: { type: 'object', properties: { id: { type: 'integer' }, text: { type: 'string' } } },
  })),
);

const spec = (max_input_length: number, tools_format: RunSpec['generator']['tools_format'] = 'json') =>
  ({ generator: { max_input_length, tools_format } }) as unknown as RunSpec;

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8'));

describe('224 tools', () => {
  it('are counted with the run’s tokenizer', async () => {
    const count = tokenizer.encode(toolListText(tools, 'signatures')).length;
    expect(await toolTokensText(tools, spec(1_000_000, 'signatures'), tokenizer)).toBe(
      `224 tools take ${count} tokens of every prompt, which may have 1000000`,
    );
    expect(await toolTokensText(tools.slice(0, 1), spec(1_000_000), tokenizer)).toMatch(
      /^1 tool takes \d+ tokens/,
    );
  });

  it('are refused if they leave no room in a prompt; the error names the tokens of a shorter list', async () => {
    await expect(toolTokensText(tools, spec(8192), tokenizer)).rejects.toThrow(
      /^224 tools take \d+ tokens of every prompt, and generator.max_input_length is 8192: raise it, or shorten the list \(tools_format: signatures takes \d+\)$/,
    );
    await expect(toolTokensText(tools, spec(100, 'signatures'), tokenizer)).rejects.toThrow(
      /generator.max_input_length is 100: raise it$/,
    );
  });

  it('are counted roughly if the tokenizer is on another machine', async () => {
    expect(await toolTokensText(tools, spec(1_000_000, 'json'), null)).toMatch(
      /^224 tools take about \d+ tokens of every prompt, which may have 1000000$/,
    );
  });
});
