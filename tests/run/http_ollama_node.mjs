// Ollama's API through the official `ollama` package for Node against a running program.
//
//   node http_ollama_node.mjs PROGRAM MODEL.gguf FOLDER
//
// FOLDER has node_modules/ollama; exit 77 when it is not there. What is checked, whole and streamed: chat, generate
// with a context, raw prompts, options, log probabilities, tools in a history, the lists of models, what is shown of
// one, loading, an abort in mid-answer, and errors, the program asking for a key.

import assert from 'node:assert/strict';
import { load, serving } from './t9server.mjs';

const [program, model, folder] = process.argv.slice(2);
const Ollama = load(folder, 'ollama').Ollama;

const messages = [{ role: 'system', content: 'You are brief.' },
  { role: 'user', content: 'Name three colours. \u65e5\u672c \u{1F600}' }];
const weather = { type: 'function', function: { name: 'get_weather', description: 'Weather of a city',
  parameters: { type: 'object', required: ['city'], properties: { city: { type: 'string' } } } } };

async function chat(client, name) {
  const cases = [{ options: { temperature: 0 } }, { options: { temperature: 0.9, top_p: 0.9, top_k: 20 } },
    { options: { temperature: 0, stop: ['e', 'zzz'] } }, { logprobs: true, top_logprobs: 2 },
    { tools: [weather], think: false }];
  for (const extra of cases) {
    const ask = { model: name, messages, ...extra, options: { seed: 1, num_predict: 12, ...extra.options } };
    const whole = await client.chat(ask);
    let text = '', last = null;
    const logprobs = [];
    for await (const part of await client.chat({ ...ask, stream: true })) {
      text += part.message.content;
      logprobs.push(...(part.logprobs ?? []));
      last = part;
    }
    assert.equal(text, whole.message.content);
    assert.equal(last.done_reason, whole.done_reason);
    assert.equal(last.eval_count, whole.eval_count);
    if (extra.logprobs) assert.deepEqual(logprobs, whole.logprobs);
    for (const key of ['total_duration', 'load_duration', 'prompt_eval_duration', 'prompt_eval_count'])
      assert.ok(last[key] > 0 && Number.isInteger(last[key]), key);
  }
  const history = [...messages, { role: 'assistant', content: '',
    tool_calls: [{ function: { name: 'get_weather', arguments: { city: 'Oslo' } } }] },
  { role: 'tool', tool_name: 'get_weather', content: '-3' }];
  const answer = await client.chat({ model: name, messages: history, tools: [weather], options: { num_predict: 2 } });
  assert.equal(answer.done, true);
}

async function generate(client, name) {
  const options = { temperature: 0, num_predict: 8 };
  const first = await client.generate({ model: name, prompt: 'Hello', system: 'You are brief.', options });
  let text = '', last = null;
  for await (const part of await client.generate({ model: name, prompt: 'Hello', system: 'You are brief.', options,
    stream: true })) {
    text += part.response;
    last = part;
  }
  assert.equal(text, first.response);
  assert.deepEqual(last.context, first.context);
  const more = await client.generate({ model: name, prompt: 'More', context: first.context, options });
  assert.deepEqual(more.context.slice(0, first.context.length), first.context);
  const raw = await client.generate({ model: name, prompt: 'Once upon', raw: true, options });
  assert.equal(raw.context, undefined);
  assert.equal((await client.generate({ model: name, prompt: '' })).done_reason, 'load');
  assert.equal((await client.chat({ model: name })).done_reason, 'load');
}

async function models(client, name) {
  const listed = (await client.list()).models, running = (await client.ps()).models;
  assert.deepEqual(listed.map((m) => m.name), [name]);
  assert.deepEqual(running.map((m) => m.name), [name]);
  const shown = await client.show({ model: name });
  assert.deepEqual(shown.details, listed[0].details);
  assert.ok(shown.capabilities.includes('tools') && shown.template.length > 0);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
}

async function abort(client, name) {
  const stream = await client.chat({ model: name, messages, options: { num_predict: 100000 }, stream: true });
  let seen = 0;
  await assert.rejects(async () => {
    for await (const part of stream) {
      seen += part.message.content.length;
      if (seen) client.abort();
    }
  }, { name: 'AbortError' });
  assert.ok(seen > 0);
}

async function errors(client, name, port) {
  const is = (status, text) => (e) => e.status_code === status && e.message.includes(text);
  await assert.rejects(client.chat({ model: 'no-such', messages }), is(404, 'no-such'));
  await assert.rejects(client.chat({ model: 'no-such', messages, stream: true }), is(404, 'no-such'));
  await assert.rejects(client.chat({ model: name, messages, format: 'json' }), is(400, 'format'));
  await assert.rejects(client.generate({ model: name, prompt: 'a', images: ['aGk='] }), is(400, 'images'));
  await assert.rejects(client.show({ model: 'no-such' }), is(404, 'no-such'));
  await assert.rejects(client.embed({ model: name, input: 'a' }), is(400, 'embed'));
  await assert.rejects(client.delete({ model: name }), is(400, 'not supported'));
  await assert.rejects(client.copy({ source: name, destination: 'b' }), is(400, 'not supported'));
  await assert.rejects(client.create({ model: 'b', from: name }), is(400, 'not supported'));
  await assert.rejects(client.pull({ model: 'owner/repo' }), is(403, '--allow-pull'));
  assert.equal((await client.pull({ model: name })).status, 'success');
  const seen = [];
  for await (const part of await client.pull({ model: name, stream: true })) seen.push(part.status);
  assert.deepEqual(seen, ['pulling manifest', 'success']);
  const stranger = new Ollama({ host: `http://127.0.0.1:${port}` });
  await assert.rejects(stranger.list(), is(401, 'API key'));
}

await serving(program, model, ['--api-key', 'secret'], async (port) => {
  const client = new Ollama({ host: `http://127.0.0.1:${port}`, headers: { Authorization: 'Bearer secret' } });
  const name = (await client.list()).models[0].name;
  await chat(client, name);
  await generate(client, name);
  await models(client, name);
  await errors(client, name, port);
  await abort(client, name);
});
console.log('ollama for Node: passed');
