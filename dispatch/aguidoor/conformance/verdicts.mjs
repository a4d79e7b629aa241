// What the official client makes of a few hundred streams, sound and broken.
// `node verdicts.mjs` writes it down for package agui, whose test holds our own
// decoder and verifier to it: whatever they let pass, the client takes.
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { clients, takeComplaints } from './client.mjs';

const file = fileURLToPath(new URL('../../../agui/testdata/clients.json', import.meta.url));
const run = { threadId: 't', runId: 'r' };

const started = { type: 'RUN_STARTED', ...run, protocolVersion: '1.0' };
const finished = { type: 'RUN_FINISHED', ...run };
const start = (toolCallId, more) => ({ type: 'TOOL_CALL_START', toolCallId, toolCallName: 'sh', parentMessageId: 'm', ...more });
const args = (toolCallId, delta) => ({ type: 'TOOL_CALL_ARGS', toolCallId, delta });
const end = (toolCallId) => ({ type: 'TOOL_CALL_END', toolCallId });
const chunk = (more) => ({ type: 'TOOL_CALL_CHUNK', ...more });
const result = (toolCallId, more) => ({ type: 'TOOL_CALL_RESULT', messageId: `res-${toolCallId}`, toolCallId, content: 'ok', role: 'tool', ...more });
const snapshot = (messageId, more) => ({ type: 'ACTIVITY_SNAPSHOT', messageId, activityType: 'x', content: { n: 0 }, ...more });
const delta = (messageId, more) => ({ type: 'ACTIVITY_DELTA', messageId, activityType: 'x', patch: [{ op: 'add', path: '/n', value: 1 }], ...more });
const say = (messageId) => [
  { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' },
  { type: 'TEXT_MESSAGE_CONTENT', messageId, delta: 'hello' },
  { type: 'TEXT_MESSAGE_END', messageId },
];
const success = (...pendingToolCallIds) => ({ ...finished, outcome: { type: 'success', pendingToolCallIds } });

// whole are streams that are as they should be.
const whole = [
  [started, finished],
  [started, start('a'), args('a', '{}'), end('a'), result('a'), finished],
  [started, start('a'), start('b'), args('b', '{'), args('a', '{}'), args('b', '}'), end('b'), end('a'), snapshot('ea'), snapshot('eb'), delta('ea'), result('b'), delta('ea'), result('a'), finished],
  [started, start('a'), args('a', '{}'), end('a'), start('ui'), end('ui'), result('a', { content: [{ type: 'text', text: 'x' }, { type: 'image', source: { type: 'url', value: 'u' } }] }), success('ui')],
  [started, chunk({ toolCallId: 'a', toolCallName: 'sh', delta: '{' }), snapshot('e'), chunk({ delta: '}' }), ...say('t1'), chunk({ toolCallId: 'b', toolCallName: 'sh', delta: '{}' }), result('a'), result('b'), finished],
  [started, start('a'), end('a'), snapshot('ea', { content: { n: 0, metadata: null } }), delta('ea'), result('a', { metadata: { 'x.error': { kind: 'k' } } }), { ...finished, outcome: { type: 'cancelled' } }],
  [started, ...say('t1'), start('a', { parentMessageId: 't1' }), args('a', '{"a"'), args('a', ':1}'), end('a'), result('a', { content: '' }), ...say('t2'), finished],
  [started, { type: 'STEP_STARTED', stepName: 's' }, { type: 'CUSTOM', name: 'x.y', value: null }, { type: 'STATE_SNAPSHOT', snapshot: {} }, { type: 'RAW', event: 1 }, { type: 'STEP_FINISHED', stepName: 's' }, finished],
  [started, start('a'), args('a', '{}'), end('a'), result('a'), finished],
  [started, start('a'), end('a'), success('a')],
  [started, chunk({ toolCallId: 'a', toolCallName: 'sh', parentMessageId: 'm', delta: '{}' }), finished],
  [started, snapshot('e'), delta('e'), finished],
  [started, ...say('t1'), finished],
  [started, { type: 'TEXT_MESSAGE_CHUNK', messageId: 't1', role: 'assistant', delta: 'a' }, { type: 'TEXT_MESSAGE_CHUNK', delta: 'b' }, chunk({ toolCallId: 'a', toolCallName: 'sh', delta: '{}' }), result('a'), finished],
  [started, { type: 'REASONING_START', messageId: 'h' }, { type: 'REASONING_MESSAGE_START', messageId: 'h1', role: 'reasoning' }, { type: 'REASONING_MESSAGE_CONTENT', messageId: 'h1', delta: 'so' },
    { type: 'REASONING_MESSAGE_END', messageId: 'h1' }, { type: 'REASONING_END', messageId: 'h' }, { type: 'REASONING_ENCRYPTED_VALUE', subtype: 'message', entityId: 'h1', encryptedValue: 'x' }, finished],
  [started, { type: 'REASONING_MESSAGE_CHUNK', messageId: 'h', delta: 'so' }, start('a'), end('a'), finished],
  [started, { type: 'SUBAGENT_STARTED', subagentRunId: 's', name: 'helper' }, start('a', { subagentRunId: 's' }), args('a', '{}'), end('a'), result('a', { subagentRunId: 's' }), { type: 'SUBAGENT_FINISHED', subagentRunId: 's' }, finished],
  [started, { type: 'SUBAGENT_STARTED', subagentRunId: 's', name: 'helper' }, { type: 'SUBAGENT_ERROR', subagentRunId: 's', message: 'm' }, finished],
  [started, { type: 'MESSAGES_SNAPSHOT', messages: [{ id: 'u', role: 'user', content: 'q' }, { id: 'm', role: 'assistant', toolCalls: [{ id: 'z', type: 'function', function: { name: 'sh', arguments: '{}' } }] }, { id: 'rz', role: 'tool', toolCallId: 'z', content: 'ok' }] }, start('a'), end('a'), finished],
  [started, start('a'), args('a', '{}'), { type: 'RUN_ERROR', message: 'm', code: 'c' }],
  [{ type: 'RUN_ERROR', message: 'm' }],
];

// faults change one event into one that is wrong, or at least strange.
const faults = [
  (e) => ({ ...e, timestamp: 1.5 }),
  (e) => ({ ...e, timestamp: '1' }),
  (e) => ({ ...e, timestamp: 2 ** 53 }),
  (e) => ({ ...e, metadata: null }),
  (e) => ({ ...e, metadata: [] }),
  (e) => ({ ...e, metadata: { k: null } }),
  (e) => ({ ...e, rawEvent: null }),
  (e) => ({ ...e, subagentRunId: null }),
  (e) => ({ ...e, subagentRunId: 's' }),
  (e) => ({ ...e, isError: true }),
  (e) => ({ ...e, type: 'TOOL_CALL_PROGRESS' }),
  (e) => ({ ...e, type: e.type.toLowerCase() }),
  (e) => { const { type, ...rest } = e; return rest; },
  ...['threadId', 'runId', 'toolCallId', 'toolCallName', 'messageId', 'delta', 'content', 'activityType', 'patch', 'outcome', 'role', 'parentMessageId', 'message', 'value', 'stepName', 'messages', 'name', 'entityId', 'subtype'].flatMap((name) => [
    (e) => { const { [name]: gone, ...rest } = e; return rest; },
    (e) => (name in e ? { ...e, [name]: null } : e),
    (e) => (name in e ? { ...e, [name]: 7 } : e),
    (e) => (name in e ? { ...e, [name]: 'other' } : e),
  ]),
  (e) => (e.content ? { ...e, content: [{ type: 'hologram', text: 'x' }, { type: 'text', text: 'y' }] } : e),
  (e) => (e.content ? { ...e, content: [{ type: 'image', source: { type: 'data', value: 'AA==' } }] } : e),
  (e) => (e.content ? { ...e, content: [{ type: 'text' }] } : e),
  (e) => (e.content ? { ...e, content: {} } : e),
  (e) => (e.patch ? { ...e, patch: [{ op: 'add', path: '/n' }] } : e),
  (e) => (e.patch ? { ...e, patch: [{ op: 'frob', path: '/n', value: 1 }] } : e),
  (e) => (e.patch ? { ...e, patch: {} } : e),
  (e) => (e.outcome ? { ...e, outcome: 'success' } : e),
  (e) => (e.outcome ? { ...e, outcome: { type: 'nova' } } : e),
  (e) => (e.outcome ? { ...e, outcome: { type: 'interrupt', interrupts: [] } } : e),
];

// splice is toSpliced, which Node 18 does not have.
function splice(list, ...how) {
  const copy = [...list];
  copy.splice(...how);
  return copy;
}

// streams are the whole ones; all that one lost, doubled or exchanged event
// makes of them; and each fault in one event of each type, in the shortest
// stream that has one. What two ways lead to is in it once.
function streams() {
  const found = new Map(whole.map((s) => [JSON.stringify(s), s]));
  const add = (s) => found.set(JSON.stringify(s), s);
  for (const s of whole) {
    for (let i = 0; i < s.length; i++) {
      add(splice(s, i, 1));
      add(splice(s, i, 0, s[i]));
      if (i + 1 < s.length) add(splice(s, i, 2, s[i + 1], s[i]));
      add(s.slice(0, i));
    }
    add([...s, ...s]);
    add([...s, started, finished]);
    add([...s, { ...started, runId: 'r2' }, { ...finished, runId: 'r2' }]);
  }
  const shortest = [...whole].sort((a, b) => a.length - b.length);
  for (const fault of faults) {
    for (const type of new Set(whole.flat().map((e) => e.type))) {
      const s = shortest.find((candidate) => candidate.some((e) => e.type === type));
      const i = s.findIndex((e) => e.type === type);
      const broken = fault(s[i]);
      if (broken !== s[i]) add(splice(s, i, 1, broken));
    }
  }
  return [...found.values()];
}

// judge asks a client: rejected, warned or accepted.
async function judge(client, events) {
  const body = events.map((e) => `data: ${JSON.stringify(e)}\n\n`).join('');
  const agent = new client.Agent({
    url: 'http://127.0.0.1/', threadId: run.threadId,
    fetch: async () => new Response(body, { headers: { 'Content-Type': 'text/event-stream' } }),
  });
  await takeComplaints();
  let rejected = false;
  await agent.runAgent({ runId: run.runId }).catch(() => { rejected = true; });
  const complaints = await takeComplaints();
  if (rejected) return 'rejected';
  return complaints.length > 0 ? 'warned' : 'accepted';
}

// verdicts is the text of the file: every event once, and each stream as the
// numbers of its events.
export async function verdicts() {
  const [client] = clients;
  const numbers = new Map();
  const number = (event) => {
    const text = JSON.stringify(event);
    if (!numbers.has(text)) numbers.set(text, numbers.size);
    return numbers.get(text);
  };
  const lines = [];
  for (const events of streams()) lines.push(JSON.stringify({ verdict: await judge(client, events), events: events.map(number) }));
  return `{"events":[\n${[...numbers.keys()].join(',\n')}\n],"streams":[\n${lines.join(',\n')}\n]}\n`;
}

// recorded is the file as it is.
export const recorded = () => readFile(file, 'utf8');

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = await verdicts();
  await writeFile(file, text);
  console.log(`${JSON.parse(text).streams.length} streams`);
}
