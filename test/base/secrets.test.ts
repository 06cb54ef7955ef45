// A spec names secrets but never contains them, and text that repeats a secret is not quoted.
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { InvalidSpec } from '../../src/spec/invalid-spec.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { secretInUrl, withoutSecrets, writings } from '../../src/base/secrets.js';
import { openStore } from '../../src/store/open-store.js';

const secret = 'p/4+7f9 "d"=Zq';

describe('a text', () => {
  it.each([
    ['as it is', secret],
    ['in JSON', JSON.stringify(secret)],
    ['in a URL', `https://x/?t=${encodeURIComponent(secret)}`],
    ['in base64', Buffer.from(secret).toString('base64')],
    ['in URL-safe base64', Buffer.from(secret).toString('base64url')],
  ])('loses a secret written %s, and nothing else', (_how, written) => {
    const text = withoutSecrets(`before ${written} after ${written}.`, [secret, undefined]);
    expect(text).toMatch(/^before .*\[secret removed\].* after .*\[secret removed\].*\.$/);
    for (const writing of writings(secret)) expect(text).not.toContain(writing);
  });

  it('keeps words that are too short to be secrets', () => {
    expect(withoutSecrets('the key of x is x', ['x', ''])).toBe('the key of x is x');
  });
});

describe('the part of a URL that may hold a secret', () => {
  it.each([
    ['http://user:password@host:1', 'user and password'],
    ['http://token@host', 'user and password'],
    ['http://[broken:p@host', 'user and password'],
    ['//user:password@host', 'user and password'],
    ['http://host/?token=x', 'query'],
    ['http://host/path#x', 'query'],
    ['http://host:80/path/@home', null],
    ['/data/a@b/tasks.jsonl', null],
  ])('%s: %s', (url, found) => {
    expect(secretInUrl(url)).toBe(found);
  });
});

describe('a spec', () => {
  const token = 'Tr4ck3r-t0ken-9f8e7d';
  const spec = (environment: string, more = ''): unknown =>
    parse(`
name: trial
model:
  name: m
  tokenizer: /t.json
  chat_template: /c.jinja
  architecture: {vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 4,
    num_key_value_heads: 2, head_dim: 32}
data: {tasks: /t.jsonl}
environments: [{env_key: tracker, ${environment}}]
trainer: {max_training_steps: 1}
${more}`);
  function refusal(input: unknown): string {
    try {
      parseRunSpec(input);
    } catch (error) {
      if (error instanceof InvalidSpec) return error.message;
    }
    throw new Error('the spec was accepted');
  }

  it.each([
    [
      'a password in a url',
      `url: "http://user:${token}@host:8000"`,
      /url: must be http:\/\/host:port without user.*grading_token_env/,
    ],
    ['a token as the user of a url', `url: "https://${token}@host"`, /grading_token_env/],
    ['a query', `url: "http://host:8000/?token=${token}"`, /grading_token_env/],
    ['a password in a url that is not http', `url: "ftp://user:${token}@host"`, /must be a URL like/],
    [
      'a token instead of a variable’s name',
      `grading_token_env: "${token}"`,
      /name of an environment variable, in capitals, such as/,
    ],
    [
      'a token of letters and digits only',
      `grading_token_env: "deadbeef0123456789"`,
      /name of an environment variable/,
    ],
    [
      'a token under an unknown key',
      `grading_token: "${token}"`,
      /did you mean environments\[0\]\.grading_token_env/,
    ],
    ['an API key', `temporal_api_key: "${token}"`, /docs\/security\.md/],
  ])(
    'with %s is refused; the message says how to name the secret, and does not repeat it',
    (_what, entry, says) => {
      const message = refusal(spec(entry));
      expect(message).toMatch(says);
      for (const writing of [...writings(token), 'deadbeef']) expect(message).not.toContain(writing);
    },
  );

  it('with keys for S3 or Temporal is refused; the message says where to read more', () => {
    const message = refusal(
      spec('fault_rate: 0', `aws_secret_access_key: ${token}\nstore_password: ${token}\n`),
    );
    expect(message.match(/docs\/security\.md/g)).toHaveLength(2);
    expect(message).not.toContain(token);
  });

  it('that names a variable is valid', () => {
    const { environments } = parseRunSpec(
      spec('url: "https://host:1/path", grading_token_env: TRACKER_TOKEN'),
    );
    expect(environments[0]).toMatchObject({ url: 'https://host:1/path', grading_token_env: 'TRACKER_TOKEN' });
  });
});

describe('the address of a store', () => {
  it.each([
    `s3://AKIA:${encodeURIComponent(secret)}@bucket/prefix`,
    `s3://bucket/prefix?endpoint=http://AKIA:hunter22@host:9000`,
    `s3://bucket/prefix?endpoint=${encodeURIComponent('http://AKIA:hunter22@host:9000')}`,
    `s3://AKIA:hunter22@[broken`,
    `https://user:hunter22@host/store`,
    `postgres://user:hunter22@host/store`,
  ])('%s is refused and not repeated', async (address) => {
    const error = await openStore(address).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ name: 'StoreUnfit' });
    for (const word of ['AKIA', 'hunter22', ...writings(secret)])
      expect((error as Error).message).not.toContain(word);
  });
});
