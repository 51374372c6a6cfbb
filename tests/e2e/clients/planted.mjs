// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The routes of tests/tools/planted in one process of node, with the same truth: planted.mjs CONFIG.json, of which
// {truth, model_port, database_port, tls: {key, cert}, http2}. Prints "listening PORT" and "pid N", ends at a line.
import { execFile } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net from "node:net";

const config = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const truth = fs.openSync(config.truth, "a");
const now = () => process.hrtime.bigint();
let sum = 0;

// --- on a processor: 40, 30 and 30 of a hundred

function planted_hot() {
	for (let i = 0; i < 40000; i++) sum = (sum + i) % 1000003;
}

function planted_warm() {
	for (let i = 0; i < 30000; i++) sum = (sum + i) % 1000003;
}

function planted_cold() {
	for (let i = 0; i < 30000; i++) sum = (sum + i) % 1000003;
}

function hot(t, ms) {
	const end = now() + BigInt(ms * 1e6);
	while (now() < end) {
		const began = now();
		planted_hot();
		t.hot_ns += Number(now() - began);
		planted_warm();
		planted_cold();
	}
}

function planted_storm(t) {
	const kept = [];
	for (let i = 0; i < 2000; i++) kept[i % 10] = Buffer.allocUnsafeSlow(1024);
	t.alloc_count += 2000;
	t.alloc_bytes += 2000 * 1024;
	return kept.length;
}

// --- downstream: each notes when

// The work may say more exactly from when to when others had it: between that and a promise lies the event loop. And for
// how long it was there by their clock: on a busy machine other programs lie between.
async function part(t, kind, work) {
	const at = { began: Number(now()), ended: 0, served: 0 };
	try {
		return await work(at);
	} finally {
		t.parts.push([kind, at.began, at.ended || Number(now())]);
		if (kind === "db") t.db_served_ns += at.served;
	}
}

// One connection for all, commands in the order of their answers.
const database = { waiting: [], socket: null };

function command(at, name, key) {
	return new Promise((resolve, reject) => {
		if (!database.socket) {
			database.socket = net.connect(config.database_port, "127.0.0.1");
			database.socket.setNoDelay(true);
			let text = "";
			database.socket.on("data", (data) => {
				const ended = Number(now());
				text += data;
				for (let m; (m = text.match(/^(?:\*2\r\n\$1\r\na\r\n)?\$9\r\n(\d{9})\r\n/)); text = text.slice(m[0].length))
					database.waiting.shift()(ended, Number(m[1]));
			});
			database.socket.on("error", reject);
		}
		database.waiting.push((ended, served) => resolve(Object.assign(at, { ended, served })));
		at.began = Number(now());
		database.socket.write(`*2\r\n$${name.length}\r\n${name}\r\n$${key.length}\r\n${key}\r\n`);
	});
}

function exchange(at, by, port, options, body) {
	return new Promise((resolve, reject) => {
		const createConnection = () => {
			process.nextTick(() => (at.began = Number(now()))); // in the one after this it connects
			const socket = net.connect(port, "127.0.0.1");
			socket.on("connect", () => {
				// The request is written next. One for which a connection was opened does not come 50 ms later.
				if (Number(now()) - at.began > 50e6) at.began = Number(now());
			});
			return socket.on("data", () => (at.ended = Number(now())));
		};
		const how = by === http ? { createConnection } : { agent: false };
		const request = by.request({ host: "127.0.0.1", port, ...how, ...options }, (response) => {
			response.resume();
			response.on("end", resolve);
		});
		request.on("error", reject);
		request.end(body);
	});
}

async function nplus1(t, number) {
	for (let i = 0; i < 12; i++) await part(t, "db", (at) => command(at, "GET", `item:${number}:${i}`));
}

function call_model(at, number) {
	const body = JSON.stringify({ model: "gpt-planted", stream: true, max_tokens: 100, messages: [{ role: "user", content: "hello" }] });
	const path = `/planted-${number}/v1/chat/completions?delay_ms=20&gap_ms=2&tokens=5`;
	const headers = { "content-type": "application/json", "content-length": body.length };
	return exchange(at, http, config.model_port, { method: "POST", path, headers }, body);
}

