// Writes the demonstrations of the presets into a folder: `node …/demonstrations-main.js FOLDER`.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generateDemonstrations } from './generate.js';

/** Numbers of drills and teacher episodes, by preset. Presets with the same apps share their first demonstrations. */
const files = [
  { apps: ['tracker', 'booking'], presets: { quickstart: [19_200, 12_800], tiny: [8_000, 6_400] } },
  { apps: ['mail', 'tracker', 'booking', 'sprints', 'tickets'], presets: { suite: [19_200, 19_200] } },
] as const;

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: demonstrations-main.js FOLDER');
mkdirSync(folder, { recursive: true });
for (const { apps, presets } of files) {
  const counts = Object.entries(presets) as [string, readonly [drill: number, teacher: number]][];
  const [drills, episodes] = [0, 1].map((kind) => Math.max(...counts.map(([, count]) => count[kind]!))) as [
    number,
    number,
  ];
  const all = generateDemonstrations({
    ...{ apps, seed: 1, drill_demonstrations: drills, teacher_demonstrations: episodes },
  }).map((one) => `${JSON.stringify(one)}\n`);
  for (const [name, [drill, teacher]] of counts) {
    const chosen = [...all.slice(0, drill), ...all.slice(drills, drills + teacher)];
    writeFileSync(join(folder, `${name}.jsonl`), chosen.join(''));
  }
}
