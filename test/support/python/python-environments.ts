// The Python environments of the tests and benchmarks. The first use of one on a machine installs its packages.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '../repository.js';
import { ensurePythonVenv, type PythonEnvironment } from './python-venv.js';

const uv = '0.13.9';

const environments = {
  /** Servers and clients of the current OpenEnv. */
  openenv: { requirements: ['openenv==0.10.0'] },
  /** Servers of the OpenEnv before it, which keep no session. */
  'openenv-core': { requirements: ['openenv-core==0.2.3', 'fastmcp>=3,<4', 'mcp<2'] },
  /** Fleet's own client, whose local mode runs the verifiers, and what the service of the tests needs. */
  fleet: {
    requirements: ['fleet-python==0.2.133', 'fastapi==0.142.2', 'uvicorn==0.54.0', 'fastmcp==3.4.10'],
    uv,
  },
  /** A Tinker server. The package lacks `aiohttp` as a dependency, and its API starts the engine with `uv`. */
  tinker: {
    requirements: ['skyrl[tinker,jax]==0.4.0', 'aiohttp==3.14.5', `uv==${uv}`],
    ...{ version: '3.12', uv },
  },
  tensorboard: { requirements: ['tensorboard==2.21.0'] },
  wandb: { requirements: ['wandb==0.30.0'] },
  /** Checks of the stack's files: Kubernetes' schemas and a PromQL parser. */
  'stack-checks': { requirements: ['kubernetes-validate==1.37.0', 'promql-parser==0.11.0'] },
  textarena: { requirements: requirementsOf('textarena') },
  tau2: { requirements: ['--no-deps', ...requirementsOf('tau2')], uv },
} satisfies Record<string, PythonEnvironment>;

/**
 * Path of the environment's interpreter. If the environment cannot be made on this machine, a warning says why, and the path is empty: skip the
 * tests that need it.
 */
export async function pythonWith(name: keyof typeof environments): Promise<string> {
  const venv = await ensurePythonVenv(environments[name]);
  if ('python' in venv) return venv.python;
  console.warn(`skipped: there is no Python environment "${name}": ${venv.skipped}`);
  return '';
}

/** Same, but throws if the environment cannot be made. */
export async function requirePythonWith(name: keyof typeof environments): Promise<string> {
  const venv = await ensurePythonVenv(environments[name]);
  if ('python' in venv) return venv.python;
  throw new Error(`there is no Python environment "${name}": ${venv.skipped}`);
}

/** The requirements of an example. */
function requirementsOf(example: string): string[] {
  return readFileSync(join(repository, 'examples', example, 'requirements.txt'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
}
