// The report's look, on light, dark and paper.
export const styleSheet = `
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #667085; --page: #fff; --card: #f5f7fa; --rule: #dfe3ea;
  --reward: #9aa7bd; --interval: #2f6fde; --final: #d9480f; --good: #16794c; --bad: #b42318; --warn: #a15c07; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --quiet: #98a2b3; --page: #12161d; --card: #1b212b;
  --rule: #2c3442; --reward: #66738a; --interval: #6ea1ff; --final: #ff8a5c; --good: #4cc38a; --bad: #ff8077; --warn: #f5b454; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 18px; margin: 40px 0 12px; }
.quiet { color: var(--quiet); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 16px; }
.tile { background: var(--card); border-radius: 8px; padding: 12px 16px; font-size: 13px; }
.tile .value { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.chart { width: 100%; height: auto; } .chart .grid { stroke: var(--rule); } .chart .axis { fill: var(--quiet); font-size: 12px; }
.chart .mark { stroke: var(--quiet); stroke-dasharray: 4 4; }
.line { fill: none; stroke-width: 2; } .line.reward { stroke: var(--reward); stroke-width: 1.5; }
.line.interval { stroke: var(--interval); } .line.final { stroke: var(--final); stroke-dasharray: 6 4; }
.dot.interval { fill: var(--interval); } .dot.final { fill: var(--final); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 600; font-size: 13px; color: var(--quiet); } .facts th { width: 190px; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } td code { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.status { display: inline-block; border-radius: 999px; padding: 0 9px; font-size: 12px; font-weight: 600; background: var(--card); }
.status.improving, .status.saturated, .status.pass { color: var(--good); }
.status.failing, .status.declining, .status.fail { color: var(--bad); } .status.flat, .status.unknown { color: var(--warn); }
summary { cursor: pointer; padding: 6px 0; } .transcript { border-bottom: 1px solid var(--rule); }
.part { display: grid; grid-template-columns: 100px 1fr; gap: 12px; padding: 8px 12px; }
.part.model { background: var(--card); border-left: 3px solid var(--interval); } .who { color: var(--quiet); font-size: 12px; }
@media print { details { display: block; } .transcript:nth-of-type(n + 7) { display: none; } }
`;
