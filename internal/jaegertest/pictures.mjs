// Makes the pictures of docs/tracing.md, with a headless Chromium: of what the demo has sent to a Jaeger, from the search over a
// wait to its holder. Start Jaeger and run the demo as the page says, and then, with Node 22 or later:
//
//	node internal/jaegertest/pictures.mjs http://localhost:16686 docs/pictures
import { spawn } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [ui = 'http://localhost:16686', to = 'docs/pictures'] = process.argv.slice(2);
const service = 'holdfast-demo';

// The purchase that waited for the longest, and the trace that its wait links to first.
const { data } = await (await fetch(`${ui}/api/traces?service=${service}&operation=buy&limit=200`)).json();
const waits = data.flatMap(t => t.spans).filter(s => s.operationName === 'lock.wait' && s.references.some(r => r.refType === 'FOLLOWS_FROM'));
const wait = waits.sort((a, b) => b.duration - a.duration)[0];
if (!wait) throw new Error(`no lock.wait with a link at ${ui}: run the demo first`);
const holder = wait.references.find(r => r.refType === 'FOLLOWS_FROM');

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
const click = (selector, text) => until(`(e => e && (e.click(), true))([...document.querySelectorAll('${selector}')].find(e => e.textContent.includes('${text}')))`);

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
  await picture('search', `/search?service=${service}&operation=buy&limit=20&lookback=1h&minDuration=600ms`, 620,
    () => until(`document.querySelectorAll('.ResultItem, .ResultItemTitle').length > 3`));
  await picture('wait', `/trace/${wait.traceID}`, 975, () => click('.span-row .span-name', 'lock.wait'),
    () => click('[class*="--header"]', 'Tags:'), () => click('[class*="--header"]', 'References'));
  await picture('holder', `/trace/${holder.traceID}?uiFind=${holder.spanID}`, 460, () => until(`document.querySelectorAll('.span-row').length > 3`));
} finally {
  socket.close();
  browser.removeAllListeners('exit');
  await new Promise(ended => { browser.on('exit', ended); browser.kill(); });
  rmSync(profile, { recursive: true, force: true });
}
