// Which rewards are grades, and how the error describes the others.
import { describe, expect, it } from 'vitest';
import { gradeOfNoCall, observedReward } from '../../../src/environments/openenv/observed-reward.js';
import { parseServerJson } from '../../../src/base/json.js';

const data = (json: string) => parseServerJson(json) as Record<string, unknown>;

describe('an error beside reward 0', () => {
  it.each([
    ['text at the end', '{"observation":{"error":"judge timed out"},"reward":0,"done":true}'],
    ['text at the end, with false', '{"observation":{"error":"judge timed out"},"reward":false,"done":true}'],
    [
      'an object at the end',
      '{"observation":{"error":{"message":"judge timed out"}},"reward":0.0,"done":true}',
    ],
    ['beside the observation', '{"observation":{},"error":"judge timed out","reward":0,"done":true}'],
    ['in the metadata', '{"observation":{},"metadata":{"error":"judge timed out"},"reward":0,"done":false}'],
    ['in the observation’s metadata', '{"observation":{"metadata":{"error":"judge timed out"}},"reward":0}'],
    ['a list', '{"observation":{},"metadata":{"error":["judge timed out"]},"reward":-0.0,"done":true}'],
    ['errors', '{"observation":{},"metadata":{"errors":["judge timed out"]},"reward":0,"done":true}'],
    ['an exception', '{"observation":{},"metadata":{"exception":"judge timed out"},"reward":0}'],
    ['a grader’s', '{"observation":{},"metadata":{"grader_error":"judge timed out"},"reward":0}'],
    ['a verifier’s', '{"observation":{},"metadata":{"verifierError":"judge timed out"},"reward":0}'],
    ['in info', '{"observation":{},"info":{"error":"judge timed out"},"reward":0}'],
    ['in the observation’s info', '{"observation":{"info":{"error":"judge timed out"}},"reward":0}'],
    ['a message', '{"observation":{"error_message":"judge timed out"},"reward":0,"done":true}'],
    [
      'a kind',
      '{"observation":{"error":{"error_type":"judge timed out","message":null}},"reward":0,"done":1}',
    ],
    ['an end in text', '{"observation":{"error":"judge timed out"},"reward":0,"done":"True"}'],
  ])('is no grade: %s', (_, json) => {
    expect(observedReward(data(json))).toMatchObject({
      value: null,
      problem: expect.stringMatching(/^gave the reward .* beside an error: judge timed out$/) as string,
    });
  });

  it.each([
    ['another reward', '{"observation":{"error":"x"},"metadata":{"error":"x"},"reward":1,"done":true}', 1],
    ['a negative one', '{"observation":{"error":"illegal move"},"reward":-1,"done":true}', -1],
    ['no error', '{"observation":{"error":""},"metadata":{"error":null},"reward":0,"done":true}', 0],
    ['an empty list', '{"observation":{"error":[]},"metadata":{"error":{}},"reward":0,"done":true}', 0],
    ['no error in text', '{"observation":{"error":"None"},"reward":0,"done":true}', 0],
    ['a figure', '{"observation":{"error":0.5},"metadata":{"errors":3},"reward":0,"done":true}', 0],
    [
      'another key',
      '{"observation":{"format_error":"x"},"metadata":{"num_errors":3},"reward":0,"done":true}',
      0,
    ],
    ['a mistake before the end', '{"observation":{"error":"x not found"},"reward":0,"done":false}', 0],
  ])('%s is a grade', (_, json, value) => {
    expect(observedReward(data(json))).toEqual({ value, problem: null });
  });

  it('is the model’s mistake while the episode goes on, although the metadata repeats it', () => {
    const repeated = data('{"observation":{},"metadata":{"error":"x not found"},"reward":0,"done":false}');
    expect(observedReward(repeated, 'x not found')).toMatchObject({ value: 0, problem: null });
    expect(observedReward({ ...repeated, done: true }, 'x not found')).toMatchObject({ value: null });
  });
});

it('a status beside reward 0 is an error', () => {
  expect(observedReward(data('{"observation":{},"error":500,"reward":0,"done":true}'))).toMatchObject({
    ...{ value: null, problem: 'gave the reward 0 beside an error: status 500' },
  });
});

describe('a reward that is no number', () => {
  it.each([
    ['"0.5"', 'the text "0.5"'],
    ['[1]', 'the list [1]'],
    ['{"score":1}', 'the object {"score":1}'],
    ['NaN', 'NaN'],
    ['Infinity', 'Infinity'],
    ['-Infinity', '-Infinity'],
    ['1e999', 'Infinity'],
  ])('%s is named', (reward, named) => {
    const { value, problem } = observedReward(data(`{"observation":{},"reward":${reward}}`));
    expect({ value, problem }).toEqual({
      value: null,
      problem: `gave as reward ${named}: a reward is a finite number, true or false`,
    });
  });

  it.each(['null', 'null,"x":1'])('%s is none', (reward) => {
    expect(observedReward(data(`{"observation":{},"reward":${reward}}`))).toMatchObject({
      ...{ value: null, problem: null },
    });
  });
});

it.each([
  ['{"a":NaN,"b":"NaN, Infinity","reward":1}', { a: 'NaN', b: 'NaN, Infinity', reward: 1 }],
  ['{"a":[NaN,-Infinity,Infinity],"b":"\\"NaN\\\\"}', { a: ['NaN', '-Infinity', 'Infinity'], b: '"NaN\\' }],
  ['{"NaN":"é\\u00e9","a":-Infinity}', { NaN: 'éé', a: '-Infinity' }],
])('numbers that JSON lacks are read as text: %s', (json, value) => {
  expect(parseServerJson(json)).toEqual(value);
});

it('ten megabytes of escapes beside such a number are read', () => {
  const json = `{"t":"${'x\\\\'.repeat(5_000_000)}","v":NaN}`;
  expect(parseServerJson(json)).toMatchObject({ v: 'NaN' });
  expect(() => parseServerJson(json.slice(0, -1))).toThrow(SyntaxError);
});

it.each(['{"a":NaN', 'NaNs', '{"a":Infinity1}'])('%s is still no JSON', (json) => {
  expect(() => parseServerJson(json)).toThrow(SyntaxError);
});

it.each([
  ['mcp', { reward: 'last' }, 'unknown'],
  ['mcp', { reward: 'sum' }, 0],
  ['gym', { reward: 'last' }, 0],
  ['gym', { reward: 'last', no_call: 'unknown' }, 'unknown'],
  ['mcp', { reward: 'last', no_call: 0 }, 0],
] as const)('without a call, on %s with %j, the grade is %s', (contract, rule, grade) => {
  expect(gradeOfNoCall(contract, rule)).toBe(grade);
});
