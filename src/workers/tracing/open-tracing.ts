// Opens the tracing of a worker process, and loads OpenTelemetry only if the environment asks for traces.
import { installTracer } from '../../base/spans.js';
import { readTraceSettings } from './settings.js';
import type { Tracing } from './tracing.js';

/** Null if the environment asks for no traces. Null, too, for wrong settings: a log line names them, and runs continue. */
export async function openTracing(
  component: 'node' | 'orchestrator',
  instance: string,
  log: (message: string) => void,
): Promise<Tracing | null> {
  let settings;
  try {
    settings = readTraceSettings();
  } catch (error) {
    log(`nothing is traced: ${(error as Error).message}`);
    return null;
  }
  if (!settings) return null;
  const [{ createSpanSender }, { Tracing: Traces }] = await Promise.all([
    import('./span-sender.js'),
    import('./tracing.js'),
  ]);
  const tracing = new Traces(createSpanSender(settings, { service: `longhaul-${component}`, instance }, log));
  installTracer(tracing);
  return tracing;
}
