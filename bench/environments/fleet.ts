// Fleet: whether faults become zeros, what kills of a node leave there, and whether our client's grades are those of Fleet's own.
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { startFleetService } from '../../test/environments/fleet/fleet-service.js';
import {
  type FaultFigures,
  faultsAt,
  gradesOf,
  killNode,
  playWithFaults,
} from '../../test/environments/fleet/measures.js';
import { requirePythonWith } from '../../test/support/python/python-environments.js';

export interface FleetFigures {
  episodes: number;
  met_a_fault: number;
  false_zeros: number;
  unknown: number;
  kills: number;
  /** Instances that the kills left. */
  left: number;
  made_twice: number;
  graded: number;
  /** Grades that differ from those of Fleet's own client in local mode. */
  other_grades: number;
}

interface LocalGrade {
  task: string;
  outcome: string;
  local: { result: number | { score: number } };
}

const kills = 20;

export async function measureFleet(): Promise<FleetFigures> {
  const python = await requirePythonWith('fleet');
  const service = await startFleetService(python);
  try {
    const grades = await gradesOf(service);
    const script = resolve('test/environments/fleet/drives/grade_drive.py');
    const args = [script, '--url', service.url, '--tasks', service.tasks];
    const { stdout } = await promisify(execFile)(python, args, { maxBuffer: 1 << 26 });
    const local = JSON.parse(stdout) as LocalGrade[];
    const scoreOf = ({ result }: LocalGrade['local']): number =>
      typeof result === 'number' ? result : result.score;
    const other = local.filter((row) => grades.get(`${row.task}/${row.outcome}`) !== scoreOf(row.local));
    const killed = await killNode(service, kills);
    const faulty: FaultFigures[] = [];
    for (const rate of [0.01, 0.05, 0.2]) faulty.push(await playWithFaults(service, faultsAt(rate)));
    faulty.push(await playWithFaults(service, { lock: true }, { tasks: 20 }));
    const sum = (name: 'episodes' | 'met_a_fault' | 'false_zeros' | 'unknown'): number =>
      faulty.reduce((total, figures) => total + figures[name], 0);
    return {
      ...{ episodes: sum('episodes'), met_a_fault: sum('met_a_fault') },
      ...{ false_zeros: sum('false_zeros'), unknown: sum('unknown') },
      ...{ kills: killed.kills, left: killed.left, made_twice: killed.made_twice },
      ...{ graded: local.length, other_grades: other.length },
    };
  } finally {
    await service.stop();
  }
}
