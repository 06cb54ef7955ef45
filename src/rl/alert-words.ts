// The texts of an alert, the same everywhere it is shown.
import type { Alert } from './alerts.js';

/** How a medium writes external text and numbers: for example, a Slack channel needs its markup escaped. */
export interface AlertWriter {
  /** Writes the name of an environment, a node, or a limit. */
  name: (text: string) => string;
  reason: (text: string) => string;
  percent: (share: number) => string;
  whole: (count: number) => string;
  timeSpan: (seconds: number) => string;
}

export function alertWords(
  alert: Alert,
  { name, reason, percent, whole, timeSpan }: AlertWriter,
): { title: string; line: string } {
  switch (alert.about) {
    case 'tool_error_rate':
      return {
        title: 'Tool Error Rate Alert',
        line: `${name(alert.environment)}: ${percent(alert.rate)} tool error rate (threshold: ${percent(alert.threshold)})`,
      };
    case 'no_learning_signal':
      return {
        title: 'No Learning Signal',
        line:
          `the last ${whole(alert.steps)} steps had groups with different outcomes in ${percent(alert.signalRatio)} of prompts: ` +
          'the tasks are too hard or too easy for the current policy',
      };
    case 'reward_collapsed':
      return {
        title: 'Reward Collapsed',
        line:
          `the last ${whole(alert.steps)} steps had a mean reward of ${figure(alert.reward)}; the best steps had ${figure(alert.best)}: ` +
          'rewind to a step before it fell, with a lower learning rate',
      };
    case 'reward_drift':
      return {
        title: 'Reward Drift',
        line:
          `${name(alert.environment)}: over the last ${whole(alert.steps)} steps the mean reward is ${figure(alert.now.reward)} and pass@1 ${percent(alert.now.pass_at_1)}; ` +
          `when pass@1 was best, they were ${figure(alert.best.reward)} and ${percent(alert.best.pass_at_1)}: ` +
          'the policy collects reward without solving tasks; read its failed episodes with high rewards',
      };
    case 'entropy_gone':
      return {
        title: 'Entropy Gone',
        line:
          `the policy’s entropy is ${figure(alert.entropy)} nats a token over the last ${whole(alert.steps)} steps; it was ${figure(alert.highest)}: ` +
          'samples of one prompt hardly differ, so there is little to learn from',
      };
    case 'gradient_norm':
      return {
        title: 'Gradient Norm',
        line: `the gradient norm is ${figure(alert.norm)}; usually it is ${figure(alert.usual)}: the update was clipped, and the learning rate may be too high`,
      };
    case 'update_skipped':
      return { title: 'Update Skipped', line: `the weights did not change: ${reason(alert.reason)}` };
    case 'unknown_outcomes':
      return {
        title: 'Unknown Outcomes',
        line:
          `${alert.environment === null ? 'all environments' : name(alert.environment)}: ${percent(alert.rate)} of episodes ended ` +
          `without a grade (threshold: ${percent(alert.threshold)}); they are left out of training`,
      };
    case 'environment_changed':
      return {
        title: 'Environment Changed',
        line:
          `the server of ${name(alert.environment)} is another one (${reason(alert.changes.join(', '))}): ` +
          'rewards from this step on are not comparable with those before it; start a run with a new name if this was not meant',
      };
    case 'node_lost':
      return {
        title: 'Node Lost',
        line: `${name(alert.node)}${alert.detail === null ? '' : `: ${reason(alert.detail)}`}; the run continues on another node, or waits for one`,
      };
    case 'budget_near':
      return {
        title: 'Budget Near',
        line: `${reason(alert.resource)}: ${amount(alert.spent)} of ${amount(alert.limit)} spent (${percent(alert.spent / alert.limit)})`,
      };
    case 'stalled':
      return {
        title: 'Stalled',
        line: `no step was committed for ${timeSpan(alert.seconds)}; a step usually takes ${timeSpan(alert.usualSeconds)}`,
      };
  }
}

const amount = (value: number): string => value.toLocaleString('en', { maximumFractionDigits: 2 });
/** Readable also for values near 0. */
const figure = (value: number): string => value.toLocaleString('en', { maximumSignificantDigits: 3 });
