// Every metric that the dashboard draws or an alert watches exists: in Longhaul's registry, in Temporal's SDK or in Temporal's server.
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { prometheusMetrics } from '../../src/integrations/tracking/prometheus.js';
import { metricsOf, serverMetrics } from './metric-names.js';
import { filesIn, read, readCompose, filledIn } from './stack-files.js';

interface Panel {
  title: string;
  type: string;
  description?: string;
  datasource?: { uid: string };
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string }[];
}
interface Dashboard {
  uid: string;
  panels: Panel[];
  templating: { list: { name: string; definition: string }[] };
}
interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; action: string };
}

const dashboard = JSON.parse(read('infra/grafana/dashboards/longhaul.json')) as Dashboard;
const { groups } = parse(read('infra/prometheus/alerts.yml')) as {
  groups: { name: string; rules: Rule[] }[];
};
const rules = groups.flatMap((group) => group.rules);
const panels = dashboard.panels.filter(({ type }) => type !== 'row');

/** Metrics of the SDK's core, read from the source in its package. A histogram has three series. */
const sdkMetrics = new Set(
  filesIn('node_modules/@temporalio/core-bridge/sdk-core/crates')
    .filter((file) => file.endsWith('metrics.rs'))
    .flatMap((file) => [...read(file).matchAll(/"([a-z_]+)"/g)].map(([, name]) => `temporal_${name}`)),
);

function isMeasured(name: string): boolean {
  const series = name.replace(/_(bucket|sum|count)$/, '');
  return name === 'up' || name in prometheusMetrics || sdkMetrics.has(series) || serverMetrics.has(series);
}

test('the names of metrics are found in an expression', () => {
  expect(
    metricsOf(
      'histogram_quantile(0.95, sum by (le, run) (rate(one_bucket{run=~"a.+", x!="y"}[5m]))) > 2 * up',
    ),
  ).toEqual(['one_bucket', 'up']);
  expect(metricsOf('a - on (run) group_right b{run=~"$run"} or vector(0)')).toEqual(['a', 'b']);
  expect(isMeasured('longhaul_no_such_thing')).toBe(false);
  expect(isMeasured('temporal_no_such_thing')).toBe(false);
});

describe('the dashboard', () => {
  test.each(panels.map((panel) => [panel.title, panel] as const))(
    'draws existing metrics: %s',
    (_title, panel) => {
      expect(panel.description).toBeTruthy();
      expect(panel.datasource?.uid).toBe('prometheus');
      for (const { expr } of panel.targets ?? [])
        for (const name of metricsOf(expr)) expect(isMeasured(name), name).toBe(true);
    },
  );

  test('draws every metric of a run that no alert reads', () => {
    const drawn = panels.flatMap(({ targets }) => targets ?? []);
    const read = new Set([...drawn, ...rules].flatMap(({ expr }) => metricsOf(expr)));
    const left = Object.keys(prometheusMetrics).filter((name) => !read.has(name));
    // The curve of the pass rate also shows these two.
    expect(left.sort()).toEqual(['longhaul_eval_step', 'longhaul_eval_unknown']);
  });

  test('selects runs and environments by existing labels', () => {
    for (const { definition } of dashboard.templating.list) {
      const [, metric = '', label = ''] = /^label_values\((\w+), (\w+)\)$/.exec(definition) ?? [];
      expect(prometheusMetrics[metric as keyof typeof prometheusMetrics][1]).toContain(label);
    }
  });

  test('uses only labels that Longhaul’s metrics have, and so do the alerts', () => {
    const expressions = [...panels.flatMap(({ targets }) => targets ?? []), ...rules].map(({ expr }) => expr);
    for (const expr of expressions)
      for (const [, metric = '', selector = ''] of expr.matchAll(/(longhaul_\w+)\{([^}]*)\}/g)) {
        const known: readonly string[] = prometheusMetrics[metric as keyof typeof prometheusMetrics][1];
        for (const [, label = ''] of selector.matchAll(/(\w+)\s*[=!]/g)) expect(known, expr).toContain(label);
      }
  });

  test('has panels that do not overlap', () => {
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    for (const { gridPos } of dashboard.panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  });

  test('is found by Grafana, and finds its data source', () => {
    const { services } = readCompose(filledIn());
    const provider = parse(read('infra/grafana/provisioning/dashboards/longhaul.yml')) as {
      providers: [{ options: { path: string } }];
    };
    const { path } = provider.providers[0].options;
    expect(services['grafana']?.volumes).toContain(`./infra/grafana/dashboards:${path}:ro`);
    const home = services['grafana']?.environment?.['GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH'];
    expect(home).toBe(join(path, 'longhaul.json'));
    const source = parse(read('infra/grafana/provisioning/datasources/prometheus.yml')) as {
      datasources: [{ uid: string; url: string }];
    };
    expect(source.datasources[0]).toMatchObject({ uid: 'prometheus', url: 'http://prometheus:9090' });
  });
});

describe('the alerts', () => {
  test.each(rules.map((rule) => [rule.alert, rule] as const))(
    '%s reads existing metrics, and says what to do',
    (_name, rule) => {
      for (const name of metricsOf(rule.expr)) expect(isMeasured(name), name).toBe(true);
      expect(['info', 'warning', 'critical']).toContain(rule.labels.severity);
      expect(rule.annotations.summary).toBeTruthy();
      expect(rule.annotations.action).toBeTruthy();
    },
  );

  test('each have a unique name', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
  });
});

test('Prometheus scrapes existing services', () => {
  const { services } = readCompose(filledIn());
  const { scrape_configs: jobs, rule_files: files } = parse(read('infra/prometheus/prometheus.yml')) as {
    scrape_configs: {
      job_name: string;
      static_configs?: { targets: string[] }[];
      dns_sd_configs?: { names: string[]; port: number }[];
    }[];
    rule_files: string[];
  };
  const targets = (name: string): [service: string, port: string][] => {
    const job = jobs.find(({ job_name }) => job_name === name);
    const named = (job?.static_configs ?? []).flatMap((one) => one.targets);
    const found = (job?.dns_sd_configs ?? []).flatMap(({ names, port }) =>
      names.map((one) => `${one}:${port}`),
    );
    return [...named, ...found].map((target) => [target.split(':')[0] ?? '', target.split(':')[1] ?? '']);
  };
  const hosts = jobs.flatMap((job) => [
    ...(job.static_configs ?? []).flatMap(({ targets }) =>
      targets.map((target) => target.split(':')[0] ?? ''),
    ),
    ...(job.dns_sd_configs ?? []).flatMap(({ names }) => names),
  ]);
  for (const host of hosts) if (host !== '127.0.0.1') expect(services).toHaveProperty(host);
  const listened = (name: string): unknown => services[name]?.environment?.['LONGHAUL_METRICS_ADDRESS'];
  for (const [name, port] of [...targets('longhaul-runs'), ...targets('longhaul-workers')])
    expect(listened(name), name).toBe(`0.0.0.0:${port}`);
  expect(
    targets('longhaul-workers')
      .map(([name]) => name)
      .sort(),
  ).toEqual(['node-cpu', 'node-gpu', 'orchestrator']);
  for (const file of files) expect(filesIn('infra/prometheus')).toContain(`infra/prometheus/${file}`);
});
