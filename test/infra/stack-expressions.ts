// Collects every PromQL expression in the stack's files.
import { parse } from 'yaml';
import { read } from './stack-files.js';

/** Expressions of the dashboard's panels and of the alerts. */
export function expressionsIn(): string[] {
  const { panels } = JSON.parse(read('infra/grafana/dashboards/longhaul.json')) as {
    panels: { targets?: { expr: string }[] }[];
  };
  const { groups } = parse(read('infra/prometheus/alerts.yml')) as {
    groups: { rules: { expr: string }[] }[];
  };
  const rules = groups.flatMap((group) => group.rules);
  return [...panels.flatMap(({ targets }) => targets ?? []), ...rules].map(({ expr }) => expr);
}
