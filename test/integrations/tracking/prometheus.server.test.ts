// Longhaul's own metrics, as Prometheus scrapes them.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { evaluationPointId, stepPointId } from '../../../src/integrations/tracking/metric-point.js';
import {
  createPrometheusSink,
  prometheusMetrics,
  RunFigures,
} from '../../../src/integrations/tracking/prometheus.js';
import { parseMetricsAddress, serveMetrics } from '../../../src/integrations/tracking/prometheus-server.js';
import { pointsOf } from './points.js';

const quiet = new AbortController().signal;
const flag = '--metrics-address';

async function linesOf(figures: RunFigures): Promise<string[]> {
  return (await figures.registry.metrics())
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
}

describe('figures of runs', () => {
  it('are those of the last step and the last evaluation, by run and environment', async () => {
    const figures = new RunFigures();
    const sink = createPrometheusSink(figures, 'tiny');
    await sink.open(quiet);
    const points = pointsOf(20).map((point) => ({
      ...point,
      values: {
        ...point.values,
        'ft/restarts/node_lost': 2,
        'timing/step': 1.5,
        'environment/tool_error_rate': 0.25,
      },
    }));
    await sink.write(points, quiet);
    const lines = await linesOf(figures);
    for (const line of [
      'longhaul_step{run="tiny"} 20',
      'longhaul_step_seconds{run="tiny"} 1.5',
      'longhaul_reward_mean{run="tiny"} 0.3125',
      'longhaul_reward_pass_at_n{run="tiny",environment="crm/eu"} 0.5',
      'longhaul_tool_error_ratio{run="tiny",environment="all"} 0.25',
      'longhaul_policy{run="tiny",figure="grad_norm"} 0.05',
      'longhaul_ft{run="tiny",figure="restarts/node_lost"} 2',
      'longhaul_cost{run="tiny",figure="tokens"} 20000000',
      'longhaul_eval_step{run="tiny",suite="interval"} 20',
      'longhaul_eval_pass_ratio{run="tiny",suite="interval",environment="crm/eu"} 0.15625',
    ])
      expect(lines).toContain(line);
    expect((await sink.open(quiet)).step).toBe(20);
  });

  it('are not changed by an older evaluation, and disappear with the run', async () => {
    const figures = new RunFigures();
    const evaluation = (step: number, pass: number) => ({
      id: evaluationPointId(step, 'final', 'ab'.repeat(32)),
      step,
      at: '2026-01-02T03:00:00.000Z',
      values: { 'eval/final/all/pass_at_1': pass },
    });
    figures.show('tiny', evaluation(20, 0.8));
    figures.show('tiny', evaluation(10, 0.3));
    figures.show('other', evaluation(1, 0.1));
    figures.showFollower('tiny', 'wandb', { step: 12, failing: true });
    expect(await linesOf(figures)).toContain(
      'longhaul_eval_pass_ratio{run="tiny",suite="final",environment="all"} 0.8',
    );
    expect(await linesOf(figures)).toContain('longhaul_follower_failing{run="tiny",sink="wandb"} 1');
    figures.forget('tiny');
    expect((await linesOf(figures)).filter((line) => line.includes('run="tiny"'))).toEqual([]);
    expect(await linesOf(figures)).toContain('longhaul_eval_step{run="other",suite="final"} 1');
    figures.show('tiny', evaluation(5, 0.2));
    expect(await linesOf(figures)).toContain('longhaul_eval_step{run="tiny",suite="final"} 5');
  });

  it('show nothing, not the earlier value, after a step without grades', async () => {
    const figures = new RunFigures();
    const at = '2026-01-02T03:00:00.000Z';
    const played = { 'environment/total_episodes': 4, 'environment/crm/num_episodes': 4 };
    const rewards = { 'reward/avg_raw_reward': 0.5, 'reward/avg_pass_at_n': 1, 'reward/signal_ratio': 1 };
    const own = { 'reward/crm/pass_at_n': 1, 'reward/crm/signal_ratio': 1 };
    const step = (n: number, values: Record<string, number>) =>
      figures.show('tiny', { id: stepPointId(n), step: n, at, values });
    const evaluation = (n: number, values: Record<string, number>) =>
      figures.show('tiny', { id: evaluationPointId(n, 'interval', 'ab'.repeat(32)), step: n, at, values });
    const graded = async () =>
      (await linesOf(figures)).filter((line) => /reward|signal|pass/.test(line)).length;
    step(1, { ...played, ...rewards, ...own });
    evaluation(1, { 'eval/crm/graded': 4, 'eval/crm/pass_at_1': 0.5 });
    expect(await graded()).toBe(6);
    step(2, { ...played, 'reward/unknown': 4 });
    evaluation(2, { 'eval/crm/graded': 0, 'eval/crm/unknown': 4 });
    expect(await graded()).toBe(0);
    step(3, { ...played, ...rewards, ...own });
    expect(await graded()).toBe(5);
  });

  it('have pass@k of the last evaluation by k, and none that it lacks', async () => {
    const figures = new RunFigures();
    const at = '2026-01-02T03:00:00.000Z';
    const evaluation = (n: number, values: Record<string, number>) =>
      figures.show('tiny', { id: evaluationPointId(n, 'final', 'ab'.repeat(32)), step: n, at, values });
    const shown = async () =>
      (await linesOf(figures)).filter((line) => line.startsWith('longhaul_eval_pass'));
    const name = 'longhaul_eval_pass_at_k_ratio{run="tiny",suite="final",environment="crm"';
    const rates = { 'eval/final/crm/pass_at_3': 0.5, 'eval/final/crm/pass_at_n': 0.75 };
    evaluation(1, { 'eval/final/crm/graded': 6, 'eval/final/crm/pass_at_1': 0.25, ...rates });
    expect(await shown()).toEqual([
      'longhaul_eval_pass_ratio{run="tiny",suite="final",environment="crm"} 0.25',
      `${name},k="3"} 0.5`,
      `${name},k="n"} 0.75`,
    ]);
    evaluation(2, { 'eval/final/crm/pass_at_n': 1, 'eval/final/crm/graded': 2 });
    expect((await shown()).slice(1)).toEqual([`${name},k="n"} 1`]);
    evaluation(3, { 'eval/final/crm/graded': 0 });
    expect(await shown()).toEqual([]);
  });

  it('have help texts, and names in Prometheus’ style', async () => {
    const text = await new RunFigures().registry.metrics();
    for (const [name, [help]] of Object.entries(prometheusMetrics)) {
      expect(name).toMatch(/^longhaul_[a-z_]+$/);
      expect(text).toContain(`# HELP ${name} ${help}\n# TYPE ${name} gauge`);
    }
  });
});

