// What the processes of one test run share.

/** Variable with the id of the test run, which all its processes inherit. */
export const runMark = 'LONGHAUL_TEST_RUN';
/** Variable of the processes that files share, and that run until the end. */
export const sharedMark = 'LONGHAUL_TEST_SHARED';
/** Variable that is set if `dist/` is current, so that worker threads may run it. */
export const compiledThreads = 'LONGHAUL_TEST_COMPILED_THREADS';
export const folderVariable = 'LONGHAUL_TEST_RUN_FOLDER';

/** Folder that all files of a test run share. */
export function testRunFolder(): string {
  const folder = process.env[folderVariable];
  if (!folder) throw new Error(`${folderVariable} is not set: the global set-up has not run`);
  return folder;
}
