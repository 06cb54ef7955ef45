// The address of a store in a bucket: `s3://bucket/prefix?endpoint=http://host:port&region=us-east-1`.
import { secretInUrl } from '../../base/secrets.js';
import { checkPrefix } from '../record-keys.js';
import { BadKey, StoreUnfit } from '../record-errors.js';

export interface S3Address {
  bucket: string;
  /** Folder of the store in the bucket, without a slash at either end; `''` if the store is the whole bucket. */
  prefix: string;
  endpoint: string | null;
  region: string | null;
}

export function parseS3Address(address: string): S3Address {
  // This check comes first: the other errors quote the address, and must not print a secret.
  const [place = '', query = ''] = address.split('?', 2);
  if (secretInUrl(place) || secretInUrl(new URLSearchParams(query).get('endpoint') ?? '')) {
    throw new StoreUnfit(
      'a store address, or the endpoint in it, never holds credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead',
    );
  }
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new StoreUnfit(
      `store address "${address}" is not a URL; use s3://bucket/prefix?endpoint=…&region=…`,
    );
  }
  for (const name of url.searchParams.keys()) {
    if (name !== 'endpoint' && name !== 'region') {
      throw new StoreUnfit(
        `store address has the unknown parameter "${name}"; known are endpoint and region`,
      );
    }
  }
  const endpoint = url.searchParams.get('endpoint');
  if (endpoint !== null && !/^https?:\/\/./.test(endpoint)) {
    throw new StoreUnfit(
      `the endpoint "${endpoint}" in the store address is not a URL; use http://host:port or https://host`,
    );
  }
  const prefix = decodeURIComponent(url.pathname).replace(/^\/+|\/+$/g, '');
  if (url.hostname === '')
    throw new StoreUnfit(`store address "${address}" names no bucket; use s3://bucket/prefix`);
  try {
    checkPrefix(prefix);
  } catch (error) {
    if (!(error instanceof BadKey)) throw error;
    throw new StoreUnfit(`the prefix of the store address cannot begin a key: ${error.message}`);
  }
  return {
    bucket: url.hostname,
    prefix,
    endpoint,
    region: url.searchParams.get('region'),
  };
}
