// Lets `node --import` run the sources as they are: tests of whole processes never meet a stale build.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import typescript from 'typescript';

export function resolve(specifier, context, next) {
  const relative = specifier.startsWith('.') && specifier.endsWith('.js');
  if (!relative || !context.parentURL?.endsWith('.ts')) return next(specifier, context);
  return next(specifier.replace(/\.js$/, '.ts'), context).catch(() => next(specifier, context));
}

export async function load(url, context, next) {
  if (!url.endsWith('.ts')) return next(url, context);
  const { outputText } = typescript.transpileModule(readFileSync(fileURLToPath(url), 'utf8'), {
    compilerOptions: {
      module: typescript.ModuleKind.ESNext,
      target: typescript.ScriptTarget.ES2023,
      verbatimModuleSyntax: true,
    },
  });
  return { format: 'module', source: outputText, shortCircuit: true };
}
