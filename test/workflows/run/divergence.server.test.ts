// A step whose records disagree, after a person has fixed them: its plan may have been quarantined too.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { resumeUpdate } from '../../../src/workflows/messages.js';
import { uniqueScript, until, useTemporal, withRun } from '../scripted-run.js';

describe('a step that was blocked by a divergence', () => {
  const temporal = useTemporal();

  it.each(['collect 4', 'update 4'])('at %s begins again from its plan with one resume', async (diverges) => {
    const script = uniqueScript('diverged');
    let planIsOld = true;
    script.before = (call) => {
      // A part of the step that still uses the old plan meets the same records again.
      if (call === 'plan 4' && fixed) planIsOld = false;
      if (call === diverges && planIsOld)
        throw ApplicationFailure.nonRetryable('the batch is not that of its episodes', 'Diverged');
    };
    let fixed = false;
    await withRun(temporal, script, async (run) => {
      await until(run, ({ phase }) => phase === 'blocked');
      fixed = true;
      await run.executeUpdate(resumeUpdate);
      await until(run, ({ phase }) => phase === 'completed');
    });
    expect(script.control.n).toBe(1);
    expect(script.calls.filter((call) => call === 'plan 4')).toHaveLength(2);
  });
});
