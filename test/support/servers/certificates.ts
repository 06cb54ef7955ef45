// A certificate authority for tests and the certificates that it signs, made by openssl.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Paths of PEM files. */
export interface Certificate {
  cert: string;
  key: string;
}

export interface Authority extends Certificate {
  sign(name: string): Certificate;
}

export function hasOpenssl(): boolean {
  try {
    execFileSync('openssl', ['version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** `name`: subject of the authority, and the first part of its file names in `folder`. */
export function makeAuthority(folder: string, name: string): Authority {
  const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
  openssl('req', '-x509', ...curve, '-keyout', key, '-out', cert, '-days', '1', '-subj', `/CN=${name}`);
  return {
    cert,
    key,
    sign: (subject) => {
      const path = (ending: string) => join(folder, `${name}-${subject}.${ending}`);
      const signed = { cert: path('pem'), key: path('key') };
      writeFileSync(path('ext'), 'subjectAltName=IP:127.0.0.1,DNS:localhost\n');
      const request = path('csr');
      openssl('req', ...curve, '-keyout', signed.key, '-out', request, '-subj', `/CN=${subject}`);
      openssl(
        ...['x509', '-req', '-in', request, '-CA', cert, '-CAkey', key, '-CAcreateserial'],
        ...['-out', signed.cert, '-days', '1', '-extfile', path('ext')],
      );
      return signed;
    },
  };
}
