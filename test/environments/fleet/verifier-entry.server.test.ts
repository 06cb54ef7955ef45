import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { verifierEntry } from '../../../src/environments/fleet/verifier-entry.js';

const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('skipped: entry functions that Python finds: python3 is not installed');

/** For each source: name of the function and whether it takes the two keywords, as Fleet's SDK and Python find them; null if it does not run. */
const program = `
import inspect, json, re, sys

def entry(source):
    names = {}
    try:
        exec(re.sub(r"@verifier\\([^)]*\\)\\s*\\n", "", source), {}, names)
    except NameError:
        return None
    found = [v for v in names.values() if inspect.isfunction(v) and v.__code__.co_filename == "<string>"]
    kinds = [(p.name, p.kind) for p in inspect.signature(found[0]).parameters.values()]
    takes = lambda keyword: any(
        kind == inspect.Parameter.VAR_KEYWORD
        or (name == keyword and kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY))
        for name, kind in kinds
    )
    return [found[0].__name__, takes("final_answer"), takes("conversation")]

print(json.dumps([entry(source) for source in json.load(sys.stdin)]))
`;

const name = fc.constantFrom('a', 'b', 'c', 'verify', 'validate_task');
const parameters = fc.constantFrom(
  '',
  'env',
  'env, final_answer',
  'env, final_answer=None, /',
  'env,\n    *, final_answer: "str, conversation" = ",",\n    conversation=(1, [2])',
  'env, *conversation, **more',
  'env, conversation={"final_answer": 1}',
);
const definition = fc
  .tuple(fc.constantFrom('', 'async ', '@verifier(key="k")\n'), name, parameters)
  .map(
    ([before, named, list]) => `${before}def ${named}(${list}) -> int:\n    def inner(): pass\n    return 1`,
  );
const statement = fc.oneof(
  { weight: 3, arbitrary: definition },
  fc.tuple(name, name).map(([to, from]) => `${to} = ${from}`),
  fc.tuple(name, name).map(([to, too]) => `${to} = ${too} = {\n'def x(env):': 1}`),
  name.map((named) => `${named}: dict = None`),
  name.map((named) => `del ${named}`),
  name.map((named) => `class ${named}:\n    def inner(self): pass`),
  name.map((named) => `from os import path as ${named}, (sep)`.replace(/[()]/g, '')),
  name.map((named) => `from os import (\n    sep,\n    path as ${named},\n)`),
  name.map((named) => `import functools\n@functools.lru_cache\ndef ${named}(x): return x`),
  name.map((named) => `import contextlib\n@contextlib.contextmanager\ndef ${named}(): yield`),
  name.map((named) => `"""\ndef ${named}(env): '''\n"""`),
  name.map((named) => `str(f'''def {"${named}"}(env):\n''' # def ${named}(:\n  if 0 else "\\"")`),
);

it.runIf(hasPython)('is the one that Python finds by running the code', () => {
  const sources = fc.sample(
    fc
      .array(statement, { maxLength: 8 })
      .map((parts) => [...parts, 'def last(env): return 1', ''].join('\n')),
    { numRuns: 1500, seed: 21 },
  );
  const { stdout, stderr } = spawnSync('python3', ['-c', program], {
    input: JSON.stringify(sources),
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  const found = JSON.parse(stdout) as ([string, boolean, boolean] | null)[];
  const compared = sources.flatMap((source, index) => {
    const expected = found[index];
    return expected ? [{ source, expected }] : [];
  });
  expect(compared.length).toBeGreaterThan(500);
  for (const { source, expected } of compared) {
    const { name: named, accepts } = verifierEntry(source);
    expect([named, accepts('final_answer'), accepts('conversation')], source).toEqual(expected);
  }
});
