import { Command } from 'commander';
import { expect, test } from 'vitest';
import { modules } from '../../../src/cli/program.js';

// A verb that the table leaves out works all the same: every command is loaded to find it, so that only its start tells.
test.each(modules.map(([verbs, load]) => ({ verbs, load })))(
  'the table of verbs names what its file registers: $verbs',
  async ({ verbs, load }) => {
    const program = new Command();
    (await load()).register(program);
    expect(verbs).toEqual(program.commands.map((command) => command.name()));
  },
  30_000,
);
