// Each client says what it read, as one line of JSON.
import OpenAI from 'openai';
import { streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const [address, user, agent] = process.argv.slice(2);
const headers = { 'X-User-Id': user, 'X-Agent-Schema': agent };
const baseURL = `${address}/v1`;
const messages = [{ role: 'user', content: 'Hi' }];
const client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 0, defaultHeaders: headers });
const say = (name, text) => console.log(JSON.stringify({ name, text }));

let naive = '';
for await (const chunk of await client.chat.completions.create({ model: 'rem', messages, stream: true })) {
  naive += chunk.choices[0].delta.content ?? '';
}
say('openai naive', naive);

const runner = client.chat.completions.stream({ model: 'rem', messages });
say('openai runner', (await runner.finalChatCompletion()).choices[0].message.content);

const whole = await client.chat.completions.create({ model: 'rem', messages });
say('openai whole', whole.choices[0].message.content);

const rem = createOpenAICompatible({ name: 'rem', baseURL, apiKey: 'unused', headers });
let vercel = '';
for await (const part of streamText({ model: rem('rem'), prompt: 'Hi', maxRetries: 0 }).fullStream) {
  if (part.type === 'error') throw part.error;
  if (part.type === 'text-delta') vercel += part.text;
}
say('vercel ai', vercel);
