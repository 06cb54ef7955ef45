// Tracing of a worker process if the environment asks for it; otherwise nothing is loaded.
import { installTracer } from '../../base/spans.js';
import { readTraceSettings } from './settings.js';
import type { Tracing } from './tracing.js';

/** Null if traces are not asked for, or asked for wrongly: a line says how, and runs go on. */
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
