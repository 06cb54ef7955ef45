// Each block names its way out: what to do, with commands that exist, and the command that resumes the run.
import { readFileSync } from 'node:fs';
import { ApplicationFailure } from '@temporalio/common';
import { WorkflowFailedError } from '@temporalio/client';
import { describe, expect, it, vi } from 'vitest';
import { fatalFailures } from '../../../src/activities/contracts.js';
import { runCommandLine } from '../../../src/cli/program.js';
import { resumeUpdate } from '../../../src/workflows/messages.js';
import { endingFailures, remedies } from '../../../src/workflows/policies.js';
import { uniqueScript, until, useTemporal, withRun } from '../scripted-run.js';

const blocking = fatalFailures.filter((type) => !endingFailures.includes(type));
const guide = readFileSync('docs/guide/when-something-breaks.md', 'utf8');
const [, section = ''] = /^## What blocks a run\n([^]*?)^## /m.exec(guide) ?? [];

/** The verb of every `longhaul VERB` in a text. */
function verbsIn(text: string): string[] {
  return [...text.matchAll(/\blonghaul ([a-z]+)/g)].map(([, verb]) => verb as string);
}

/** The verbs in the command line's help. */
async function verbs(): Promise<string[]> {
  let help = '';
  const out = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    help += String(text);
    return true;
  });
  await runCommandLine(['--help']).finally(() => out.mockRestore());
  return [...help.matchAll(/^ {2}([a-z]+) /gm)].map(([, verb]) => verb as string);
}

describe('the way out of a block', () => {
  const temporal = useTemporal();

  it('is named by every failure that no retry fixes, known or not, and lets the run end', async () => {
    const script = uniqueScript('ways-out');
    const failures = [...blocking, 'SomethingNew'];
    const left = [...failures];
    script.before = (call) => {
      const type = call === 'plan 1' ? left[0] : undefined;
      if (type) throw ApplicationFailure.nonRetryable(`it is ${type}`, type);
    };
    const known = await verbs();
    await withRun(temporal, script, async (run) => {
      for (const type of failures) {
        const { blocked } = await until(run, (status) => status.blocked?.reason === `it is ${type}`);
        const general = remedies[type as keyof typeof remedies] ?? 'Fix the cause';
        const remedy = general.replaceAll(' NAME ', ` ${script.outline.run} `);
        expect(blocked?.remedy).toBe(`${remedy}. Then: longhaul resume ${script.outline.run}`);
        for (const verb of verbsIn(blocked?.remedy ?? '')) expect(known).toContain(verb);
        left.shift();
        await run.executeUpdate(resumeUpdate);
      }
      expect((await run.result()).step).toBe(6);
    });
  });

  it('is named after steps that changed nothing, too', async () => {
    const script = uniqueScript('unapplied-way');
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...(input.step <= 3 ? { applied: false, reason: 'non_finite' } : {}),
    });
    await withRun(temporal, script, async (run) => {
      const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
      expect(blocked?.remedy).toContain(`longhaul set ${script.outline.run} lr=`);
      expect(blocked?.remedy).toMatch(new RegExp(`Then: longhaul resume ${script.outline.run}$`));
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
  });

  it.each(endingFailures)(
    'is not a resume if waiting would not help: %s ends the workflow and says why',
    async (type) => {
      const script = uniqueScript('ending');
      script.before = (call) => {
        if (call === 'plan 1') throw ApplicationFailure.nonRetryable('this and that is wrong', type);
      };
      await withRun(temporal, script, async (run) => {
        const error: unknown = await run.result().catch((thrown: unknown) => thrown);
        expect(error).toBeInstanceOf(WorkflowFailedError);
        expect((error as WorkflowFailedError).cause).toMatchObject({
          type,
          message: 'this and that is wrong',
        });
      });
    },
  );
});

it.each(fatalFailures)('the way out of %s is in the guide', async (type) => {
  expect(section).toContain(`\`${type}\``);
  const known = await verbs();
  for (const verb of verbsIn(section)) expect(known).toContain(verb);
});
