// Defines every figure with its bar, ordered by benchmark.
import { chaosKills } from '../durability/chaos.js';
import { modelSizes } from '../engine/peers.js';
import { quickstartSeeds } from '../quickstart/quickstart.js';
import { type Bar, type FigureDefinition, type Lookup, median } from './figure.js';

/** Name, unit, bar, value (a name in the part, or a function that computes it), description. */
type Row = readonly [string, string, Bar, string | ((of: Lookup) => number), string];

function rowsOf(benchmark: string, part: string, rows: readonly Row[]): FigureDefinition[] {
  return rows.map(([name, unit, bar, value, what]) => ({
    ...{ name, benchmark, unit, bar, what },
    value: typeof value === 'string' ? (of: Lookup) => of(part, value) : value,
  }));
}

const seeds = (value: string) => (of: Lookup) =>
  quickstartSeeds.map((seed) => of(`quickstart/seed-${seed}`, value));
const ofSeeds = (value: string, reduce: (values: number[]) => number) => (of: Lookup) =>
  reduce(seeds(value)(of));
const least = (values: number[]): number => Math.min(...values);
const most = (values: number[]): number => Math.max(...values);

const ofProcesses = (part: string) => (of: Lookup) =>
  most([of(part, 'orchestrator_growth'), of(part, 'node_growth'), of(part, 'engine_growth')]);

const trainingBars = { '0.85M': '≥ 2', '6M': '≥ 1.5', '60M': '≥ 1.2' } as const;
const generationBars = { '0.85M': '≥ 8', '6M': '≥ 4', '60M': '≥ 1.5' } as const;

