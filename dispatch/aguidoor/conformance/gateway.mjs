// What is the gateway's alone: an agent upstream that says more, or less, or
// something else than it should.
import { isDeepStrictEqual } from 'node:util';

import { assistant, doors, through } from './doors.mjs';
import { metaExecution, run, sound, text } from './scenarios.mjs';

const [direct, gateway] = doors;

export const gatewayScenarios = {
  async 'chunks'(t) {
    const thread = gateway.thread([['word-count', { text: 'one two' }], ['word-count', { text: 'three' }]], { spelling: 'chunks' });
    const done = await run(t, thread);
    t.check('they are relayed as triads', done.of('TOOL_CALL_CHUNK').length === 0 && done.of('TOOL_CALL_END').length === 2);
    t.check('with the same arguments', thread.calls.every((c) => done.of('TOOL_CALL_ARGS').filter((e) => e.toolCallId === c.id).map((e) => e.delta).join('') === c.args));
  },

  async 'other events'(t) {
    const thread = gateway.thread([], { does: 'much' });
    const done = await through(gateway, t.fleet, t.client, thread);
    sound(t, done);
    const types = ['STATE_SNAPSHOT', 'STEP_STARTED', 'CUSTOM', 'STATE_DELTA', 'TEXT_MESSAGE_START', 'STEP_FINISHED', 'RUN_FINISHED'];
    t.check('pass', types.every((type) => done.of(type).length === 1), done.events.map((e) => e.type).join(' '));
    t.check('the client has the state and the text', done.agent.state.count === 2 && done.messages.at(-1).content === 'much said');
  },

  async 'a tool of the agent\'s own'(t) {
    const parts = [
      { type: 'text', text: 'Here it is.' },
      { type: 'image', source: { type: 'url', value: 'https://example.com/a.png', mimeType: 'image/png' } },
      { type: 'document', source: { type: 'file', value: 'file-1', provider: 'openai' }, metadata: { 'example.name': 'a.pdf' } },
    ];
    const thread = gateway.thread([['search', {}, { content: 'found' }], ['render', {}, { content: parts }]], { does: 'own' });
    const done = await through(gateway, t.fleet, t.client, thread);
    sound(t, done);
    t.check('its results pass, file sources and all', thread.calls.every((c) => isDeepStrictEqual(done.result(c.id)?.content, t.client.legacy ? text(c.content) : c.content)), JSON.stringify(done.results));
    t.check('nothing is left pending', !done.last.outcome?.pendingToolCallIds && t.upstream.inputsOf(thread.threadId).length === 1);
  },

  async 'a result in the middle of a chunked message'(t) {
    const thread = gateway.thread([['word-count', { text: 'a' }]], { does: 'talk' });
    const done = await run(t, thread);
    t.check('does not break the message', done.messages.some((m) => m.role === 'assistant' && m.content === 'while it runs, I talk'), JSON.stringify(done.messages));
  },

  async 'a call that is opened again'(t) {
    const thread = gateway.thread([['slow-dice', {}]], { does: 'reopen' });
    const done = await run(t, thread);
    const result = done.result(thread.calls[0].id);
    t.check('runs once, and says so', result?.metadata?.['toolfleet.reopened'] === true && result.metadata[metaExecution].attempt === 1, JSON.stringify(result));
  },

  async 'a call that is opened again under another name'(t) {
    const thread = gateway.thread([['slow-dice', {}]], { does: 'reopen', as: { tool: 'dice' } });
    const done = await through(gateway, t.fleet, t.client, thread);
    sound(t, done);
    t.check('is refused, with the field named', /toolCallName/.test(done.runError?.message), JSON.stringify(done.last));
  },

  async 'calls met in the stream, and later in a history'(t) {
    const thread = gateway.thread([['dice', {}]]);
    const first = await run(t, thread);
    const history = { ...thread, messages: [thread.messages[0], assistant(thread.parent, thread.calls)] };
    const second = await run({ ...t, door: direct }, history);
    const [a, b] = [first, second].map((done) => done.result(thread.calls[0].id));
    t.check('are the same calls', a.messageId === b.messageId && isDeepStrictEqual(a.content, b.content), [a, b].map((e) => JSON.stringify(e)));
  },

  async 'an agent that never has enough'(t) {
    const thread = gateway.thread([['word-count', { text: 'again' }]], { does: 'loop' });
    const done = await through(gateway, t.fleet, t.client, thread);
    sound(t, done);
    const rounds = t.upstream.inputsOf(thread.threadId).length;
    t.check('is stopped after a number of rounds', rounds >= 2 && rounds <= 100, rounds);
    t.check('every call of it is answered', done.of('TOOL_CALL_START').every((e) => done.result(e.toolCallId)));
  },

  ...Object.fromEntries(Object.entries({
    'loses its connection': ['die', true],
    'ends without an end': ['stop'],
    'sends what is no event': ['babble'],
    'breaks the sequence': ['disorder'],
    'refuses': ['refuse'],
    'ends with RUN_ERROR': ['fail'],
  }).map(([what, [does, call]]) => [`an agent that ${what}`, async (t) => {
    const thread = gateway.thread(call ? [['dice', {}]] : [], { does });
    const done = await through(gateway, t.fleet, t.client, thread);
    sound(t, done);
    t.check('ends the run with RUN_ERROR', done.runError?.message.length > 0, JSON.stringify(done.last));
    t.check('and nothing was run', done.results.length === 0 && done.of('ACTIVITY_SNAPSHOT').length === 0);
  }])),
};

