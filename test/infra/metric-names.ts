// Finds the names of metrics in a PromQL expression, and lists the metrics of a Temporal server.

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
 * Metrics that an expression reads, sorted. Understands only the PromQL that this project writes. The slow tests compare the result with a
 * real parser's on each expression.
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

/** Metrics of a Temporal server, without the suffixes of a histogram's series. A slow test compares them with a real server. */
export const serverMetrics: ReadonlySet<string> = new Set([
  'service_requests',
  'service_error_with_type',
  'persistence_latency',
]);
