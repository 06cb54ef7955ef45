// The commands explain why a run makes no progress.
import { ApplicationFailure, Context } from '@temporalio/activity';
import { describe, expect, it } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { howItBegins } from '../../../src/cli/train/follow-training.js';
import { followRun } from '../../../src/cli/train/live-view.js';
import { whyFollowedEnded } from '../../../src/cli/train/run-end.js';
import { waitingFor } from '../../../src/cli/waiting-text.js';
import { StoreFull } from '../../../src/store/record-errors.js';
import { writeNotice } from '../../../src/store/runs/notices.js';
import { recordsOf, writeAll } from '../../workers/follower/written-run.js';
import { gate, startRun, uniqueName, uniqueScript, withRun } from '../../workflows/scripted-run.js';
import { longhaul, store, storeAddress, temporal, useCommandStage } from './command-stage.js';

useCommandStage();

describe('longhaul status', () => {
  it('says that a run waits because its store is full, and no longer says it once the run continues', async () => {
    const script = uniqueScript('full');
    let full = true;
    let tries = 0;
    script.before = (call) => {
      if (call !== 'update 2' || !full) return;
      tries = Context.current().info.attempt;
      throw new StoreFull('no space is left for runs/full/steps/000002/batch.safetensors');
    };
    await withRun(temporal, script, async (run) => {
      await expect.poll(() => tries).toBeGreaterThan(1);
      // During a try nothing waits, so poll until the run is between two tries.
      await expect
        .poll(() => longhaul('status', script.outline.name))
        .toMatchObject({
          ...{ code: 0, errors: '' },
          output: expect.stringMatching(
            /waits for step-000002\/update, try \d+: .*batch\.safetensors/,
          ) as string,
        });
      await expect
        .poll(
          async () => JSON.parse((await longhaul('status', script.outline.name, '--json')).output) as object,
          { timeout: 120_000 },
        )
        .toMatchObject({
          run: script.outline.name,
          waiting: [{ activity: 'step-000002/update', reason: expect.stringContaining('batch') as string }],
        });
      full = false;
      await run.result();
      const after = await longhaul('status', script.outline.name, '--json');
      expect(JSON.parse(after.output)).toMatchObject({ phase: 'completed', waiting: [] });
    });
  });

  it('shows alerts of a run without a Slack channel, while it runs and after its end', async () => {
    const script = uniqueScript('wrecked');
    const run = script.outline.name;
    const held = gate();
    script.before = (call) => (call === 'update 2' ? held.wait() : undefined);
    const metrics = (step: number) => ({
      'reward/avg_raw_reward': step < 6 ? 0.6 : 0,
      'reward/signal_ratio': step < 6 ? 0.5 : 0,
      'policy/grad_norm': step === 6 ? 900 : 0.5,
    });
    await writeAll(store, recordsOf({ run, steps: 12, metrics }));
    const trouble = { what: '2 messages', reason: 'not in the channel', since: '2026-11-26T08:11:12.000Z' };
    await writeNotice(store, run, { sink: 'slack', trouble, by: 'follower' }, []);
    const found = [
      { name: 'no_learning_signal', holds: true, steps: [8] },
      { name: 'reward_collapsed', holds: true, steps: [9] },
      { name: 'gradient_norm', holds: false, steps: [6] },
    ];
    await withRun(temporal, script, async (handle) => {
      await held.reached;
      const shown = await longhaul('status', run, '--store', storeAddress);
      expect(shown).toMatchObject({ code: 0, errors: '' });
      expect(shown.output).toMatch(
        /warning: Reward Collapsed since step 9: .* of 0\.12; the best steps had 0\.6/,
      );
      expect(shown.output).toMatch(/warning: No Learning Signal since step 8/);
      expect(shown.output).toMatch(/earlier: Gradient Norm \(step 6\)/);
      expect(shown.output).toContain('slack lacks 2 messages since 2026-11-26 08:11 UTC: not in the channel');
      held.release();
      await handle.result();
      const after = await longhaul('status', run, '--json', '--store', storeAddress);
      const { alerts, undelivered } = JSON.parse(after.output) as {
        alerts: { name: string }[];
        undelivered: object[];
      };
      expect(undelivered).toEqual([{ sink: 'slack', ...trouble }]);
      expect(alerts.sort((a, b) => (a.name < b.name ? 1 : -1))).toMatchObject(
        found.sort((a, b) => (a.name < b.name ? 1 : -1)),
      );
    });
  });

  it('warns of a failed garbage collection, also after the run has ended', async () => {
    const script = uniqueScript('hoards', { ckpt_interval: 2 });
    script.activities.collectGarbage = () =>
      Promise.reject(ApplicationFailure.nonRetryable('record refs/x.json is unreadable', 'UnreadableRecord'));
    await withRun(temporal, script, async (run) => {
      await run.result();
      const { code, output } = await longhaul('status', script.outline.name);
      expect(code).toBe(0);
      expect(output).toMatch(
        /warning: the garbage collection after step 6 failed, .*: record refs\/x\.json is unreadable\. .*`longhaul gc hoards-/,
      );
    });
  });

  it('says how many outcomes are unknown, and why most of them are', async () => {
    const script = uniqueScript('unknown');
    const { collectRollouts, evaluateState } = script.activities;
    const unknown = { unknown: 3, unknown_reason: 'gym: grade: it cannot \u001b[31mgrade' };
    script.activities.collectRollouts = async (input) => ({ ...(await collectRollouts(input)), ...unknown });
    script.activities.evaluateState = async (input) => ({ ...(await evaluateState(input)), unknown: 2 });
    await withRun(temporal, script, async (run) => {
      await run.result();
      const { output } = await longhaul('status', script.outline.name);
      expect(output).toContain(
        'unknown outcomes: 3 of 19 at step 6, most of them gym: grade: it cannot \\u001b[31mgrade',
      );
      const status = JSON.parse(
        (await longhaul('status', script.outline.name, '--json')).output,
      ) as RunStatus;
      expect(status.outcomes?.last).toMatchObject(unknown);
      expect(status.evaluations.at(-1)).toMatchObject({ unknown: 2 });
    });
  });

  it('does not show an earlier failure while the next try runs', async () => {
    const script = uniqueScript('fixed');
    const held = gate();
    script.before = async (call) => {
      if (call !== 'update 2') return;
      if (Context.current().info.attempt === 1) throw new Error('the worker that ran it has ended');
      await held.wait();
    };
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const { pendingActivities } = (await run.describe()).raw;
      expect(pendingActivities).toMatchObject([{ activityId: 'step-000002/update', attempt: 2 }]);
      expect(pendingActivities?.[0]?.lastFailure?.message).toContain('has ended');
      expect(await waitingFor(temporal.client, run)).toEqual([]);
      held.release();
      await run.result();
    });
  });

  it('says that no worker takes the work of a lost node', async () => {
    const script = uniqueScript('gone');
    script.grant = () => uniqueName('nobody');
    await withRun(temporal, script, async (run) => {
      await expect
        .poll(async () => (await longhaul('status', script.outline.name)).output)
        .toMatch(/waits for step-000000\/base, try 1: no worker has taken it/);
      await run.terminate();
    });
  });
});

describe('a run with a waiting attempt', () => {
  it('says so before the first episode of an evaluation, too', async () => {
    const script = uniqueScript('absent');
    const held = gate();
    script.before = async (call) => {
      if (!call.startsWith('evaluate')) return;
      Context.current().heartbeat({
        ...{ waiting: 'depot', waiting_since: Date.now() - 71_000, waiting_episodes: 0 },
        waiting_reason: 'http://127.0.0.1:9 does not answer',
        waiting_until: Date.UTC(2030, 0, 1, 12, 30),
      });
      await held.wait();
    };
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const words =
        /: it waits for environment depot \(.*127\.0\.0\.1:9 does not answer\); the run is blocked if it does not answer by 12:30 UTC/;
      const { name } = script.outline;
      await expect.poll(async () => (await longhaul('status', name)).output).toMatch(words);
      expect(JSON.parse((await longhaul('status', name, '--json')).output)).toMatchObject({
        waiting: [
          { attempt: 1, reason: expect.stringContaining('it waits for environment depot') as string },
        ],
      });
      held.release();
      await run.result();
    });
  });

  it('says what the attempt waits for and for how long, until it continues', async () => {
    const script = uniqueScript('outage');
    const held = gate();
    script.before = async (call) => {
      if (call !== 'update 2') return;
      Context.current().heartbeat({
        waiting: 'booking',
        waiting_since: Date.now() - 71_000,
        waiting_episodes: 16,
        waiting_reason: 'the environment server http://127.0.0.1:9 is down',
        waiting_until: Date.UTC(2030, 0, 1, 12, 30),
      });
      await held.wait();
    };
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const shown = async (): Promise<string> => (await longhaul('status', script.outline.name)).output;
      await expect
        .poll(shown)
        .toMatch(
          /waits for step-000002\/update, try 1, for 1 min \d+ s: 16 episodes wait for environment booking \(.*127\.0\.0\.1:9 is down\); the run is blocked if it does not answer by 12:30 UTC/,
        );
      held.release();
      await run.result();
    });
  });
});

describe('a run whose workflow ended without completing', () => {
  it('is shown with its end and its last figures, even after a later start was refused', async () => {
    const script = uniqueScript('over');
    const { name } = script.outline;
    const held = gate();
    let refuses = false;
    script.before = (call) => {
      if (call === 'open' && refuses)
        throw ApplicationFailure.nonRetryable('vocab_size must be 1024, not 100', 'InvalidSpec');
      return call === 'update 2' ? held.wait() : undefined;
    };
    await withRun(temporal, script, async (run, queue) => {
      await held.reached;
      await run.terminate('the disk is replaced');
      const terminated = await longhaul('status', name);
      expect(terminated.code).toBe(1);
      expect(terminated.output).toMatch(new RegExp(`^${name} · step 1/6 drill · .* · terminated\n`));
      expect(terminated.output).toMatch(
        /terminated at .* UTC: the disk is replaced\n.*longhaul train --run over-/,
      );
      expect(terminated.output).not.toMatch(/node |at most/);

      refuses = true;
      const again = await startRun(temporal, queue, name);
      await expect(again.result()).rejects.toThrow();
      const refused = await longhaul('status', name);
      expect(refused.code).toBe(1);
      expect(refused.output).toMatch(new RegExp(`^${name} · step 1/6 drill · `));
      expect(refused.output).toMatch(/the last start failed at .*vocab_size must be 1024, not 100/);
      const json = JSON.parse((await longhaul('status', name, '--json')).output) as object;
      expect(json).toMatchObject({ run: name, step: 1, end: { how: 'failed', claimed: false } });

      const never = uniqueName('never');
      await expect((await startRun(temporal, queue, never)).result()).rejects.toThrow();
      const { code, output } = await longhaul('status', never, '--watch');
      expect(code).toBe(1);
      expect(output).toMatch(new RegExp(`^${never} · failed before it had begun\n.*vocab_size`));
      held.release();
    });
  });

  it('is reported with its cause to a command that follows the run', async () => {
    const script = uniqueScript('watched');
    const { name } = script.outline;
    const held = gate();
    script.before = (call) => (call === 'update 2' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const watched = followRun(temporal.client, run, {}).catch((error: unknown) =>
        whyFollowedEnded(run, name, error, {}),
      );
      await run.terminate('the disk is replaced');
      expect(await watched).toMatchObject({
        message: expect.stringMatching(
          new RegExp(`^${name} was terminated at .*: the disk is replaced\\n.*longhaul train --run ${name}`),
        ) as string,
      });
      held.release();
    });
  });
});

describe('a detached start', () => {
  it('is reported once it has claimed its run, and is an error if the run refuses it', async () => {
    const script = uniqueScript('detached');
    const { name } = script.outline;
    const held = gate();
    let refuses = false;
    script.before = (call) => {
      if (call === 'open' && refuses)
        throw ApplicationFailure.nonRetryable('vocab_size must be 1024, not 100', 'InvalidSpec');
      return call === 'base' ? held.wait() : undefined;
    };
    await withRun(temporal, script, async (run, queue) => {
      expect(await howItBegins(temporal.client, run, name, {})).toBe('claimed');
      await run.terminate();
      refuses = true;
      const again = await startRun(temporal, queue, name);
      await expect(howItBegins(temporal.client, again, name, {})).rejects.toThrow(
        /^the start of .* failed at .*: vocab_size must be 1024, not 100\nthat start did not change the run/,
      );
      held.release();
    });
  });
});

describe('the command', () => {
  it.each([['status'], ['pause'], ['cancel']])(
    '%s says that the name does not exist, and lists the names that do',
    async (verb) => {
      const name = uniqueName('known');
      const workflow = await startRun(temporal, uniqueName('nobody'), name);
      await expect
        .poll(async () => (await longhaul(verb, 'nope')).errors)
        .toMatch(
          new RegExp(
            `^(on .*\\n)?error: there is no run "nope" on this Temporal server: it has .*${name}.*\\n$`,
          ),
        );
      await workflow.terminate();
      expect((await longhaul('cancel', name)).errors).toContain(
        `the workflow of ${name} has ended (terminated): continue the run with \`longhaul train --run ${name}\``,
      );
    },
  );

  it('cancel ends a running workflow, including its report, and only then returns', async () => {
    const script = uniqueScript('cancelled');
    const held = gate();
    script.before = (call) => (call === 'update 2' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const cancelled = longhaul('cancel', script.outline.name);
      await expect.poll(async () => (await run.describe()).status.name).toBe('CANCELLED');
      held.release();
      expect(await cancelled).toMatchObject({
        code: 0,
        output: expect.stringContaining(
          `continue with: longhaul train --run ${script.outline.name}\n`,
        ) as string,
      });
    });
    expect(script.calls.at(-1)).toMatch(/report|update/);
  });
});

describe('longhaul resume', () => {
  it('says that a run which is neither paused nor blocked already continues, and records nothing', async () => {
    const script = uniqueScript('going');
    const held = gate();
    script.before = (call) => (call === 'update 2' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const { name } = script.outline;
      const { code, output } = await longhaul('resume', name);
      expect({ code, output }).toEqual({
        code: 0,
        output: `${name} is neither paused nor blocked: it is running already\n`,
      });
      expect(script.control.n).toBe(0);
      expect((await longhaul('pause', name)).output).toContain('pauses at its next step boundary');
      expect((await longhaul('resume', name)).output).toBe(`${name} continues\n`);
      expect((await longhaul('pause', name, '--folder', 'stack')).output).toContain(
        `continue with: longhaul resume ${name} --folder stack\n`,
      );
      await longhaul('resume', name);
      expect(script.control.n).toBe(4);
      held.release();
      await run.result();
    });
  });
});
