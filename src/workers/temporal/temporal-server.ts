// The command line of the embedded Temporal server, and the search attributes that every server for Longhaul must have.

/** Search attributes of `trainingRun` by name; the types are written as in the `temporal` CLI. */
export const searchAttributes = {
  RunName: 'Keyword',
  Project: 'Keyword',
  Model: 'Keyword',
  Phase: 'Keyword',
  Step: 'Int',
  PassAt1: 'Double',
} as const;

interface TemporalServerOptions {
  port: number;
  /** Null: no web UI. */
  uiPort: number | null;
  /** Null: the server keeps its data in memory and loses it at its end. */
  databaseFile: string | null;
}

export function temporalServerArguments({ port, uiPort, databaseFile }: TemporalServerOptions): string[] {
  return [
    ...['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port)],
    ...(uiPort === null ? ['--headless'] : ['--ui-port', String(uiPort), '--ui-disable-news-fetch']),
    ...(databaseFile === null ? [] : ['--db-filename', databaseFile]),
    ...['--log-level', 'warn', '--log-format', 'json'],
    // A run is on one history shard. By default a shard polls 20 times a second, so each task would wait up to 50 ms.
    ...['--dynamic-config-value', 'history.transferProcessorMaxPollRPS=2000'],
    // Projects take turns in a node's queue: the fairness key of an activity is its project.
    ...['--dynamic-config-value', 'matching.enableFairness=true'],
    // The server answers a workflow task with its next activity, if that is in the orchestrator's queue; the default since server 1.32.
    ...['--dynamic-config-value', 'system.enableActivityEagerExecution=true'],
    ...Object.entries(searchAttributes).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]),
  ];
}

// Search attribute types as numbers of Temporal's API (temporal.api.enums.v1.IndexedValueType).
export const IndexedValueType = { Text: 1, Keyword: 2, Int: 3, Double: 4, Bool: 5, Datetime: 6 } as const;
