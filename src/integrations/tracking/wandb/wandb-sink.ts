// Weights & Biases: the W&B run has the run's id. Rows are in the order of delivery, and `trainer/global_step` is the axis of all charts:
// W&B accepts no row at an earlier place than its last row, but an evaluation may arrive late.
import { createInTurn } from '../in-turn.js';
import { Delivered, type MetricPoint, type PointSink } from '../metric-point.js';
import { BridgeProcess, type BridgeOptions } from './bridge-process.js';

export interface WandbOptions extends BridgeOptions {
  run: string;
  project: string;
  /** Displayed name; absent for the run's id. */
  name?: string;
  /** User or team; absent for the owner of the key. */
  entity?: string;
  /** `offline` keeps all data on this machine's disk until `wandb sync --append` uploads it. */
  mode: 'online' | 'offline';
  /** The run's spec, shown with the run; it contains no secrets. */
  config?: Record<string, unknown>;
}

export function createWandb(options: WandbOptions): PointSink {
  const { run, project, entity, name = run, mode, folder, config } = options;
  const inTurn = createInTurn();
  let bridge: BridgeProcess | null = null;
  let opened = false;

  async function stop(): Promise<void> {
    const stopping = bridge;
    [bridge, opened] = [null, false];
    await stopping?.stop();
  }

  return {
    name: 'wandb',
    open: (signal) =>
      inTurn(signal, async () => {
        await stop();
        bridge = new BridgeProcess(options);
        const request = { op: 'open', run, project, entity, name, mode, folder, config };
        const { ids = [] } = await bridge.ask(request, signal);
        opened = true;
        const delivered = new Delivered();
        for (const id of ids) delivered.add(id);
        return delivered;
      }),
    write: (points, signal) =>
      inTurn(signal, async () => {
        if (!bridge) throw new Error('the W&B bridge is not open: call open before write');
        await bridge.ask({ op: 'log', rows: points.map(rowOf) }, signal);
      }),
    close: (signal) =>
      inTurn(signal, async () => {
        try {
          if (opened) await bridge?.ask({ op: 'close' }, signal);
        } finally {
          await stop();
        }
      }),
  };
}

function rowOf({ id, step, at, values }: MetricPoint) {
  return { id, at: Date.parse(at) / 1000, values: { ...values, 'trainer/global_step': step } };
}
