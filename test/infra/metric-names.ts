// Names of metrics: those in an expression of PromQL, and those of a Temporal server.

const words = new Set([
  'by',
  'on',
  'or',
  'and',
  'unless',
  'bool',
  'offset',
  'without',
  'ignoring',
  'group_left',
  'group_right',
]);

/**
 * Metrics that an expression reads, sorted. Enough of PromQL for what this project writes: the slow tests have a parser read each
 * expression, and agree with this one.
 */
export function metricsOf(expression: string): string[] {
  const bare = expression
    .replaceAll(/"[^"]*"/g, '')
    .replaceAll(/\{[^}]*\}/g, '')
    .replaceAll(/\[[^\]]*\]/g, '')
    .replaceAll(/\b(by|on|without|ignoring)\s*\([^)]*\)/g, ' ')
    .replaceAll(/\bgroup_(left|right)\s*\([^)]*\)/g, ' ');
  const names = [...bare.matchAll(/(?<![\w.])([a-z_][a-z0-9_]*)\b(?!\s*\()/g)].map(([, name = '']) => name);
  return [...new Set(names.filter((name) => !words.has(name)))].sort();
}

/** Metrics of a Temporal server, without the suffixes of a histogram's series; a slow test asks a real one for them. */
export const serverMetrics: ReadonlySet<string> = new Set([
  'service_requests',
  'service_error_with_type',
  'persistence_latency',
]);
