// That a step works, and for how long: on a terminal one line that changes, elsewhere (a log, a pipe) a line now and then.
const terminalMs = 1_000;
const logMs = 30_000;
const clear = '\r\u001b[2K';

/**
 * Shown until the answer is called. The line of the terminal is gone then.
 * @param {string} label the step
 * @param {() => string | null} latest what it does now; null where it has not said anything
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

/** The source line and the marks that a compiler prints below a warning say nothing by themselves. */
export function isCompilerArt(line) {
  return /^\s*\d*\s*\|/.test(line);
}
