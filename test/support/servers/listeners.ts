// Finds the addresses on which processes listen, from /proc (Linux).
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface Listener {
  pid: number;
  command: string;
  /** `127.0.0.1:80`, `[::1]:80`, or the path of a Unix socket. */
  address: string;
  /** True if only this machine or this user's own processes can reach the address. */
  loopback: boolean;
}

/** The given processes and all processes that they have started. */
export function withDescendants(pids: readonly number[]): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
        return [{ pid: Number(pid), parent: Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) }];
      } catch {
        return [];
      }
    });
  const found = [...pids];
  for (const pid of found)
    found.push(...parents.filter(({ parent }) => parent === pid).map((one) => one.pid));
  return found;
}

export function listenersOf(pids: readonly number[]): Listener[] {
  const sockets = new Map([
    ...internet('tcp', '0A'),
    ...internet('tcp6', '0A'),
    // UDP has no state for listening: every bound socket can receive.
    ...internet('udp', '07'),
    ...internet('udp6', '07'),
    ...unix(),
  ]);
  return pids.flatMap((pid) => {
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').slice(0, 80);
    return inodesOf(pid).flatMap((inode) => {
      const found = sockets.get(inode);
      return found ? [{ pid, command, ...found }] : [];
    });
  });
}

type Found = Pick<Listener, 'address' | 'loopback'>;

function inodesOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
    } catch {
      return [];
    }
  });
}

function internet(table: string, state: string): [inode: string, found: Found][] {
  return readFileSync(`/proc/net/${table}`, 'utf8')
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[3] === state)
    .map((fields) => {
      const [host = '', port = ''] = (fields[1] ?? '').split(':');
      // Each group of four bytes is in this machine's byte order.
      const bytes = Buffer.concat(
        (host.match(/.{8}/g) ?? []).map((group) => Buffer.from(group, 'hex').reverse()),
      );
      return [
        fields[9] ?? '',
        { address: `${text(bytes)}:${parseInt(port, 16)}`, loopback: isLoopback(bytes) },
      ];
    });
}

function text(bytes: Buffer): string {
  return bytes.length === 4 ? [...bytes].join('.') : `[${bytes.toString('hex').match(/.{4}/g)?.join(':')}]`;
}

function isLoopback(bytes: Buffer): boolean {
  if (bytes.length === 4) return bytes[0] === 127;
  const v4 = bytes.subarray(0, 12).equals(Buffer.from('00000000000000000000ffff', 'hex'));
  return v4 ? bytes[12] === 127 : bytes.equals(Buffer.from(`${'00'.repeat(15)}01`, 'hex'));
}

/** Unix sockets that accept connections and have a name that other processes can use. */
function unix(): [inode: string, found: Found][] {
  const accepts = 0x10000;
  return readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => (parseInt(fields[3] ?? '0', 16) & accepts) !== 0 && fields[7] !== undefined)
    .map((fields) => [fields[6] ?? '', { address: fields[7] ?? '', loopback: false }]);
}
