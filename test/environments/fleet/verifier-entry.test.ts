import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifierEntry } from '../../../src/environments/fleet/verifier-entry.js';

const define = (signature: string): string => `def ${signature}:\n    return 1\n`;

describe('the function that Fleet calls', () => {
  it.each([
    ['the only one', define('validate_task(env)'), 'validate_task'],
    ['the first of two', define('b(env)') + define('a(env)'), 'b'],
    ['an async one', `async ${define('verify(env)')}`, 'verify'],
    ['one on one line', 'def verify(env): return 1', 'verify'],
    ['one with a name in other letters', define('prüfe_2(env)'), 'prüfe_2'],
    ['not a nested one', `class A:\n    ${define('a(self)')}${define('b(env)')}`, 'b'],
    ['not one in a text', `"""\n${define('a(env)')}"""\n${define('b(env)')}`, 'b'],
    ['not one in a text with marks in it', `x = '''\\'''\ndef a(): "'''\n${define('b(env)')}`, 'b'],
    ['not one after a comment sign', `# def a(env): "\n${define('b(env)')}`, 'b'],
    ['not one inside brackets', `x = [\n"def a(env):",\n]\n${define('b(env)')}`, 'b'],
    ['not one after a joined line', `x = 1 + \\\n2\n${define('b(env)')}`, 'b'],
    ['not one that a library decorates', `@lru_cache(\n    9)\n${define('a(t)')}${define('b(env)')}`, 'b'],
    ['one that the SDK decorates', `@verifier(key="k")\n${define('a(env)')}${define('b(env)')}`, 'a'],
    ['a decorated one if there is no other', `@final\n${define('a(env)')}`, 'a'],
    ['the first bound name', `b = None\n${define('a(env)')}${define('b(env)')}`, 'b'],
    ['the function of an alias', `x: object = None\n${define('a(env)')}${define('b(env)')}x = b\n`, 'b'],
    ['not one whose name has another value', `${define('a(env)')}${define('b(env)')}a = 1\n`, 'b'],
    ['not one that is deleted', `${define('a(env)')}${define('b(env)')}del a\n`, 'b'],
    ['not a lambda', `a = lambda env: 1\n${define('b(env)')}`, 'b'],
    ['one in a Windows file', `\ufeff# x\r\n${define('b(env)').replaceAll('\n', '\r\n')}`, 'b'],
  ])('is %s', (_, code, name) => {
    expect(verifierEntry(code).name).toBe(name);
  });

  it.each(['', 'x = 1\n', 'class A:\n    def verify(self, env): return 1\n', '# def verify(env): return 1'])(
    'is missing: %j',
    (code) => {
      expect(() => verifierEntry(code)).toThrow('a verifier without a function');
    },
  );

  it('does not depend on texts, comments and nested functions before it', () => {
    const text = fc.string({
      unit: fc.constantFrom('def a(env):', '\n', ' ', 'x', '(', ')', '[', '#', "'", '\\'),
    });
    const before = fc.oneof(
      text.map((t) => `"""${t.replaceAll('\\', '\\\\')}"""`),
      text.map((t) => `x = r"${t.replaceAll('\n', ' ').replaceAll('\\', '')}"`),
      text.map((t) => `# ${t.replaceAll('\n', '\n# ')}`),
      text.map((t) => `print("""${t.replaceAll('\\', '')}""",\n'#',\n)`),
      text.map((t) => `if True:\n    def nested(env):\n        """${t.replaceAll('\\', '')}"""`),
    );
    fc.assert(
      fc.property(fc.array(before), (parts) => {
        expect(verifierEntry([...parts, define('real(env)')].join('\n')).name).toBe('real');
      }),
    );
  });
});

describe('a final answer is taken', () => {
  it.each([
    ['verify(env)', false],
    ['verify(env, final_answer)', true],
    ['verify(env: Environment, final_answer: str | None = None) -> int', true],
    ['verify(env, answers: dict[str, int] = {"final_answer": (1, 2)}, x="final_answer, y")', false],
    ['verify(\n    env,  # final_answer\n    *,\n    final_answer=None,\n)', true],
    ['verify(env, final_answer, /)', false],
    ['verify(env, **kwargs)', true],
    ['verify(env, *final_answer)', false],
    ['verify(env, final_answer_text=None)', false],
    ['verify()', false],
  ])('%s: %s', (signature, takes) => {
    expect(verifierEntry(define(signature)).accepts('final_answer')).toBe(takes);
  });
});
