// What the report of a long run must be: 1,000 steps and 10,000 transcripts.
import type { FigureDefinition } from './figure.js';

const part = 'operate/report';
const measurement = 'operate';
const shape = 'of a run of 1,000 steps, 20 evaluations and 10,000 transcripts';

export const reportFigures: readonly FigureDefinition[] = [
  {
    ...{ name: 'report_page_mb', measurement, unit: 'MB', bar: { atMost: 5 } },
    what: `page of the report ${shape}; most transcripts lie beside it`,
    value: (of) => of(part, 'page_mb'),
  },
  {
    ...{ name: 'report_open_ms', measurement, unit: 'ms', bar: { below: 1_000 } },
    what: 'from the browser’s start on that page, from disk, until its transcripts are listed: median of five openings in headless Chromium',
    value: (of) => of(part, 'open_ms'),
  },
  {
    ...{ name: 'report_transcript_ms', measurement, unit: 'ms', bar: null },
    what: 'from a click on a transcript that lies beside the page until it can be read',
    value: (of) => of(part, 'transcript_ms'),
  },
  {
    ...{ name: 'report_transcripts', measurement, unit: 'transcripts', bar: { atLeast: 10_000 } },
    what: 'transcripts that the page lists, from training and evaluations',
    value: (of) => of(part, 'transcripts'),
  },
  {
    ...{ name: 'report_make_seconds', measurement, unit: 's', bar: null },
    what: 'wall time of `longhaul report` for that run, from a directory store',
    value: (of) => of(part, 'make_seconds'),
  },
  {
    ...{ name: 'report_make_mib', measurement, unit: 'MiB', bar: null },
    what: 'highest resident memory of that command',
    value: (of) => of(part, 'make_mib'),
  },
];
