// Remembers the device of a node's engine in the node's folder: a node that has lost its GPU must not silently continue on the CPU, and a GPU that
// computed wrong values must not be trusted again after a restart.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EngineError } from '../../engine/policy-engine.js';
import type { EngineDevice } from '../../engine/native/native-engine.js';

interface NodeDeviceOptions {
  folder: string;
  /** Ends the node in good order. */
  leave(): void;
  log(message: string): void;
}

export class NodeDevice implements EngineDevice {
  private serves = false;

  /** Throws `DeviceUnavailable` if the node's GPU is out of service and `named`, LONGHAUL_DEVICE, is not the CPU. */
  constructor(
    private readonly options: NodeDeviceOptions,
    private readonly named: string | undefined = process.env['LONGHAUL_DEVICE'],
  ) {
    const file = this.file('gpu-computed-wrong-values');
    if (named === 'cpu' || !existsSync(file)) return;
    throw new EngineError(
      'DeviceUnavailable',
      `this node's GPU is out of service: ${readFileSync(file, 'utf8').trim()}. Check it with native/tools/gpu_check.sh or replace it, then ` +
        `delete ${file}. LONGHAUL_DEVICE=cpu computes on the CPU`,
    );
  }

  /** The device on which this node has computed before, unless LONGHAUL_DEVICE names one. */
  get wanted(): string | undefined {
    const file = this.file('device');
    return this.named || !existsSync(file) ? undefined : readFileSync(file, 'utf8').trim();
  }

  found(kind: string): void {
    this.serves = true;
    if (kind !== 'cpu' && this.wanted !== kind) this.write('device', kind);
  }

  failed({ code, message }: EngineError): void {
    if (!this.serves) return;
    this.options.log(`this node leaves, and its work goes on elsewhere: ${message}`);
    this.options.leave();
    if (code === 'DeviceDiffers')
      this.write('gpu-computed-wrong-values', `${new Date().toISOString()} ${message}`);
  }

  private file(name: string): string {
    return join(this.options.folder, name);
  }

  private write(name: string, text: string): void {
    try {
      mkdirSync(this.options.folder, { recursive: true });
      writeFileSync(this.file(name), `${text}\n`);
    } catch (error) {
      this.options.log(`${this.file(name)} could not be written: ${(error as Error).message}`);
    }
  }
}
