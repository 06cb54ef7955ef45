// Lets `node --import` run the TypeScript sources, so that tests of whole processes never use an old build. The compiled form of a file is
// cached under the digest of its text, so that a second process starts without the compiler.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'longhaul', 'transpiled');

export function resolve(specifier, context, next) {
  const relative = specifier.startsWith('.') && specifier.endsWith('.js');
  if (!relative || !context.parentURL?.endsWith('.ts')) return next(specifier, context);
  return next(specifier.replace(/\.js$/, '.ts'), context).catch(() => next(specifier, context));
}

export async function load(url, context, next) {
  if (!url.endsWith('.ts')) return next(url, context);
  return {
    format: 'module',
    source: await transpile(readFileSync(fileURLToPath(url), 'utf8')),
    shortCircuit: true,
  };
}

async function transpile(text) {
  const file = join(cache, `${createHash('sha256').update(text).digest('hex')}.js`);
  try {
    return readFileSync(file, 'utf8');
  } catch {
    const { default: typescript } = await import('typescript');
    const { outputText } = typescript.transpileModule(text, {
      compilerOptions: {
        module: typescript.ModuleKind.ESNext,
        target: typescript.ScriptTarget.ES2023,
        verbatimModuleSyntax: true,
      },
    });
    mkdirSync(cache, { recursive: true });
    writeFileSync(`${file}.${process.pid}`, outputText);
    renameSync(`${file}.${process.pid}`, file);
    return outputText;
  }
}
