// The input of `longhaul engine score` and `generate`: one JSON object, a list of objects, or one object a line. An error names the place
// and the field of a fault.
import { z } from 'zod';
import { inOneLine, issueProblems } from '../../spec/spec-issues.js';
import { BadInput } from '../output.js';

/** A request and its place in the input, for errors. */
export interface Placed<T> {
  where: string;
  request: T;
}

const message = z.strictObject({
  role: z.enum(['system', 'user', 'assistant']),
  content: z.string(),
});

/** The three ways to give a prompt. A request uses exactly one of them. */
const prompt = {
  text: z.string().exactOptional(),
  tokens: z.array(z.int().min(0)).min(1).exactOptional(),
  messages: z.array(message).min(1).exactOptional(),
};
const temperature = z.number().gt(0).max(100).default(1);

const scoreSchema = z.strictObject({ ...prompt, temperature });
const generateSchema = z.strictObject({
  ...prompt,
  temperature,
  max_new_tokens: z.int().min(1).default(128),
  seed: z.int().min(0).max(Number.MAX_SAFE_INTEGER).default(1),
  n: z.int().min(1).max(4096).default(1),
  stop: z.array(z.string().min(1)).min(1).max(16).exactOptional(),
  ignore_eos: z.boolean().default(false),
  top_p: z.number().gt(0).max(1).exactOptional(),
  top_k: z.int().min(1).exactOptional(),
});

export type ScoreInput = z.output<typeof scoreSchema>;
export type GenerateInput = z.output<typeof generateSchema>;
export type PromptInput = Pick<ScoreInput, keyof typeof prompt>;

export const parseScoreInput = (text: string): Placed<ScoreInput>[] => parse(text, scoreSchema);
export const parseGenerateInput = (text: string): Placed<GenerateInput>[] => parse(text, generateSchema);

function parse<T extends PromptInput>(text: string, schema: z.ZodType<T>): Placed<T>[] {
  return valuesOf(text).map(({ where, value }) => {
    const result = schema.safeParse(value);
    if (!result.success) {
      const [problem] = issueProblems(result.error.issues, schema, value);
      throw new BadInput(`${where}: ${problem ? inOneLine(problem) : 'it is not understood'}`);
    }
    const given = Object.keys(prompt).filter((key) => result.data[key as keyof PromptInput] !== undefined);
    if (given.length !== 1)
      throw new BadInput(
        `${where}: give exactly one of text, tokens and messages; it has ${given.join(' and ') || 'none of them'}`,
      );
    return { where, request: result.data };
  });
}

function valuesOf(text: string): { where: string; value: unknown }[] {
  if (text.trim() === '')
    throw new BadInput(
      'the input is empty: give a JSON object, a list of objects, or one object per line, e.g. {"text": "Hello"}',
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return linesOf(text);
  }
  if (!Array.isArray(value)) return [{ where: 'line 1', value }];
  if (value.length === 0) throw new BadInput('the input is an empty list: there is nothing to answer');
  return value.map((item: unknown, index) => ({ where: `item ${index + 1} of the list`, value: item }));
}

function linesOf(text: string): { where: string; value: unknown }[] {
  return text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    const where = `line ${index + 1}`;
    try {
      return [{ where, value: JSON.parse(line) as unknown }];
    } catch (error) {
      throw new BadInput(`${where}: it is not JSON: ${(error as Error).message}`, { cause: error });
    }
  });
}
