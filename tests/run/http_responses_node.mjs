// OpenAI's Responses through the official `openai` package for Node against a running program.
//
//   node http_responses_node.mjs PROGRAM MODEL.gguf FOLDER
//
// FOLDER has node_modules/openai; exit 77 when it is not there. What is checked: whole and streamed
// answers, the package's own gathering of a stream, going on from a stored response, its input, its
// deletion, items sent back, log probabilities, an abort in mid-answer, and errors by their classes.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { load, serving } from './t9server.mjs';

const [program, model, folder] = process.argv.slice(2);
const OpenAI = load(folder, 'openai').default;

const ask = { model: 'default', input: 'Name three colours. \u65e5\u672c \u{1F600}', max_output_tokens: 12, temperature: 0 };

async function gather(stream) {
  let text = '';
  let last = null;
  let n = 0;
  for await (const e of stream) {
    assert.equal(e.sequence_number, n++);
    if (e.type === 'response.output_text.delta') text += e.delta;
    if (e.type === 'response.completed' || e.type === 'response.incomplete') last = e.response;
  }
  return { text, last };
}

async function answers(client) {
  for (const options of [{}, { temperature: 0.9, seed: 5 }, { instructions: 'Be brief.' },
    { top_logprobs: 2, include: ['message.output_text.logprobs'] }]) {
    const whole = await client.responses.create({ ...ask, ...options });
    const { text, last } = await gather(await client.responses.create({ ...ask, ...options, stream: true }));
    assert.equal(text, whole.output_text);
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
    assert.deepEqual(last.output[0].content[0].logprobs, whole.output[0].content[0].logprobs);
    assert.equal(whole.output[0].content[0].logprobs.length, options.top_logprobs ? 12 : 0);
    assert.equal(whole.usage.output_tokens, 12);
  }
  const helper = client.responses.stream({ ...ask });
  let deltas = 0;
  helper.on('response.output_text.delta', () => { deltas += 1; });
  const final = await helper.finalResponse();
  assert.ok(deltas > 1 && final.output[0].content[0].text.length > 0);
}

async function stored(client) {
  const first = await client.responses.create({ ...ask, input: 'Count.' });
  const second = await client.responses.create({ ...ask, input: 'More.', previous_response_id: first.id });
  const byHand = await client.responses.create({ ...ask,
    input: [{ role: 'user', content: 'Count.' }, ...first.output, { role: 'user', content: 'More.' }] });
  assert.equal(second.output_text, byHand.output_text);
  assert.equal(second.usage.input_tokens, byHand.usage.input_tokens);
  assert.equal((await client.responses.retrieve(second.id)).output_text, second.output_text);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: 'asc', limit: 2 })) items.push(item);
  assert.deepEqual(items.map((i) => i.role), ['user', 'assistant', 'user']);
  const referred = await client.responses.create({ ...ask,
    input: items.map((i) => ({ type: 'item_reference', id: i.id })) });
  assert.equal(referred.usage.input_tokens, second.usage.input_tokens);
  await client.responses.delete(second.id);
  await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ ...ask, previous_response_id: second.id }), (e) =>
    e instanceof OpenAI.BadRequestError && e.code === 'previous_response_not_found');
}

async function refusals(client) {
  for (const [param, options] of [['tool_choice', { tool_choice: 'required' }], ['background', { background: true }],
    ['text.format', { text: { format: { type: 'json_object' } } }], ['max_output_tokens', { max_output_tokens: 0 }]]) {
    await assert.rejects(client.responses.create({ ...ask, ...options }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === param);
  }
  const told = await client.responses.create({ ...ask, tools: [{ type: 'web_search' }] });
  assert.match(told.warnings[0], /web_search/);
}

async function abort(client) {
  const stream = await client.responses.create({ ...ask, max_output_tokens: 200, ignore_eos: true, stream: true });
  let n = 0;
  for await (const _ of stream) {
    if (++n === 6) break; // which ends the request
  }
  assert.ok((await client.responses.create(ask)).output_text);
}

const place = mkdtempSync(join(tmpdir(), 't9-responses-'));
try {
  await serving(program, model, ['--store', join(place, 'r.db')], async (port) => {
    const client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 0 });
    for (const part of [answers, stored, refusals, abort]) {
      await part(client);
      console.log(part.name);
    }
  });
} finally {
  rmSync(place, { recursive: true });
}
