// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls of the Responses API over one WebSocket, by the runtime's own: "path", "calls" (the messages; each one's events are
// read to the last before the next one is sent), "ca"/"plain"/"port"/"wait"/"open" as in ws.py. One JSON line a message.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const cfg = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const LAST = ['response.completed', 'response.incomplete', 'response.failed', 'error'];

async function waitForLine() {
  console.log(`pid ${process.pid}`);
  const line = await lines.next();
  if (line.done) process.exit(3);
}

if (cfg.wait) await waitForLine();
const socket = new WebSocket(`${cfg.plain ? 'ws' : 'wss'}://127.0.0.1:${cfg.port}${cfg.path}`);
let onEvent = () => {};
socket.onmessage = (message) => onEvent(JSON.parse(message.data));
await new Promise((resolve, reject) => {
  socket.onopen = resolve;
  socket.onerror = (event) => reject(new Error(`no WebSocket: ${event.message ?? event.type}`));
});

async function makeCall(message) {
  const answer = { events: 0 };
  await new Promise((resolve) => {
    onEvent = (event) => {
      answer.events++;
      if (LAST.includes(event.type)) resolve((answer.last = event.type));
    };
    socket.onclose = () => resolve((answer.error = 'closed'));
    socket.send(JSON.stringify(message));
  });
  console.log(JSON.stringify(answer));
}

const calls = [...cfg.calls];
if (cfg.open) {
  await makeCall(calls.shift());
  await waitForLine();
}
for (const message of calls) await makeCall(message);
process.exit(0);
