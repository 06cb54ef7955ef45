// The errors of both Temporal clients when a server refuses them become one readable error.
import { status } from '@grpc/grpc-js';
import { ServiceError } from '@temporalio/client';
import { TransportError } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { refusalOf } from '../../../src/workers/temporal/temporal-refusal.js';

const key = 'key-of-the-team+/=7f3a';
const keyed = {
  address: 'h:7233',
  namespace: 'team',
  options: { apiKey: key, metadata: { team: 'also-confidential' } },
};
const keyless = { address: 'h:7233', namespace: 'team', options: {} };
const grpc = (code: status, details: string): Error =>
  new ServiceError('Failed to list', {
    cause: Object.assign(new Error(`${code}: ${details}`), { code, details }),
  });
const native = (words: string, details: string): Error =>
  new TransportError(`Failed to call GetSystemInfo: code: '${words}', message: "${details}"`);

describe('a refusal', () => {
  it.each([
    ['the TypeScript client', grpc(status.UNAUTHENTICATED, `no ${key}, also-confidential`)],
    [
      'the native client',
      native('The request does not have valid authentication credentials', `no ${key}, also-confidential`),
    ],
  ])('of the key, from %s, is recognised, and the error does not contain the key', (_who, error) => {
    expect(refusalOf(error, keyed)?.message).toMatch(
      /at h:7233 cannot be used: it does not accept the API key \(no \[secret removed\], \[secret removed\]\); .*TEMPORAL_API_KEY/,
    );
    expect(refusalOf(error, keyless)?.message).toMatch(/it requires an API key .*; .*TEMPORAL_API_KEY/);
  });

  it.each([
    ['the TypeScript client', grpc(status.PERMISSION_DENIED, 'Request unauthorized.')],
    [
      'the native client',
      native(
        'The caller does not have permission to execute the specified operation',
        'Request unauthorized.',
      ),
    ],
  ])('of our rights, from %s, names the namespace', (_who, error) => {
    expect(refusalOf(error, keyed)?.message).toMatch(
      /it denies access to its namespace team \(Request unauthorized\.\); correct the namespace, or use a key/,
    );
  });

  it.each([
    grpc(status.UNAVAILABLE, 'No connection established'),
    grpc(status.NOT_FOUND, 'workflow not found'),
    new TransportError('tonic::transport::Error(Transport, ConnectError(ConnectionRefused))'),
    new Error('something else'),
    'not even an error',
  ])('is not recognised in any other error: %s', (error) => {
    expect(refusalOf(error, keyed)).toBeNull();
  });
});
