import { Command } from 'commander';
import { expect, test } from 'vitest';
import { modules } from '../../../src/cli/program.js';

// The table only makes loading fast. A verb that is missing from the table still works, because then every command is loaded; so only this
// test notices the gap.
test.each(modules.map(([verbs, load]) => ({ verbs, load })))(
  'the table lists the verbs that its file registers: $verbs',
  async ({ verbs, load }) => {
    const program = new Command();
    (await load()).register(program);
    expect(verbs).toEqual(program.commands.map((command) => command.name()));
  },
  30_000,
);
