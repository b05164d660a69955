// Anthropic's interface through the official `@anthropic-ai/sdk` for Node against a running program.
//
//   node http_anthropic_node.mjs PROGRAM MODEL.gguf FOLDER
//
// FOLDER has node_modules/@anthropic-ai/sdk; exit 77 when it is not there. What is checked, whole and
// streamed: text, usage, stop sequences, a history of thoughts, calls and results, counted tokens,
// models, the streaming helper, an abort in mid-answer, and the client's own classes of errors.

import assert from 'node:assert/strict';
import { load, serving } from './t9server.mjs';

const [program, model, folder] = process.argv.slice(2);
const Anthropic = load(folder, '@anthropic-ai/sdk').default;

const messages = [{ role: 'user', content: 'Name three colours. \u65e5\u672c \u{1F600}' }];
const tools = [{ name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }];
const history = [...messages,
  { role: 'assistant', content: [{ type: 'thinking', thinking: 'Hm.', signature: 'of another' },
    { type: 'text', text: 'Let me look.' },
    { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Oslo' } }] },
  { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: true,
    content: [{ type: 'text', text: 'no such city' }] }, { type: 'text', text: 'So?' }] }];

const textOf = (message) => message.content.filter((b) => b.type === 'text').map((b) => b.text).join('');
const tokensOf = (u) => u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens;

async function gather(stream) {
  const out = { text: '', kinds: [], stop: null, usage: null };
  for await (const ev of stream) {
    out.kinds.push(ev.type);
    if (ev.type === 'content_block_delta' && ev.delta.type === 'text_delta') out.text += ev.delta.text;
    if (ev.type === 'message_delta') ({ delta: out.stop, usage: out.usage } = ev);
  }
  assert.equal(out.kinds[0], 'message_start');
  assert.equal(out.kinds.at(-1), 'message_stop');
  return out;
}

async function ask(client, model) {
  const cases = [{ temperature: 0 }, { temperature: 0.9, seed: 5, top_p: 0.9 }, { system: 'Be brief.', seed: 1 },
    { temperature: 0, stop_sequences: ['e', 'zzz'] }, { messages: history, tools, temperature: 0 },
    { messages: history, tools, temperature: 0, tool_choice: { type: 'none' } },
    { temperature: 0, thinking: { type: 'adaptive' } },
    { temperature: 0, system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }] }];
  for (const options of cases) {
    const body = { model, messages, max_tokens: 12, ...options };
    const whole = await client.messages.create(body);
    const streamed = await gather(await client.messages.create({ ...body, stream: true }));
    assert.equal(streamed.text, textOf(whole));
    assert.equal(streamed.stop.stop_reason, whole.stop_reason);
    assert.equal(streamed.stop.stop_sequence, whole.stop_sequence);
    assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
    const final = await client.messages.stream(body).finalMessage();
    assert.deepEqual(final.content.map((b) => b.type), whole.content.map((b) => b.type));
    assert.equal(textOf(final), textOf(whole));
    const { temperature, top_p, seed, stop_sequences, max_tokens, ...prompt } = body;
    assert.equal((await client.messages.countTokens(prompt)).input_tokens, tokensOf(whole.usage));
  }
}

async function models(client, model) {
  const page = await client.models.list();
  assert.equal(page.data[0].type, 'model');
  assert.ok(page.data[0].display_name && !Number.isNaN(Date.parse(page.data[0].created_at)));
  assert.equal(page.has_more, false);
  assert.equal((await client.models.retrieve(model)).id, model);
}

async function abort(client, model) {
  const stream = client.messages.stream({ model, messages, max_tokens: 1000 });
  stream.on('text', () => stream.abort());
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
}

async function errors(client, model, port) {
  const create = (options) => client.messages.create({ model, messages, max_tokens: 5, ...options });
  await assert.rejects(create({ max_tokens: -1 }), (e) => e instanceof Anthropic.BadRequestError &&
    e.error.error.type === 'invalid_request_error' && /max_tokens/.test(e.message) && e.requestID?.length > 0);
  await assert.rejects(create({ stream: true, tools, tool_choice: { type: 'any' } }), Anthropic.BadRequestError);
  await assert.rejects(create({ model: 'no-such' }), Anthropic.NotFoundError);
  const stranger = new Anthropic({ apiKey: 'wrong', baseURL: `http://127.0.0.1:${port}`, maxRetries: 0 });
  await assert.rejects(stranger.models.list(), (e) => e instanceof Anthropic.AuthenticationError &&
    e.error.error.type === 'authentication_error');
}

await serving(program, model, ['--api-key', 'secret'], async (port) => {
  const client = new Anthropic({ apiKey: 'secret', baseURL: `http://127.0.0.1:${port}`, maxRetries: 0 });
  const name = (await client.models.list()).data[0].id;
  await ask(client, name);
  await models(client, name);
  await abort(client, name);
  await errors(client, name, port);
});
console.log('@anthropic-ai/sdk for Node: passed');
