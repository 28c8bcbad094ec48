// Makes the pictures of docs/tracing.md, with a headless Chromium: of what the demo has sent to a Jaeger, from the search over a
// wait and who is drawn below it to that holder. Start Jaeger and run the demo as the page says, and then, with Node 22 or later
// (or 20 with --experimental-websocket):
//
//	node cmd/internal/jaegertest/pictures.mjs http://localhost:16686 docs/pictures
import { spawn } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [ui = 'http://localhost:16686', to = 'docs/pictures'] = process.argv.slice(2);
const service = 'holdfast-demo';

// A purchase that waited for two holders and got its item, and what the bar of the second links to.
const { data } = await (await fetch(`${ui}/api/traces?service=${service}&operation=buy&limit=200`)).json();
const link = span => span.references.find(r => r.refType === 'FOLLOWS_FROM');
const purchase = data.map(trace => trace.spans.sort((a, b) => a.startTime - b.startTime))
  .map(spans => ({ bars: spans.filter(s => s.operationName.startsWith('held by ') && link(s)), paid: spans.some(s => s.operationName === 'pay') }))
  .find(p => p.paid && p.bars.length === 2);
if (!purchase) throw new Error(`no purchase with two "held by" at ${ui}: run the demo first`);
const bar = purchase.bars[1], holder = link(bar);

const profile = mkdtempSync(join(tmpdir(), 'pictures-'));
const browser = spawn(process.env.CHROMIUM ?? 'chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
  '--hide-scrollbars', '--no-first-run', '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank']);
const debug = await new Promise((found, failed) => {
  browser.on('exit', () => failed(new Error('chromium ended')));
  browser.stderr.on('data', text => { const m = /127\.0\.0\.1:\d+/.exec(text); if (m) found(m[0]); });
});
const page = (await (await fetch(`http://${debug}/json`)).json()).find(t => t.type === 'page');
const socket = new WebSocket(page.webSocketDebuggerUrl);
await new Promise(open => { socket.onopen = open; });
let last = 0;
const asked = new Map();
socket.onmessage = m => { const reply = JSON.parse(m.data); asked.get(reply.id)?.(reply.result); };
const ask = (method, params = {}) => new Promise(done => {
  asked.set(++last, done);
  socket.send(JSON.stringify({ id: last, method, params }));
});

// until repeats what the page may not be ready for.
async function until(expression) {
  for (const end = Date.now() + 60000; Date.now() < end; await new Promise(r => setTimeout(r, 300))) {
    const { result } = await ask('Runtime.evaluate', { expression });
    if (result?.value) return;
  }
  throw new Error(`never true: ${expression}`);
}
// click clicks on the last that has the text.
const click = (selector, text) => until(`(e => e && (e.click(), true))([...document.querySelectorAll('${selector}')].findLast(e => e.textContent.includes('${text}')))`);

const run = expression => until(`(() => { ${expression}; return true })()`);

async function picture(name, path, height, ...steps) {
  await ask('Emulation.setDeviceMetricsOverride', { width: 1200, height, deviceScaleFactor: 1, mobile: false });
  await ask('Page.navigate', { url: ui + path });
  for (const step of steps) await step();
  await new Promise(r => setTimeout(r, 1500)); // until nothing moves any more
  const { data } = await ask('Page.captureScreenshot', { format: 'png' });
  writeFileSync(join(to, `${name}.png`), Buffer.from(data, 'base64'));
}

mkdirSync(to, { recursive: true });
try {
  await ask('Page.navigate', { url: `${ui}/search` });
  await run(`localStorage.setItem('spanNameColumnWidth', '0.325')`); // for names to be whole
  await picture('search', `/search?service=${service}&operation=buy&limit=20&lookback=1h&minDuration=1s`, 610,
    () => until(`document.querySelectorAll('.ResultItem, .ResultItemTitle').length > 3`));
  await picture('wait', `/trace/${bar.traceID}`, 812, () => click('.span-row .span-name', 'held by '),
    () => click('[class*="--header"]', 'Tags:'), () => click('[class*="--header"]', 'References'));
  await picture('holder', `/trace/${holder.traceID}?uiFind=${holder.spanID}`, 440, () => until(`document.querySelectorAll('.span-row').length > 3`),
    () => new Promise(r => setTimeout(r, 1500)), () => run(`scrollTo(0, 0)`)); // it has scrolled to the marked one
} finally {
  socket.close();
  browser.removeAllListeners('exit');
  await new Promise(ended => { browser.on('exit', ended); browser.kill(); });
  rmSync(profile, { recursive: true, force: true });
}
