// A running program for the suites of official clients for Node, and the package that they check.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// The package from node_modules of `folder`; without it the suite ends with 77.
export function load(folder, name) {
  try {
    return createRequire(join(folder, 'package.json'))(name);
  } catch {
    console.log(`the ${name} package is not installed: skipped`);
    process.exit(77);
  }
}

// Serves the model and gives its port to `use`; the program must end well, too.
export async function serving(program, model, options, use) {
  const child = spawn(program, ['serve', '--gguf', model, '--port', '0', ...options],
    { stdio: ['ignore', 'ignore', 'pipe'] });
  const port = await new Promise((resolve, reject) => {
    let log = '';
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    child.stderr.on('data', (data) => {
      log += data;
      const found = /listening on http:\/\/[^ ]*:(\d+)/.exec(log);
      if (found) resolve(Number(found[1]));
    });
  });
  let failed = null;
  try {
    await use(port);
  } catch (e) {
    failed = e;
  }
  child.removeAllListeners('exit');
  const ended = new Promise((resolve) => { child.once('exit', resolve); });
  child.kill('SIGTERM');
  const code = await ended;
  if (failed) throw failed;
  assert.equal(code, 0, 'the server ended badly');
}
