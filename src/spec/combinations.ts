// Checks combinations of values: each value is valid alone, but some are impossible together.
import { entryProblems, ttlProblems } from './environments/environment-problems.js';
import type { SpecProblem } from './invalid-spec.js';
import type { ModelArchitecture, RunSpec } from './run-spec.js';
import { largeSuites } from './schedule.js';
import { defaultMaxGradNorm, trainerProblems } from './trainer-schema.js';

export function combinationProblems(spec: RunSpec): SpecProblem[] {
  return [
    ...modelProblems(spec),
    ...servedModelProblems(spec),
    ...dataProblems(spec),
    ...environmentProblems(spec),
    ...warmStartProblems(spec),
    ...lengthProblems(spec),
    ...samplingProblems(spec),
    ...largeSuites(spec),
    ...trainerProblems(spec),
    ...referenceProblems(spec),
    ...budgetProblems(spec),
  ];
}

function modelProblems({ model }: RunSpec): SpecProblem[] {
  const { architecture, path, served, rope_scaling, tokenizer, chat_template } = model;
  const problems: SpecProblem[] = [];
  if (architecture !== undefined && path !== undefined) {
    problems.push({
      path: 'model',
      problem: 'architecture and path are both given',
      fix: 'a model folder has its own config.json: keep one of them',
    });
  }
  if (architecture === undefined && path === undefined && served === undefined) {
    problems.push({
      path: 'model',
      problem: 'none of path, architecture and served is given',
      fix: 'name a Hugging Face folder in path, give the architecture of random weights, or name a Tinker server’s model in served.name',
    });
  }
  if (rope_scaling !== undefined && path === undefined) {
    problems.push({
      path: 'model.rope_scaling',
      problem: 'extends the context of a model folder, but there is no model.path',
      fix: architecture
        ? 'write model.architecture.yarn'
        : 'remove it: the server decides about its model’s context',
    });
  }
  for (const [key, file] of Object.entries({ tokenizer, chat_template })) {
    if (file !== '') continue;
    problems.push({
      path: `model.${key}`,
      problem: 'is missing',
      fix: 'only a model folder, in model.path, brings its own: name a file',
    });
  }
  return architecture === undefined ? problems : [...problems, ...architectureProblems(architecture)];
}

/** All losses that a Tinker server may offer; each server says which ones it offers. */
const servedLosses: readonly string[] = ['regular', 'cispo', 'gspo', 'reinforce'];

/** Settings that a Tinker server would silently ignore or compute in another way. */
function servedModelProblems(spec: RunSpec): SpecProblem[] {
  const { model, generator, trainer, placement } = spec;
  if (model.served === undefined)
    return trainer.save_every === undefined
      ? []
      : [{ path: 'trainer.save_every', problem: 'is for model.served', fix: 'remove it' }];
  const refused: [path: string, isGiven: boolean, problem: string, fix: string][] = [
    ['model.path', model.path !== undefined, 'is given together with model.served', 'keep one of them'],
    [
      'model.architecture',
      model.architecture !== undefined,
      'is given together with model.served',
      'keep one of them',
    ],
    [
      'model.lora',
      model.lora !== undefined,
      'is for models that a node loads itself: a server chooses targets and alpha',
      'remove it; the rank of the adapters is model.served.rank',
    ],
    [
      'model.numerics',
      model.numerics !== undefined,
      'is for models that a node loads itself: a server computes in its own way',
      'remove it',
    ],
    [
      'model.served.chunk_tokens',
      model.served.chunk_tokens < generator.max_sequence_length,
      `${model.served.chunk_tokens} tokens are too few for a sequence of generator.max_sequence_length ${generator.max_sequence_length}`,
      'raise it',
    ],
    [
      'trainer.save_every',
      spec.warm_start.length > 0 && (trainer.save_every ?? 1) > 1,
      `${trainer.save_every} does not save the state with which a training phase begins`,
      'remove it, or the warm start',
    ],
    [
      'model.moments',
      model.moments !== 'fp32',
      'cannot be set: the server keeps the moments in its own format',
      'remove it',
    ],
    [
      'trainer.policy_loss_type',
      !servedLosses.includes(trainer.policy_loss_type),
      `${trainer.policy_loss_type} is not available on a Tinker server`,
      `take one of ${servedLosses.join(', ')}`,
    ],
    ['trainer.use_kl_loss', trainer.use_kl_loss, 'is not part of a Tinker server’s losses', 'remove it'],
    [
      'trainer.use_entropy_loss',
      trainer.use_entropy_loss,
      'is not part of a Tinker server’s losses',
      'remove it',
    ],
    [
      'trainer.max_grad_norm',
      !model.served.clips && trainer.max_grad_norm !== defaultMaxGradNorm,
      'is not applied by a server that does not clip gradients',
      'remove it, or set model.served.clips: true if `longhaul doctor --tinker` finds that the server clips',
    ],
    [
      'generator.temperature',
      generator.temperature !== 1,
      `${generator.temperature} does not match the log-probs of a Tinker server, which are for temperature 1`,
      'remove it',
    ],
    [
      'generator.eval_temperature',
      (generator.eval_temperature ?? 1) !== 1,
      'is not sent to a Tinker server, which samples at temperature 1 here',
      'remove it',
    ],
    ['generator.top_p', generator.top_p !== undefined, 'is not sent to a Tinker server', 'remove it'],
    ['generator.top_k', generator.top_k !== undefined, 'is not sent to a Tinker server', 'remove it'],
    [
      'generator.stop',
      generator.stop !== undefined,
      'cannot be combined with a Tinker server, which ends turns at tokens only',
      'remove it',
    ],
    [
      'placement.nodes',
      (placement?.nodes ?? 1) > 1,
      'a model on a Tinker server is used by one node only',
      'remove it: the server distributes the work itself',
    ],
  ];
  return refused.flatMap(([path, isGiven, problem, fix]) => (isGiven ? [{ path, problem, fix }] : []));
}

