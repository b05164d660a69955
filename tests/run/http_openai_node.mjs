// The OpenAI interface through the official `openai` package for Node against a running program.
//
//   node http_openai_node.mjs PROGRAM MODEL.gguf FOLDER
//
// FOLDER has node_modules/openai; exit 77 when it is not there. What is checked, whole and streamed:
// text, usage, several choices, log probabilities, stop strings, bias, completions, the streaming
// helper, an abort in mid-answer, and the client's own classes of errors.

import assert from 'node:assert/strict';
import { load, serving } from './t9server.mjs';

const [program, model, folder] = process.argv.slice(2);
const OpenAI = load(folder, 'openai').default;

const messages = [{ role: 'system', content: 'You are brief.' },
  { role: 'user', content: 'Name three colours. \u65e5\u672c \u{1F600}' }];

async function gather(stream) {
  const out = [];
  let usage = null;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const c of chunk.choices) {
      const a = (out[c.index] ??= { text: '', finish: null, logprobs: [] });
      a.text += c.delta?.content ?? c.text ?? '';
      a.finish = c.finish_reason ?? a.finish;
      a.logprobs.push(...(c.logprobs?.content ?? []));
    }
  }
  return { out, usage };
}

async function chat(client, model) {
  const cases = [{ temperature: 0 }, { temperature: 0.9, seed: 5, top_p: 0.9 }, { n: 3, seed: 7 },
    { temperature: 0, logprobs: true, top_logprobs: 3 }, { temperature: 0, presence_penalty: 1, frequency_penalty: 1 },
    { temperature: 0, logit_bias: { 70: 100 } }, { temperature: 0, stop: ['e', 'zzz'] }];
  for (const options of cases) {
    const ask = { model, messages, max_completion_tokens: 12, ...options };
    const whole = await client.chat.completions.create({ seed: 1, ...ask });
    const { out, usage } = await gather(await client.chat.completions.create(
      { seed: 1, ...ask, stream: true, stream_options: { include_usage: true } }));
    assert.deepEqual(whole.choices.map((c) => c.message.content), out.map((a) => a.text));
    assert.deepEqual(whole.choices.map((c) => c.finish_reason), out.map((a) => a.finish));
    assert.equal(whole.usage.completion_tokens, usage.completion_tokens);
    if (options.logprobs) assert.deepEqual(whole.choices[0].logprobs.content, out[0].logprobs);
  }
  const helper = client.chat.completions.stream({ model, messages, max_tokens: 12, temperature: 0 });
  const final = await helper.finalChatCompletion();
  assert.equal(typeof final.choices[0].message.content, 'string');
}

async function completions(client, model) {
  const ask = { model, prompt: ['Once upon', 'a time'], max_tokens: 8, seed: 3, n: 2, echo: true, logprobs: 1 };
  const whole = await client.completions.create(ask);
  const { out } = await gather(await client.completions.create({ ...ask, stream: true }));
  assert.deepEqual(whole.choices.map((c) => c.text), out.map((a) => a.text));
  assert.equal(whole.choices.length, 4);
}

async function abort(client, model) {
  const stream = await client.chat.completions.create(
    { model, messages, max_tokens: 1000, stream: true, ignore_eos: true });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) break; // leaves the stream, which closes the connection
  }
}

async function errors(client, model, port) {
  const create = (options) => client.chat.completions.create({ model, messages, ...options });
  await assert.rejects(create({ temperature: -1 }), (e) => e instanceof OpenAI.BadRequestError &&
    e.param === 'temperature' && e.code === 'invalid_value' && e.requestID?.length > 0);
  await assert.rejects(create({ stream: true, n: 1000 }), OpenAI.BadRequestError);
  await assert.rejects(create({ model: 'no-such' }), OpenAI.NotFoundError);
  const stranger = new OpenAI({ apiKey: 'wrong', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
}

await serving(program, model, ['--api-key', 'secret'], async (port) => {
  const client = new OpenAI({ apiKey: 'secret', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
  const name = (await client.models.list()).data[0].id;
  await chat(client, name);
  await completions(client, name);
  await abort(client, name);
  await errors(client, name, port);
});
console.log('openai for Node: passed');
