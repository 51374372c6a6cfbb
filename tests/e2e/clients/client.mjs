// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The calls of a JSON file by node's fetch; the format is that of client.py. "concurrency": that many at a time. "seconds":
// the first call again and again so long, with a number for the % in its path, and only how many at the end.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const cfg = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const base = `${cfg.plain ? 'http' : 'https'}://127.0.0.1:${cfg.port}`;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function makeCall(call) {
  const answer = { start_ns: Number(process.hrtime.bigint()) };
  try {
    const response = await fetch(base + call.path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...call.headers },
      body: JSON.stringify(call.body),
    });
    let bytes = 0;
    for await (const piece of response.body) bytes += piece.length;
    answer.status = response.status;
    answer.bytes = bytes;
  } catch (error) {
    answer.error = String(error.cause?.code ?? error.name);
  }
  answer.end_ns = Number(process.hrtime.bigint());
  console.log(JSON.stringify(answer));
}

async function makeLoad() {
  const [call] = cfg.calls;
  const end = Date.now() + cfg.seconds * 1000;
  let made = 0;
  const work = async () => {
    while (Date.now() < end) {
      const response = await fetch(base + call.path.replace('%', made++), {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(call.body),
      });
      const text = await response.text();
      if (response.status !== 200 || !text) throw new Error(`status ${response.status}`);
    }
  };
  await Promise.all(Array.from({ length: cfg.concurrency }, work));
  console.log('calls', made);
}

async function waitForLine() {
  console.log(`pid ${process.pid}`);
  const line = await lines.next();
  if (line.done) process.exit(3);
}

if (cfg.wait) await waitForLine();
if (cfg.open) {
  await makeCall(cfg.first);
  await waitForLine();
}
if (cfg.seconds) await makeLoad();
const queue = cfg.seconds ? [] : [...cfg.calls];
const worker = async () => {
  for (let call = queue.shift(); call; call = queue.shift()) await makeCall(call);
};
await Promise.all(Array.from({ length: cfg.concurrency ?? 1 }, worker));
process.exit(0);