function architectureProblems(architecture: ModelArchitecture): SpecProblem[] {
  const { num_attention_heads: heads, num_key_value_heads: groups } = architecture;
  if (heads % groups === 0) return [];
  return [
    {
      path: 'model.architecture.num_key_value_heads',
      problem: `${groups} does not divide num_attention_heads ${heads}`,
      fix: `take one of ${divisors(heads).join(', ')}`,
    },
  ];
}

/** Keys that select tasks of a file. */
const selecting = [
  'modality',
  'env_keys',
  'difficulty',
  'max_tasks',
  'exclude_envs',
  'held_out_envs',
  'split',
] as const;

function dataProblems({ data }: RunSpec): SpecProblem[] {
  const problems: SpecProblem[] = [];
  const sources = (['source', 'tasks'] as const).filter((key) => data[key] !== undefined);
  if (sources.length > 1)
    problems.push({ path: 'data', problem: `${sources.join(' and ')} are given`, fix: 'keep one of them' });
  if (sources.length === 0) {
    problems.push({
      path: 'data',
      problem: 'neither tasks nor source is given',
      fix: 'name a task file, a server that lists tasks, or a prepared dataset',
    });
  }
  if (data.source !== undefined) {
    for (const key of ['demonstrations' as const, ...selecting].filter((one) => data[one] !== undefined))
      problems.push({
        path: `data.${key}`,
        problem: `does not apply to the prepared dataset ${data.source}`,
        fix: 'say it in the file that `longhaul data prepare` reads, under a new version',
      });
  }
  return problems;
}

function environmentProblems({ environments, generator }: RunSpec): SpecProblem[] {
  return [...entryProblems(environments), ...ttlProblems(environments, generator)];
}

function warmStartProblems({ warm_start, data }: RunSpec): SpecProblem[] {
  const problems: SpecProblem[] = [];
  const names = [...warm_start.map(({ name }) => name), 'grpo'];
  for (const name of repeated(names)) {
    const fix =
      name === 'grpo'
        ? '"grpo" is the name of the last phase: choose another name'
        : 'give each phase its own name';
    problems.push({
      path: `warm_start[${names.indexOf(name)}].name`,
      problem: `"${name}" is used twice`,
      fix,
    });
  }
  for (const [i, phase] of warm_start.entries()) {
    const path = `warm_start[${i}]`;
    if (phase.warmup_updates > phase.updates) {
      problems.push({
        path: `${path}.warmup_updates`,
        problem: `${phase.warmup_updates} is more than the phase's ${phase.updates} updates`,
        fix: 'lower it',
      });
    }
    // What a prepared dataset has is known when the run starts.
    if (data.demonstrations === undefined && data.source === undefined) {
      problems.push({
        path: `${path}.demonstrations`,
        problem: 'no demonstrations are given',
        fix: 'name a file in data.demonstrations, or remove the phase',
      });
    }
  }
  return problems;
}

