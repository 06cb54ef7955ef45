// The statements of README.md, docs/ and examples/ are true: links work, commands and flags exist, named files exist, example specs are
// accepted. And the text is not too long.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { modules } from '../../src/cli/program.js';
import { parseDemonstrations, parseSolutions, parseTasks } from '../../src/data/task-file.js';
import { parseDatasetSpec } from '../../src/spec/dataset-spec.js';
import { parseRunSpec, readSpecFile } from '../../src/spec/spec-input.js';
import { parseSweepSpec } from '../../src/sweeps/sweep-input.js';

/** Words of README.md and docs/, tables and code included, as `wc -w` counts them. */
const mostWords = 30_000;

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));

const pages = [
  ...['README.md', 'CONTRIBUTING.md'],
  ...['docs', 'examples'].flatMap(filesBelow).filter((file) => file.endsWith('.md')),
].sort();
const textOf = (page: string): string => readFileSync(page, 'utf8');

interface Block {
  page: string;
  /** Text after the opening fence, such as `yaml spec`. Empty for an indented block. */
  kind: string;
  text: string;
}

function blocksOf(page: string): Block[] {
  const text = textOf(page);
  const fenced = [...text.matchAll(/^```(.*)\n([^]*?)^```$/gm)].map(([, kind = '', block = '']) => ({
    page,
    kind,
    text: block,
  }));
  const indented = [...withoutFences(text).matchAll(/(?<=\n\n)(?: {4}.*\n)+/g)].map(([block]) => ({
    page,
    kind: '',
    text: block,
  }));
  return [...fenced, ...indented];
}

