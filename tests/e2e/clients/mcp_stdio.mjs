// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An MCP client that starts its server as a child and speaks to it over the child's standard input and output.
// mcp_stdio.mjs CONFIG: {"truth": FILE, "calls": [{"method", "params"}], "concurrency": N, "hang": BOOL}; hang: the child
// is killed while it works.
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";

const config = JSON.parse(fs.readFileSync(process.argv[2]));
const waiting = new Map();
let child, last = 0;

function send(message) {
  child.stdin.write(JSON.stringify({ ...message, jsonrpc: "2.0" }) + "\n");
}

function request(method, params) {
  const id = last++;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    send({ method, params, id });
  });
}

async function main() {
  child = spawn(process.execPath, [path.join(import.meta.dirname, "mcp_server.mjs"), config.truth], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  readline.createInterface({ input: child.stdout }).on("line", (line) => {
    const message = JSON.parse(line);
    if (message.method) send({ result: { roots: [] }, id: message.id });
    else waiting.get(message.id)?.(message);
  });
  await request("initialize", {
    protocolVersion: "2025-11-25",
    capabilities: { roots: {} },
    clientInfo: { name: "agent", version: "1" },
  });
  send({ method: "notifications/initialized" });
  const todo = [...config.calls];
  const worker = async () => {
    while (todo.length) {
      const { method, params } = todo.shift();
      await request(method, params);
    }
  };
  await Promise.all(Array.from({ length: config.concurrency ?? 1 }, worker));
  if (config.hang) {
    request("tools/call", { name: "sleep", arguments: { ms: 100000 } });
    await new Promise((resolve) => setTimeout(resolve, 200));
    child.kill();
    await new Promise((resolve) => setTimeout(resolve, 800));
  }
  child.stdin.end();
}

process.stdout.write(`pid ${process.pid}\n`);
process.stdin.once("data", async () => {
  await main();
  process.stdin.destroy();
});