/** With fewer positions, there is hardly room for more than a system prompt with its tools. */
const fewPositions = 2_048;

/** What to do if episodes are longer than the model’s positions. `raise`: how the model gets more positions. */
export function positionsFix(positions: number, raise: string): string {
  if (positions >= fewPositions) return `lower it, or ${raise}`;
  return (
    `${positions} tokens hold only short prompts with few tools: use a model with more positions, or ${raise}; ` +
    'if your prompts are that short, lower max_input_length and max_generate_length with it'
  );
}

function lengthProblems({ generator, model }: RunSpec): SpecProblem[] {
  const { max_input_length, max_generate_length, max_sequence_length } = generator;
  // If the model is a folder, the code that reads the folder checks the length.
  const longest = model.architecture?.max_position_embeddings ?? Infinity;
  const problems: SpecProblem[] = [];
  for (const [key, tokens] of Object.entries({ max_input_length, max_generate_length })) {
    if (tokens <= max_sequence_length) continue;
    problems.push({
      path: `generator.${key}`,
      problem: `${tokens} is more than max_sequence_length ${max_sequence_length}`,
      fix: 'raise generator.max_sequence_length, or lower this',
    });
  }
  if (max_sequence_length > longest) {
    problems.push({
      path: 'generator.max_sequence_length',
      problem: `${max_sequence_length} is more than model.architecture.max_position_embeddings ${longest}`,
      fix: positionsFix(longest, 'raise max_position_embeddings'),
    });
  }
  return problems;
}

/** The engine records log-probs under the full distribution (R13). For tokens sampled with `top_p` or `top_k`, ratios would be wrong. */
function samplingProblems({ generator }: RunSpec): SpecProblem[] {
  if (generator.truncated_sampling === true) return [];
  return (['top_p', 'top_k'] as const)
    .filter((key) => generator[key] !== undefined)
    .map((key) => ({
      path: `generator.${key}`,
      problem:
        'samples from a truncated distribution, but the recorded log-probs are those of the full distribution',
      fix: 'remove it, or accept this bias with generator.truncated_sampling: true',
    }));
}

/** A KL term after a warm start of adapters is impossible: the engine keeps only base weights as its reference, not adapters. */
function referenceProblems({ trainer, model, warm_start }: RunSpec): SpecProblem[] {
  if (!trainer.use_kl_loss || !model.lora || warm_start.length === 0) return [];
  return [
    {
      path: 'trainer.use_kl_loss',
      problem:
        'needs fixed weights to compare with, but after a warm start the adapters of model.lora are still trained',
      fix:
        'run the warm start alone, export it with `longhaul export`, and begin this run with that folder in model.path; ' +
        'or remove model.lora or warm_start',
    },
  ];
}

function budgetProblems({ budget, model: { served } }: RunSpec): SpecProblem[] {
  const { max_usd, usd_per_gpu_hour: hour, usd_per_million: tokens } = budget ?? {};
  if (tokens && !served)
    return [
      {
        path: 'budget.usd_per_million',
        problem: 'is for model.served',
        fix: 'remove it; usd_per_gpu_hour is the price of nodes',
      },
    ];
  if (max_usd === undefined || hour !== undefined || tokens) return [];
  return [
    {
      path: 'budget.max_usd',
      ...(served
        ? {
            problem: 'neither usd_per_million nor usd_per_gpu_hour is given',
            fix: 'give the server’s prices in usd_per_million, or limit max_tokens',
          }
        : {
            problem: 'usd_per_gpu_hour is not given',
            fix: 'give the price of an hour, or limit max_gpu_hours',
          }),
    },
  ];
}

function repeated(values: readonly string[]): string[] {
  return [...new Set(values.filter((value, i) => values.indexOf(value) !== i))];
}

function divisors(value: number): number[] {
  return Array.from({ length: value }, (_, i) => i + 1).filter((divisor) => value % divisor === 0);
}
