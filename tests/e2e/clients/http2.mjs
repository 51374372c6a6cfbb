// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The calls of a JSON file as streams of one HTTP/2 session of node's http2 module; the format is that of client.py.
// "concurrency": that many at a time (all). "open": "first" is a list of streams; they have begun to answer when the
// client waits. "warm": the first call is made alone. "stagger_ms" between the
// starts of the others: what is written in one turn of the loop leaves node together, after all of it was encrypted. "cancel_ms" of a call: reset it after that long.
import { readFileSync } from 'node:fs';
import { connect, constants } from 'node:http2';
import { createInterface } from 'node:readline';

const cfg = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function openSession() {
  return new Promise((resolve, reject) => {
    const base = `${cfg.plain ? 'http' : 'https'}://127.0.0.1:${cfg.port}`;
    const options = cfg.plain ? {} : { ca: readFileSync(cfg.ca) };
    const session = connect(base, options, () => resolve(session));
    session.on('error', reject);
    session.on('goaway', () => {});
  });
}

// begun: called at the head of the answer.
function makeCall(session, call, begun) {
  return new Promise((resolve) => {
    const answer = { path: call.path, bytes: 0 };
    const stream = session.request({
      ':method': 'POST',
      ':path': call.path,
      'content-type': 'application/json',
      ...call.headers,
    });
    if (call.cancel_ms) setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), call.cancel_ms);
    stream.on('response', (headers) => {
      answer.status = headers[':status'];
      begun?.();
    });
    stream.on('data', (piece) => (answer.bytes += piece.length));
    stream.on('error', (error) => (answer.error = error.code));
    stream.on('close', () => {
      answer.reset = stream.rstCode;
      console.log(JSON.stringify(answer));
      begun?.();
      resolve(answer);
    });
    stream.end(JSON.stringify(call.body));
  });
}

async function waitForLine() {
  console.log(`pid ${process.pid}`);
  const line = await lines.next();
  if (line.done) process.exit(3);
}

if (cfg.wait) await waitForLine();
const session = await openSession();
const open = [];
if (cfg.open) {
  await Promise.all(cfg.first.map((call) => new Promise((begun) => open.push(makeCall(session, call, begun)))));
  await waitForLine();
}
const queue = [...cfg.calls];
if (cfg.warm) await makeCall(session, queue.shift());
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const worker = async (index) => {
  await sleep(index * (cfg.stagger_ms ?? 0));
  for (let call = queue.shift(); call; call = queue.shift()) await makeCall(session, call);
};
await Promise.all(Array.from({ length: cfg.concurrency ?? queue.length }, (_, index) => worker(index)));
await Promise.all(open);
await new Promise((closed) => session.close(closed));
process.exit(0);
