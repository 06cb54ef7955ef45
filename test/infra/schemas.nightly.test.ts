// Checks the stack's files with Kubernetes' own schemas and with a PromQL parser. Both are Python packages, which the first run installs.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { pythonWith } from '../support/python/python-environments.js';
import { metricsOf } from './metric-names.js';
import { read, readManifests } from './stack-files.js';

const run = promisify(execFile);
/** Version of the schemas. Our objects are the same in the oldest Kubernetes version that still gets updates. */
const kubernetesVersion = '1.34';
const python = await pythonWith('stack-checks');

/** Output of a Python script, parsed. The script gets `input` as JSON in its first argument. */
async function answer(script: string, input: unknown): Promise<unknown> {
  const { stdout } = await run(python, ['-c', script, JSON.stringify(input)], { maxBuffer: 1 << 26 });
  return JSON.parse(stdout) as unknown;
}

const validate = `
import json, sys, kubernetes_validate as k
def problem(manifest):
    try:
        k.validate(manifest, '${kubernetesVersion}', strict=True)
    except (k.ValidationError, k.SchemaNotFoundError) as error:
        return str(getattr(error, 'message', error))
print(json.dumps([problem(one) for one in json.loads(sys.argv[1])]))
`;

test.skipIf(!python)('every manifest is valid by Kubernetes’ schema', async () => {
  const manifests = readManifests();
  const problems = (await answer(
    validate,
    manifests.map(({ manifest }) => manifest),
  )) as (string | null)[];
  expect(
    manifests.map(({ file, manifest }, index) => `${file} ${manifest.kind}: ${problems[index] ?? 'valid'}`),
  ).toEqual(manifests.map(({ file, manifest }) => `${file} ${manifest.kind}: valid`));
  // The schema also refuses wrong objects.
  const [first] = manifests;
  const broken = { ...first?.manifest, spec: { ...first?.manifest.spec, replicsa: 1 } };
  expect(await answer(validate, [broken])).not.toEqual([null]);
});

const metrics = `
import json, sys, promql_parser as p
def names(node):
    found = set()
    if isinstance(node, p.VectorSelector) and node.name: found.add(node.name)
    for part in ('expr', 'lhs', 'rhs', 'vector_selector', 'vs', 'param'):
        inner = getattr(node, part, None)
        if inner is not None and not isinstance(inner, str): found |= names(inner)
    for inner in getattr(node, 'args', None) or []: found |= names(inner)
    return found
print(json.dumps([sorted(names(p.parse(one))) for one in json.loads(sys.argv[1])]))
`;

test.skipIf(!python)(
  'every expression is valid PromQL, and reads the metrics that the fast tests find in it',
  async () => {
    const { panels } = JSON.parse(read('infra/grafana/dashboards/longhaul.json')) as {
      panels: { targets?: { expr: string }[] }[];
    };
    const { groups } = parse(read('infra/prometheus/alerts.yml')) as {
      groups: { rules: { expr: string }[] }[];
    };
    const expressions = [
      ...panels.flatMap(({ targets }) => (targets ?? []).map(({ expr }) => expr)),
      ...groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
    ];
    const found = (await answer(metrics, expressions)) as string[][];
    expect(Object.fromEntries(expressions.map((one, index) => [one, found[index]]))).toEqual(
      Object.fromEntries(expressions.map((one) => [one, metricsOf(one)])),
    );
  },
);