export const figureDefinitions: readonly FigureDefinition[] = [
  ...rowsOf('quickstart', 'quickstart/run', [
    ['quickstart_seconds', 's', '≤ 300', 'seconds', 'seed 1'],
    ['quickstart_seconds_max', 's', '≤ 300', ofSeeds('seconds', most), 'of five seeds'],
    ['quickstart_pass_before', 'share', '0.1 to 0.4', 'before', 'pass@1 before GRPO, seed 1'],
    ['quickstart_pass_before_min', 'share', '≥ 0.1', ofSeeds('before', least), ''],
    ['quickstart_pass_before_max', 'share', '≤ 0.4', ofSeeds('before', most), ''],
    ['quickstart_pass_after', 'share', '≥ 0.85', 'after', 'pass@1 at the end, seed 1'],
    ['quickstart_pass_after_median', 'share', '≥ 0.85', ofSeeds('after', median), ''],
    ['quickstart_pass_after_min', 'share', '≥ 0.8', ofSeeds('after', least), ''],
    ['quickstart_store_mb', 'MB', '≤ 100', 'store_mb', 'its store'],
    ['quickstart_store_files', 'files', '≤ 5000', 'store_files', ''],
    ['logprob_difference_max_run', 'nats', '= 0', 'logprob_difference_max', 'rollout against trainer'],
  ]),
  ...rowsOf('orchestration', 'quickstart/run', [
    ['orchestration_ms_p50', 'ms', '≤ 150', 'orchestration_ms_p50', ''],
    ['history_events_per_step', 'events', '≤ 40', 'events_per_step', ''],
    ['history_events_per_step_max', 'events', '≤ 40', 'events_per_step_max', ''],
    ['history_payload_bytes_max', 'bytes', '< 10240', 'payload_bytes_max', ''],
  ]),
  ...rowsOf('engine', 'engine', [
    ['engine_generated_tokens_per_second', 'tokens/s', '', 'generated_tokens_per_second', '256 episodes'],
    ['engine_trained_tokens_per_second', 'tokens/s', '', 'trained_tokens_per_second', '256 transcripts'],
    ['engine_one_token', 'µs', '', 'one_token_us', 'one token, cached prompt'],
  ]),
  ...modelSizes.flatMap((size) =>
    rowsOf('engine', `engine/train-${size}`, [
      [`engine_training_${size}_vs_torch`, 'ratio', trainingBars[size], 'ratio', 'over PyTorch'],
    ]),
  ),
  ...modelSizes.flatMap((size) =>
    rowsOf('engine', `engine/generate-${size}`, [
      [
        `engine_generation_${size}_vs_transformers`,
        'ratio',
        generationBars[size],
        'ratio',
        'over `generate`',
      ],
    ]),
  ),
  ...rowsOf('engine', 'engine/sharing', [
    ['engine_sharing_cost', 'share', '≤ 0.3', 'ratio', '8 samples over 8 prompts'],
  ]),
  ...rowsOf('engine', 'engine/gemm', [
    [
      ...(['engine_gemm_of_peak', 'share', '≥ 0.85'] as const),
      (of) => least([of('engine/gemm', 'matmul_worst'), of('engine/gemm', 'weight_gradient_worst')]),
      'worst matrix product',
    ],
    ['engine_gemm_vs_torch', 'ratio', '', 'over_torch', 'over MKL, median'],
  ]),
  ...rowsOf('engine', 'engine/load', [
    ['engine_load_seconds', 's', '≤ 0.5', 'seconds', '60M parameters, fp32'],
  ]),
  ...chaosKills.flatMap((kills) =>
    rowsOf('durability', `chaos/${kills}`, [
      [`chaos_digest_equal_${kills}`, 'equal', '= 1', 'equal', 'digest after SIGKILLs'],
    ]),
  ),
  ...rowsOf('durability', 'campaign', [
    ['chaos_campaign_runs', 'runs', '≥ 100', 'runs', 'four faults each'],
    ['chaos_campaign_equal', 'share', '= 1', shareOfEqual, 'ended as undisturbed'],
  ]),
  ...rowsOf('durability', 'disturbed', [
    ['ettr', 'share', '≥ 0.95', 'ettr', 'after five kills'],
    ['ettr_recorded', 'share', '≥ 0.95', 'ettr_recorded', '`ft/ettr`'],
    ['lost_turns_per_episode', 'turns', '≤ 1', 'turns_again_max', 'sampled again after a kill'],
    ['lost_updates', 'updates', '≤ 1', 'updates_again_max', 'computed again after a kill'],
    ['engine_detection', 's', '≤ 1', 'engine_detection_seconds', 'kill to failed attempt'],
    ['worker_detection', 's', '≤ 2', 'worker_detection_seconds', 'node worker, orchestrator'],
    ['checkpoint_stall', 'share', '≤ 0.01', 'stall_share', 'updates’ wait'],
  ]),
  ...rowsOf('restore', 'restore', [['restore_share', 'share', '≥ 0.8', 'restore_share', 'over `dd`']]),
  ...rowsOf('restore', 'replay', [['replay_speed', 'share', '≥ 1', 'replay_speed', 'making over replaying']]),
  ...rowsOf('served', 'served', [
    ['served_own_ms_p50', 'ms', '≤ 150', 'own_ms_p50', 'of a step on a Tinker server'],
    ['served_kill_by_numbers', 's', '≤ 2', 'kill_by_numbers_s', 'a worker’s death'],
    ['served_kill_by_reload', 's', '≤ 12', 'kill_by_reload_s', 'a lost model'],
    ['served_kills', 'kills', '= 20', 'kills', 'of worker and server'],
    [
      'served_logprob_difference',
      'nats',
      '≤ 0.000001',
      'logprob_difference_after_kills',
      'final, over no kills',
    ],
    ['served_violations', '', '= 0', 'violations', 'in the audit after them'],
  ]),
  ...rowsOf('served', 'served/checks', [
    [
      'served_checks',
      '%',
      '≤ 2',
      'checks_percent_of_64',
      'of a step of 64 episodes: what its checks add to it',
    ],
    ['served_checks_tiny', '%', '≤ 2', 'checks_percent_of_4', 'of a step of four episodes'],
  ]),
  ...rowsOf('fleet', 'fleet', [
    ['fleet_false_zeros', 'episodes', '= 0', 'false_zeros', '1, 5, 20 % of events fail; databases locked'],
    ['fleet_faulty_episodes', 'episodes', '', 'episodes', 'at these faults'],
    ['fleet_met_a_fault', 'episodes', '', 'met_a_fault', 'of faulty episodes'],
    ['fleet_unknown', 'episodes', '', 'unknown', 'of faulty episodes'],
    ['fleet_left_instances', 'instances', '= 0', 'left', '20 kills in 100 episodes'],
    ['fleet_made_twice', 'openings', '= 0', 'made_twice', 'in these episodes'],
    ['fleet_other_grades', 'grades', '= 0', 'other_grades', '100 tasks thrice, against Fleet’s client'],
  ]),
  ...rowsOf('environments', 'environments', [
    ['environments_false_zeros', 'episodes', '= 0', 'false_zeros', '3 kinds of server'],
    ['environments_lossy_episodes', 'episodes', '≥ 500', 'lossy_episodes', '1, 5, 20 % lost answers'],
    ['environments_lost_answers', 'answers', '', 'lost_answers', 'in lossy episodes'],
    ['environments_places_found', 'ratio', '≥ 0.9', 'places_ratio', 'unset over set `max_sessions`'],
    ['environments_calls', '1/s', '≥ 5000', 'server_calls_per_second', 'example server, 1,000 sessions'],
    ['environments_call_p99', 'ms', '≤ 50', 'server_call_ms_p99', 'of these calls'],
  ]),
  ...rowsOf('data', 'data', [
    ['prepare_seconds', 's', '≤ 60', 'prepare_seconds', '20,000 tasks, 200 MB from S3'],
    ['prepare_mib', 'MiB', '≤ 600', 'prepare_mib', 'its process at most'],
    ['prepare_loop_ms', 'ms', '≤ 50', 'prepare_loop_ms', 'longest wait of the event loop'],
  ]),
  ...rowsOf('curriculum', 'curriculum', [
    [
      'curriculum_gain',
      'ratio',
      '≥ 1.5',
      'gain',
      'groups with signal, `by: env` over uniform: 5 environments, 2 learnable',
    ],
    ['curriculum_signal', 'share', '', 'by_env', 'of groups'],
    ['curriculum_signal_uniform', 'share', '', 'uniform', ''],
  ]),
  ...rowsOf('scale', 'long_run', [
    ['long_run_memory_growth', 'share', '< 0.05', ofProcesses('long_run'), 'largest of three processes'],
    ['long_run_history_events_max', 'events', '< 10000', 'events_max', ''],
    [
      ...(['long_run_step_slowdown', 'ratio', ''] as const),
      (of) => of('long_run', 'step_ms_late') / of('long_run', 'step_ms_early'),
      'late over early',
    ],
  ]),
  ...rowsOf('scale', 'many_runs', [
    ['many_runs_unfinished', 'runs', '= 0', unfinished, 'of 20 at once'],
    ['many_runs_orchestration_ms_p95', 'ms', '≤ 500', 'orchestration_ms_p95', ''],
  ]),
  ...rowsOf('sweep', 'sweep', [
    ['sweep_seconds', 's', '≤ 300', 'seconds', ''],
    ['sweep_memory_growth', 'share', '≤ 0.1', ofProcesses('sweep'), 'largest of three processes'],
    ['sweep_again_seconds', 's', '≤ 5', 'again_seconds', 'nothing new'],
  ]),
  ...rowsOf('report', 'report', [
    ['report_page_mb', 'MB', '≤ 5', 'page_mb', ''],
    ['report_open_ms', 'ms', '< 1000', 'open_ms', 'transcripts listed'],
    ['report_transcripts', 'transcripts', '≥ 10000', 'transcripts', ''],
    ['report_make_seconds', 's', '', 'make_seconds', '`longhaul report`'],
  ]),
];

function shareOfEqual(of: Lookup): number {
  return of('campaign', 'equal') / of('campaign', 'runs');
}

function unfinished(of: Lookup): number {
  return of('many_runs', 'runs') - of('many_runs', 'finished') + of('many_runs', 'broken_links');
}