const withoutFences = (text: string): string => text.replace(/^```.*\n[^]*?^```$/gm, '');
const inlineCodeOf = (page: string): string[] =>
  [...withoutFences(textOf(page)).matchAll(/`([^`\n]+)`/g)].map(([, code]) => code as string);
const blocks = pages.flatMap(blocksOf);
const blocksOfKind = (kind: string): Block[] => blocks.filter((block) => block.kind === kind);

/** Anchors as GitHub derives them from headings. */
function anchorsOf(page: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading = ''] of withoutFences(textOf(page)).matchAll(/^#+ (.+)$/gm)) {
    const slug = heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-');
    let [anchor, n] = [slug, 0];
    while (anchors.has(anchor)) anchor = `${slug}-${++n}`;
    anchors.add(anchor);
  }
  return anchors;
}

const links = pages.flatMap((page) =>
  [...withoutFences(textOf(page)).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, to]) => ({ page, to: to as string }))
    .filter(({ to }) => !/^[a-z]+:/.test(to)),
);

test('relative links and their anchors work', () => {
  expect(links.length).toBeGreaterThan(50);
  const broken = links.filter(({ page, to }) => {
    const [path = '', anchor] = to.split('#');
    const file = path === '' ? page : join(dirname(page), path);
    if (!existsSync(file)) return true;
    return anchor !== undefined && !anchorsOf(file).has(anchor);
  });
  expect(broken).toEqual([]);
});

test('every page can be reached from README.md', () => {
  const reached = new Set(['README.md']);
  for (const from of reached)
    for (const { page, to } of links)
      if (page === from) {
        const file = join(dirname(page), to.split('#')[0] ?? '');
        if (pages.includes(file)) reached.add(file);
      }
  expect(pages.filter((page) => !reached.has(page))).toEqual([]);
});

/** Every line that a person could paste. */
const codeLines = [
  ...blocks.flatMap(({ page, text }) =>
    text
      .replaceAll(/\\\n\s*/g, '')
      .split('\n')
      .map((line) => ({ page, line })),
  ),
  ...pages.flatMap((page) => inlineCodeOf(page).map((line) => ({ page, line }))),
];

describe('commands', () => {
  /** Words after `longhaul` where it is a command, not a project, a namespace or a part of a longer name. */
  const named = codeLines.flatMap(({ page, line }) =>
    [...line.matchAll(/(?<![\w/.-])(?<!(?:project|-n|name) )(?:bin\/)?longhaul ([a-z][^|;&#>]*)/g)].map(
      ([, rest]) => ({ page, words: (rest as string).trim().split(/\s+/) }),
    ),
  );
  const program = new Command('longhaul');
  const registered = Promise.all(modules.map(([, load]) => load())).then((loaded) => {
    for (const module of loaded) module.register(program);
  });

  test('every `longhaul VERB` exists, with its flags', async () => {
    await registered;
    expect(named.length).toBeGreaterThan(100);
    const wrong = named.filter(({ words }) => {
      let command = program;
      let rest = words;
      for (;;) {
        const [next] = rest;
        const child = command.commands.find((candidate) => candidate.name() === next);
        if (child === undefined) break;
        command = child;
        rest = rest.slice(1);
      }
      if (command === program) return true;
      const [next = ''] = rest;
      if (command.commands.length > 0 && /^[a-z]+$/.test(next)) return true;
      const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest;
      const flags = own.flatMap((word) => /^\[?(--?[a-z][a-z-]*)/.exec(word)?.slice(1) ?? []);
      const known = command.options.flatMap(({ long, short }) => [long, short]);
      return flags.some((flag) => flag !== '--help' && !known.includes(flag));
    });
    expect(wrong.map(({ page, words }) => `${page}: longhaul ${words.join(' ')}`)).toEqual([]);
  });

  test('every `npm run` names a script of package.json', () => {
    const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: object };
    const used = codeLines.flatMap(({ line }) => [...line.matchAll(/npm run (?:-s )?([a-z:]+)/g)]);
    expect(used.length).toBeGreaterThan(5);
    for (const [, script] of used) expect(Object.keys(scripts)).toContain(script);
  });
});

test('a SkyRL server keeps its saved states and its database where they last', () => {
  const starts = blocks.filter(({ text }) => text.includes('-m skyrl.tinker.api'));
  expect(starts.length).toBeGreaterThan(0);
  for (const { text } of starts) {
    const [, states = '/tmp'] = / --checkpoints-base (\S+)/.exec(text) ?? [];
    const [, database = '/tmp'] = / --database-url "?sqlite:\/\/\/(\S+)/.exec(text) ?? [];
    for (const place of [states, database]) expect(place).toMatch(/^(?:~|\$HOME)\//);
  }
});

test('named files exist', () => {
  const own = ['src', 'native', 'test', 'tools', 'infra', 'bench', 'presets', 'examples'].flatMap(filesBelow);
  const isFile = (name: string): boolean => own.some((file) => file === name || file.endsWith(`/${name}`));
  const sources = codeLines.filter(
    ({ line }) =>
      /^\w[\w./-]*\.(?:ts|cc|h|mjs|sh|py|yml)$/.test(line) || /^(?:src|native|infra)\/[\w./-]+$/.test(line),
  );
  expect(sources.length).toBeGreaterThan(50);
  const missing = sources.filter(({ line }) => !isFile(line) && !existsSync(line));
  const presets = codeLines
    .flatMap(({ page, line }) =>
      [...line.matchAll(/\bpresets\/[a-z/-]+\.yaml/g)].map(([preset]) => ({ page, line: preset })),
    )
    .filter(({ line }) => !existsSync(line));
  expect([...missing, ...presets]).toEqual([]);
});

describe('examples', () => {
  const specFiles = filesBelow('examples')
    .filter((file) => file.endsWith('.yaml') && !file.endsWith('dataset.yaml'))
    .map((page) => ({ page, text: textOf(page) }));
  const specs = [...blocksOfKind('yaml spec'), ...specFiles];
  test.each(specs)('the run spec of $page is accepted', async ({ text }) => {
    const scratch = mkdtempSync(join(tmpdir(), 'longhaul-docs-'));
    // So deep that the paths of examples, which begin with `../../`, stay within.
    const folder = join(scratch, 'examples', 'own');
    try {
      mkdirSync(folder, { recursive: true });
      const { model, data } = parseYaml(text) as {
        model: Record<string, unknown>;
        data: Record<string, unknown>;
      };
      // These keys name the reader's own files. Only known keys are replaced, so an unknown key is still an error.
      for (const path of [model.path, model.tokenizer, model.chat_template, data.tasks, data.demonstrations])
        if (typeof path === 'string') {
          mkdirSync(dirname(resolve(folder, path)), { recursive: true });
          writeFileSync(resolve(folder, path), '');
        }
      writeFileSync(join(folder, 'run.yaml'), text);
      await expect(readSpecFile(join(folder, 'run.yaml'))).resolves.toMatchObject({
        name: expect.any(String) as string,
      });
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  });

  /** A block with some keys of a spec is merged into the smallest complete spec. */
  test.each(blocksOfKind('yaml part'))('the part of a run spec in $page is accepted', ({ text }) => {
    const whole = {
      name: 'part',
      model: { name: 'model', path: '/models/any' },
      data: { tasks: '/data/tasks.jsonl' },
      environments: [{ env_key: 'crm' }, { env_key: 'shop' }],
      trainer: { max_training_steps: 1 },
    };
    expect(() => parseRunSpec({ ...whole, ...(parseYaml(text) as object) })).not.toThrow();
  });

  test.each(blocksOfKind('yaml sweep'))('the sweep of $page is accepted', ({ text }) => {
    expect(() => parseSweepSpec(parseYaml(text))).not.toThrow();
  });

  test.each(blocksOfKind('yaml dataset'))('the dataset of $page is accepted', ({ text }) => {
    expect(() => parseDatasetSpec(parseYaml(text))).not.toThrow();
  });

  test.each(blocksOfKind('yaml dataset-part'))('the part of a dataset in $page is accepted', ({ text }) => {
    const whole = { name: 'part', version: 'v1', tasks: '/data/tasks.jsonl' };
    expect(() => parseDatasetSpec({ ...whole, ...(parseYaml(text) as object) })).not.toThrow();
  });

  test.each(blocksOfKind('json solutions'))('the solutions of $page are accepted', ({ text }) => {
    expect(parseSolutions(text, 'solutions.jsonl').length).toBeGreaterThan(0);
  });

  test.each(blocksOfKind('json tasks'))('the tasks of $page are accepted', ({ text }) => {
    expect(parseTasks(text, 'tasks.jsonl').length).toBeGreaterThan(0);
  });

  test.each(blocksOfKind('json demonstrations'))('the demonstrations of $page are accepted', ({ text }) => {
    expect(parseDemonstrations(text, 'demonstrations.jsonl').length).toBeGreaterThan(0);
  });

  test('there is at least one example of each kind', () => {
    for (const kind of [
      ...['yaml spec', 'yaml part', 'yaml sweep', 'yaml dataset', 'yaml dataset-part'],
      ...['json tasks', 'json demonstrations', 'json solutions'],
    ])
      expect(blocksOfKind(kind), kind).not.toEqual([]);
    expect(blocksOfKind('yaml')).toEqual([]);
  });
});

test('README.md and docs/ have no more words than the limit', () => {
  const counted = pages.filter((page) => page === 'README.md' || page.startsWith('docs'));
  const words = counted.map((page) => textOf(page).split(/\s+/).filter(Boolean).length);
  expect(words.reduce((sum, more) => sum + more, 0)).toBeLessThanOrEqual(mostWords);
});
