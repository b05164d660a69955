// Builds the page and writes it as a C file: a table of paths, types, tags and bytes, plain and compressed.
//
//   node build.mjs --packages FOLDER --c FILE [--version V]     FOLDER has node_modules of package-lock.json
//   node build.mjs --packages FOLDER --dir FOLDER               the files themselves, to look at
//   node build.mjs --packages FOLDER --module markdown.js --to FILE     one module with its libraries, for a test
//
// The same sources and packages give the same bytes. Nothing is fetched, and nothing is written beside what was named.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { constants, gzipSync } from "node:zlib";

// What all files may have together, before compression: the page must stay small.
const BUDGET_BYTES = 300_000;
const BUNDLED = ["marked", "dompurify", "highlight.js"];

const { values: options } = parseArgs({
  options: {
    packages: { type: "string" },
    c: { type: "string" },
    dir: { type: "string" },
    module: { type: "string" },
    to: { type: "string" },
    version: { type: "string", default: "0" },
  },
});
if (!options.packages || !(options.c || options.dir || (options.module && options.to))) {
  console.error("usage: node build.mjs --packages FOLDER (--c FILE | --dir FOLDER | --module NAME --to FILE) [--version V]");
  process.exit(2);
}

const source = join(dirname(fileURLToPath(import.meta.url)), "src");
const modules = resolve(options.packages, "node_modules");
const require = createRequire(join(modules, "here.js"));
const esbuild = require("esbuild");

async function bundle(entry) {
  const result = await esbuild.build({
    entryPoints: [join(source, entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: ["es2022", "chrome105", "firefox110", "safari16"],
    nodePaths: [modules],
    legalComments: "none",
    charset: "utf8",
    define: { T9_PAGE_VERSION: JSON.stringify(options.version) },
    logLevel: "warning",
  });
  return Buffer.from(result.outputFiles[0].contents);
}

function hashOf(bytes) {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}

function licences() {
  const parts = ["This page contains the following libraries, under the licences below.\n"];
  for (const name of BUNDLED) {
    const folder = join(modules, name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no licence file`);
    parts.push(`\n${"=".repeat(78)}\n${name} ${about.version} (${about.license})\n${"=".repeat(78)}\n\n`);
    parts.push(readFileSync(join(folder, file), "utf8"));
  }
  return Buffer.from(parts.join(""));
}

function asset(name, extension, type, bytes) {
  return { path: `/assets/${name}-${hashOf(bytes)}.${extension}`, type, bytes, final: true };
}

async function makeFiles() {
  const app = asset("app", "js", "text/javascript; charset=utf-8", await bundle("main.js"));
  const style = asset("style", "css", "text/css; charset=utf-8", await bundle("style.css"));
  const icon = asset("icon", "svg", "image/svg+xml", readFileSync(join(source, "icon.svg")));
  const legal = asset("licences", "txt", "text/plain; charset=utf-8", licences());
  const text = readFileSync(join(source, "index.html"), "utf8")
    .replaceAll("%APP%", app.path)
    .replaceAll("%STYLE%", style.path)
    .replaceAll("%ICON%", icon.path)
    .replaceAll("%LICENCES%", legal.path)
    .replaceAll("%VERSION%", options.version);
  const page = { path: "/", type: "text/html; charset=utf-8", bytes: Buffer.from(text), final: false };
  return [page, app, style, icon, legal];
}

// Without a time and without the name of a system, so that every machine makes the same bytes.
function compress(bytes) {
  const out = gzipSync(bytes, { level: constants.Z_BEST_COMPRESSION });
  out.writeUInt32LE(0, 4);
  out[9] = 255;
  return out.length < bytes.length ? out : null;
}

function cArray(name, bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 32) lines.push(Array.from(bytes.subarray(at, at + 32)).join(","));
  return `static const uint8_t ${name}[] = {\n${lines.join(",\n")}};\n`;
}

function cFile(files) {
  let text = "/* Made by web/build.mjs. */\n#include \"http/page.h\"\n\n";
  let rows = "";
  files.forEach((file, i) => {
    const gzip = compress(file.bytes);
    text += cArray(`plain_${i}`, file.bytes) + (gzip ? cArray(`gzip_${i}`, gzip) : "");
    rows += `    {${JSON.stringify(file.path)}, ${JSON.stringify(file.type)}, "\\"${hashOf(file.bytes)}\\"", ` +
      `${file.final}, plain_${i}, sizeof plain_${i}, ${gzip ? `gzip_${i}, sizeof gzip_${i}` : "NULL, 0"}},\n`;
  });
  return `${text}\nconst struct page_file page_files[] = {\n${rows}};\nconst size_t page_n_files = ${files.length};\n`;
}

if (options.module) {
  writeFileSync(options.to, await bundle(options.module));
  process.exit(0);
}
const files = await makeFiles();
const total = files.reduce((sum, file) => sum + file.bytes.length, 0);
const packed = files.reduce((sum, file) => sum + (compress(file.bytes) ?? file.bytes).length, 0);
for (const file of files) console.log(`${String(file.bytes.length).padStart(8)}  ${file.path}`);
console.log(`${String(total).padStart(8)}  in all, ${packed} compressed`);
if (total > BUDGET_BYTES) {
  console.error(`the page has ${total} bytes; ${BUDGET_BYTES} are allowed`);
  process.exit(1);
}
if (options.c) {
  mkdirSync(dirname(resolve(options.c)), { recursive: true });
  writeFileSync(options.c, cFile(files));
}
if (options.dir) {
  for (const file of files) {
    const to = join(options.dir, file.path === "/" ? "index.html" : file.path);
    mkdirSync(dirname(to), { recursive: true });
    writeFileSync(to, file.bytes);
  }
}