describe('the server', () => {
  it('answers on loopback at /metrics, and nowhere else', async () => {
    const figures = new RunFigures();
    figures.showFollower('tiny', 'wandb', { step: 12, failing: false });
    const server = await serveMetrics(figures.registry, parseMetricsAddress('0', flag));
    try {
      expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:[0-9]+\/metrics$/);
      const answer = await fetch(server.url);
      expect(answer.headers.get('content-type')).toContain('text/plain; version=0.0.4');
      expect(await answer.text()).toContain('longhaul_follower_step{run="tiny",sink="wandb"} 12');
      expect((await fetch(server.url.replace('/metrics', '/'))).status).toBe(404);
      expect((await fetch(server.url, { method: 'POST' })).status).toBe(405);
    } finally {
      await server.close();
    }
    await expect(fetch(server.url)).rejects.toThrow();
  });

  it('says which option to change if the port is in use', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    try {
      await expect(
        serveMetrics(new RunFigures().registry, { host: '127.0.0.1', port, flag }),
      ).rejects.toThrow(
        `127.0.0.1:${port} for metrics is in use by another program: name another with --metrics-address HOST:PORT`,
      );
    } finally {
      other.close();
    }
  });

  it('accepts all forms of an address, and refuses other text with the option’s name', () => {
    expect(parseMetricsAddress('9464', flag)).toEqual({ host: '127.0.0.1', port: 9464, flag });
    expect(parseMetricsAddress(':9464', flag)).toEqual({ host: '127.0.0.1', port: 9464, flag });
    expect(parseMetricsAddress('0.0.0.0:9464', flag)).toMatchObject({ host: '0.0.0.0', port: 9464 });
    expect(parseMetricsAddress('[::1]:9464', flag)).toMatchObject({ host: '::1', port: 9464 });
    for (const wrong of ['', 'host', 'host:', '127.0.0.1:99999', 'http://127.0.0.1:9464', '::1:9464'])
      expect(() => parseMetricsAddress(wrong, flag), wrong).toThrow(`${flag} ${wrong}: give HOST:PORT`);
  });
});
