// OpenAI's Node client, unmodified, through the gateway.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const { OpenAI } = createRequire(join(process.env.WORK, "here.js"))("openai");
const model = process.env.MODEL;
const messages = [{ role: "user", content: "Say something." }];
const client = new OpenAI({
  baseURL: process.env.BASE_URL + "/v1", apiKey: "none", maxRetries: 0, timeout: 60_000,
});

const models = [];
for await (const one of client.models.list()) models.push(one.id);
assert(models.includes(model));

const whole = await client.chat.completions.create({ model, messages, max_tokens: 8 });
assert(whole.choices[0].message.content);
assert.equal(whole.usage.completion_tokens, 8);

const stream = await client.chat.completions.create({ model, messages, max_tokens: 8, stream: true });
let reason;
for await (const chunk of stream) reason = chunk.choices[0]?.finish_reason ?? reason;
assert(reason);

await assert.rejects(
  client.chat.completions.create({ model: "no-such-model", messages }),
  (error) => error.status === 404 && error.code === "model_not_found",
);

// One that is given up in the middle, and one after it.
const left = await client.chat.completions.create({ model, messages, max_tokens: 500, stream: true });
for await (const chunk of left) { assert(chunk); break; }
const text = await client.completions.create({ model, prompt: "Once", max_tokens: 4 });
assert(text.choices[0].text);
