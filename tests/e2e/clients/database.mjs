// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The same as database.py in node, with postgres.js: database.mjs PACKAGE, JSON on standard input. Verbs: query SQL,
// params SQL VALUE…, together SQL VALUE… (one query a value, all sent before the first answer). Errors are expected.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const postgres = createRequire(import.meta.url)(process.argv[2]);
const { connect, steps } = JSON.parse(readFileSync(0, "utf8"));
const sql = postgres({
  host: connect.host,
  port: connect.port,
  user: connect.user,
  database: connect.dbname,
  ssl: connect.sslmode === "require" ? { rejectUnauthorized: false } : false,
  max: 1,
  fetch_types: false,
  onnotice: () => {},
});
const verbs = {
  query: (text) => sql.unsafe(text),
  params: (text, ...values) => sql.unsafe(text, values, { prepare: true }),
  together: (text, ...values) => Promise.all(values.map((v) => sql.unsafe(text, [v], { prepare: true }))),
};
for (const [verb, ...values] of steps) await verbs[verb](...values).catch((error) => console.error(verb, error.code));
await sql.end();