const tool = (t) =>
	new Promise((resolve, reject) => {
		const child = execFile("sleep", ["0.02"], (error) => (error ? reject(error) : resolve()));
		t.tool_pid = child.pid;
		child.on("exit", () => (t.tool_end_ns = Number(now())));
	});

const routes = {
	hot: (t) => hot(t, 5),
	alloc: planted_storm,
	nplus1,
	slow: (t, number) => part(t, "db", (at) => command(at, "HGETALL", number)),
	// There is no lock to wait for: the whole process stands still.
	lock: (t) => {
		const began = now();
		Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 15);
		t.lock_ns += Number(now() - began);
	},
	model: (t, number) => part(t, "model", (at) => call_model(at, number)),
	relay: (t, number) => part(t, "http", (at) => exchange(at, config.tls ? https : http, config.own_port, { path: `/health/90000${number}`, rejectUnauthorized: false })),
	tool: (t) => part(t, "tool", () => tool(t)),
	mixed: async (t, number) => {
		hot(t, 3);
		await nplus1(t, number);
		await part(t, "db", (at) => command(at, "HGETALL", number));
		await part(t, "tool", () => tool(t));
	},
	large: () => {},
	health: () => {},
};

// --- requests

function union_ns(parts) {
	let total = 0;
	let end = 0;
	for (const [, from, to] of [...parts].sort((a, b) => a[1] - b[1])) {
		total += Math.max(0, to - Math.max(from, end));
		end = Math.max(end, to);
	}
	return total;
}

function tell(t, request, name, status, cpu) {
	const spent = process.cpuUsage(cpu);
	const line = {
		method: request.method,
		path: request.url,
		route: `/${name}/:id`,
		status,
		begin_ns: t.begin_ns,
		end_ns: t.end_ns,
		cpu_ns: (spent.user + spent.system) * 1000, // of the whole process
		hot_ns: t.hot_ns,
		lock_ns: t.lock_ns,
		tool_pid: t.tool_pid,
		tool_end_ns: t.tool_end_ns,
		db_served_ns: t.db_served_ns,
		downstream_ns: union_ns(t.parts),
		alloc_count: t.alloc_count,
		alloc_bytes: t.alloc_bytes,
	};
	for (const kind of ["db", "model", "tool", "http"]) {
		const mine = t.parts.filter((p) => p[0] === kind);
		line[kind] = mine.length;
		line[`${kind}_ns`] = union_ns(mine);
	}
	fs.writeSync(truth, JSON.stringify(line) + "\n");
}

const large = Buffer.alloc(4 << 20, "x");

async function serve(request, response) {
	const t = { begin_ns: Number(now()), hot_ns: 0, lock_ns: 0, tool_pid: 0, tool_end_ns: 0, db_served_ns: 0, alloc_count: 0, alloc_bytes: 0, parts: [] };
	const cpu = process.cpuUsage();
	const [, name, number] = request.url.split(/[/?]/);
	let status = 404;
	if (routes[name]) {
		try {
			await routes[name](t, number ?? "0");
			status = 200;
		} catch (error) {
			console.error(error);
			status = 500;
		}
	}
	const body = name === "large" ? large : Buffer.alloc(16, "x");
	const end = () => tell(t, request, status === 404 ? "" : name, status, cpu);
	response.writeHead(status, { "content-type": "text/plain", "content-length": body.length });
	// A short one is written at once; then who waits for it may get this processor before a clock can be read.
	if (body === large) response.on("finish", () => ((t.end_ns = Number(now())), end()));
	t.end_ns = Number(now());
	response.end(body);
	if (body !== large) end();
}

const files = config.tls && { key: fs.readFileSync(config.tls.key), cert: fs.readFileSync(config.tls.cert) };
const server = config.http2 ? http2.createSecureServer(files, serve) : config.tls ? https.createServer(files, serve) : http.createServer(serve);
server.listen(0, "127.0.0.1", () => {
	config.own_port = server.address().port;
	console.log(`listening ${config.own_port}\npid ${process.pid}`);
});
process.stdin.once("data", () => process.exit(0));
process.stdin.once("end", () => process.exit(0));
