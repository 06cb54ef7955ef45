// Every key of the run spec must be read by some code, or it would have no effect. The test finds readers by TypeScript's types: a reader
// uses the property of `RunSpec`.
import { resolve } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { runSpecSchema } from '../../src/spec/schema.js';
import { allKeyPaths } from '../../src/spec/spec-issues.js';

/** Keys that no TypeScript code outside src/spec reads by name, and why they still have an effect. */
const unread: Record<string, string> = {
  'model.architecture.*':
    'the whole architecture goes to the engine; native/src/model/architecture.cc reads each key',
  'model.lora.*': 'the adapters go to the engine whole; lora_from_json of native/src/state reads each key',
  'model.rope_scaling.*': 'becomes the rope_scaling of the config that the engine reads',
  'warm_start[].lr': 'the whole phase goes to src/rl/learning-rate.ts, which knows no run spec',
  'warm_start[].warmup_updates': 'as `warm_start[].lr`',
  'warm_start[].decay_share': 'as `warm_start[].lr`',
  'budget.*': 'src/spec/budget.ts makes limits of the whole budget',
  'tracking.wandb.*': 'src/integrations/tracking/wandb/wandb-sink.ts takes the section whole, beside the key',
  'generator.truncated_sampling': 'it is an acceptance, which src/spec/combinations.ts asks for',
  'generator.eval_n_samples_per_prompt': 'src/spec/schedule.ts says how the run’s suites are played',
  'generator.eval_temperature': 'as `generator.eval_n_samples_per_prompt`',
  'trainer.policy_loss_type': 'src/spec/loss.ts makes a plan’s loss of it',
  'trainer.loss_reduction': 'as `trainer.policy_loss_type`',
  'trainer.max_seq_len': 'as `trainer.policy_loss_type`',
  'trainer.eps_clip_low': 'as `trainer.policy_loss_type`',
  'trainer.eps_clip_high': 'as `trainer.policy_loss_type`',
  'trainer.clip_ratio_c': 'as `trainer.policy_loss_type`',
  'trainer.cispo.cispo_eps_clip_low': 'as `trainer.policy_loss_type`',
  'trainer.cispo.cispo_eps_clip_high': 'as `trainer.policy_loss_type`',
  'trainer.sapo.tau_pos': 'as `trainer.policy_loss_type`',
  'trainer.sapo.tau_neg': 'as `trainer.policy_loss_type`',
  'trainer.kl_loss_coef': 'as `trainer.policy_loss_type`',
  'trainer.kl_estimator_type': 'as `trainer.policy_loss_type`',
  'trainer.use_entropy_loss': 'as `trainer.policy_loss_type`',
  'trainer.entropy_loss_coef': 'as `trainer.policy_loss_type`',
  'trainer.use_tis': 'as `trainer.policy_loss_type`',
  'trainer.tis_imp_ratio_cap': 'as `trainer.policy_loss_type`',
  'trainer.advantage_estimator': 'src/spec/loss.ts makes a plan’s advantages of it',
  'trainer.grpo_norm_by_std': 'as `trainer.advantage_estimator`',
  'trainer.advantage_deviation': 'as `trainer.advantage_estimator`',
  'trainer.advantage_eps': 'as `trainer.advantage_estimator`',
};

const declaring = resolve('src/spec/run-spec.ts');
const { config } = ts.readConfigFile('tsconfig.json', (path) => ts.sys.readFile(path)) as { config: object };
const { fileNames, options } = ts.parseJsonConfigFileContent(
  { ...config, include: ['src'] },
  ts.sys,
  process.cwd(),
);
const program = ts.createProgram(fileNames, options);
const checker = program.getTypeChecker();

/** The declarations of properties that a file reads, by `.key` or by `{ key }`. */
function readBy(file: ts.SourceFile): ts.Node[] {
  const found: ts.Node[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isPropertyAccessExpression(node)) {
      found.push(...(checker.getSymbolAtLocation(node.name)?.declarations ?? []));
    } else if (ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent)) {
      const key = (node.propertyName ?? node.name).getText();
      found.push(...(checker.getTypeAtLocation(node.parent).getProperty(key)?.declarations ?? []));
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

/** Where a key is declared: `environments[].env_key` is `env_key` of `EnvironmentSpec`. */
function declarationOf(path: string): ts.Node | undefined {
  const module = checker.getSymbolAtLocation(program.getSourceFile(declaring) as ts.SourceFile) as ts.Symbol;
  const spec = checker.getExportsOfModule(module).find(({ name }) => name === 'RunSpec') as ts.Symbol;
  let type = checker.getDeclaredTypeOfSymbol(spec);
  let property: ts.Symbol | undefined;
  for (const part of path.split('.')) {
    property = type.getProperty(part.replace('[]', ''));
    if (!property) return undefined;
    type = checker.getNonNullableType(checker.getTypeOfSymbol(property));
    if (part.endsWith('[]')) type = type.getNumberIndexType() as ts.Type;
  }
  return property?.declarations?.[0];
}

// The report only shows a spec, so it does not count as a reader.
const readers = program
  .getSourceFiles()
  .filter(({ fileName }) => /\/src\/(?!spec\/|report\/model-facts)/.test(fileName));
const read = new Set(readers.filter(({ fileName }) => !fileName.includes('/node_modules/')).flatMap(readBy));

test('every key of the run spec is read by a step, a worker or the command line', () => {
  const paths = allKeyPaths(runSpecSchema);
  const isLeaf = (path: string): boolean =>
    !paths.some((other) => other.startsWith(`${path}.`) || other.startsWith(`${path}[].`));
  const left = paths
    .filter(isLeaf)
    .filter((path) => !read.has(declarationOf(path) as ts.Node))
    .map((path) =>
      path.replace(
        /^(model\.architecture|model\.lora|model\.rope_scaling|budget|tracking\.wandb)\..*/,
        '$1.*',
      ),
    );
  expect([...new Set(left)].sort()).toEqual(Object.keys(unread).sort());
});
