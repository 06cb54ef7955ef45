// The command line of the embedded Temporal server, and what any server for Longhaul must have registered.

/** Search attributes of `trainingRun`, by name; types as the `temporal` CLI writes them. */
export const searchAttributes = {
  RunName: 'Keyword',
  Project: 'Keyword',
  Model: 'Keyword',
  Phase: 'Keyword',
  Step: 'Int',
  PassAt1: 'Double',
} as const;

export interface TemporalServerOptions {
  port: number;
  /** Null: no web UI. */
  uiPort: number | null;
  /** Null: everything is lost with the process. */
  databaseFile: string | null;
}

export function temporalServerArguments({ port, uiPort, databaseFile }: TemporalServerOptions): string[] {
  return [
    ...['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port)],
    ...(uiPort === null ? ['--headless'] : ['--ui-port', String(uiPort), '--ui-disable-news-fetch']),
    ...(databaseFile === null ? [] : ['--db-filename', databaseFile]),
    ...['--log-level', 'warn', '--log-format', 'json'],
    // One run lives on one history shard; the default of 20 polls a second makes each of its tasks wait for a 50 ms tick.
    ...['--dynamic-config-value', 'history.transferProcessorMaxPollRPS=2000'],
    // Projects take turns in a node's queue: activities there carry theirs as the fairness key.
    ...['--dynamic-config-value', 'matching.enableFairness=true'],
    // An activity of the orchestrator's own queue comes with the answer to the task that asked for it, as in servers since 1.32.
    ...['--dynamic-config-value', 'system.enableActivityEagerExecution=true'],
    ...Object.entries(searchAttributes).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]),
  ];
}
