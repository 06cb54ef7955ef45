// Shows that a step is running, and for how long: a terminal has one changing line; other outputs (a log, a pipe) get a line from time to
// time.
const terminalMs = 1_000;
const logMs = 30_000;
const clear = '\r\u001b[2K';

/**
 * Shows the line until the returned function is called, which also removes the line from a terminal.
 * @param {string} label the step
 * @param {() => string | null} latest what the step does now; null before its first output
 * @param {{isTTY?: boolean, columns?: number, write: (text: string) => unknown}} output
 * @returns {() => void}
 */
export function showLife(label, latest, output = process.stdout) {
  const started = Date.now();
  const line = () => {
    const doing = latest();
    return `    ${label}: ${Math.round((Date.now() - started) / 1000)} s${doing === null ? '' : ` … ${doing.slice(0, 80)}`}`;
  };
  const show = () =>
    output.write(output.isTTY ? `${clear}${line().slice(0, (output.columns ?? 80) - 1)}` : `${line()}\n`);
  const timer = setInterval(show, output.isTTY ? terminalMs : logMs);
  return () => {
    clearInterval(timer);
    if (output.isTTY) output.write(clear);
  };
}

/** Whether a line is the source line or the marks below a compiler warning. They say nothing alone. */
export function isCompilerArt(line) {
  return /^\s*\d*\s*\|/.test(line);
}
