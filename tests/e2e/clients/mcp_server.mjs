// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An MCP server on standard input and output: a message a line. Tools: sleep {ms}, fail, big {bytes}; `ask` asks the client
// for its roots first. What it does is appended to the file of its first argument: a line a request, its name and its ms.
import fs from "node:fs";
import readline from "node:readline";

const truth = process.argv[2];
const waiting = new Map();
let asked = 0;

function send(message) {
  // The order of members is the one of the SDK for JavaScript: jsonrpc comes last.
  process.stdout.write(JSON.stringify({ ...message, jsonrpc: "2.0" }) + "\n");
}

function ask(method) {
  const id = asked++;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    send({ method, id });
  });
}

async function call({ name, arguments: how }) {
  if (name === "sleep") await new Promise((resolve) => setTimeout(resolve, how.ms));
  if (name === "ask") await ask("roots/list");
  if (name === "fail") return { content: [{ type: "text", text: "RESULTCANARY" }], isError: true };
  return { content: [{ type: "text", text: "RESULTCANARY".padEnd(how.bytes ?? 0, "x") }] };
}

async function answer(message) {
  const begin = process.hrtime.bigint();
  let reply;
  if (message.method === "initialize")
    reply = { result: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "bench", version: "3" } } };
  else if (message.method === "tools/list") reply = { result: { tools: [{ name: "sleep", inputSchema: {} }] } };
  else if (message.method === "tools/call") reply = { result: await call(message.params) };
  else reply = { error: { code: -32601, message: "ERRORCANARY" } };
  const ms = Number(process.hrtime.bigint() - begin) / 1e6;
  // First: who has the answer may end, and this with it.
  fs.appendFileSync(truth, JSON.stringify({ method: message.method, tool: message.params?.name ?? null, id: message.id, ms }) + "\n");
  send({ ...reply, id: message.id });
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method && message.id !== undefined) answer(message);
  else if (!message.method) waiting.get(message.id)?.(message);
});
