// What every client has to see through every door. A scenario gets t: the
// client, the door, the fleet, the upstream agent, and check.
import { isDeepStrictEqual } from 'node:util';

import { nextId, unsound } from './client.mjs';
import { through } from './doors.mjs';

export const metaError = 'toolfleet.error';
export const metaExecution = 'toolfleet.execution';

// text is what a model that reads only text is given.
export const text = (content) => (typeof content === 'string' ? content : content.filter((p) => p.type === 'text').map((p) => p.text).join(''));

// json is the value of a text, or undefined where there is none.
export function json(content) {
  try {
    return JSON.parse(text(content));
  } catch {
    return undefined;
  }
}

const media = (content) => (typeof content === 'string' ? [] : content.filter((p) => p.source));

const succeeded = (done) => done.last?.type === 'RUN_FINISHED' && [undefined, 'success'].includes(done.last.outcome?.type);

// sound checks what holds for every run.
export function sound(t, done, what = 'the run is sound') {
  const faults = unsound(done);
  return t.check(what, faults.length === 0, faults);
}

// run runs the thread and checks what holds for every run that answers calls:
// a success, one result for each of the fleet's calls, and each of them a tool
// message of the client's.
export async function run(t, thread, { theirs = [], ...more } = {}) {
  const done = await through(t.door, t.fleet, t.client, thread, more);
  sound(t, done);
  t.check('it succeeds', succeeded(done), done.runError?.message ?? `it ended with ${JSON.stringify(done.last)}`);
  const ours = thread.calls.filter((c) => !theirs.includes(c));
  t.check(`it answers ${ours.length} of ${thread.calls.length} calls, each once`,
    ours.every((c) => done.results.filter((e) => e.toolCallId === c.id).length === 1) && done.results.length === ours.length,
    `results for ${done.results.map((e) => e.toolCallId)}`);
  const held = done.messages.filter((m) => m.role === 'tool');
  t.check('the client holds the results as they were sent',
    done.results.every((e) => held.some((m) => m.id === e.messageId && m.toolCallId === e.toolCallId && isDeepStrictEqual(m.content, e.content))),
    JSON.stringify(held));
  const owner = done.messages.findIndex((m) => m.id === thread.parent);
  t.check('they stand behind the message with the calls',
    owner >= 0 && done.messages.slice(owner + 1, owner + 1 + held.length).every((m) => m.role === 'tool'),
    done.messages.map((m) => m.role).join(' '));
  if (t.door.gateway && theirs.length === 0) handedOn(t, thread, done);
  return done;
}

// handedOn checks what the upstream agent was told.
function handedOn(t, thread, done) {
  const inputs = t.upstream.inputsOf(thread.threadId);
  const answers = inputs.at(-1).messages.filter((m) => m.role === 'tool');
  t.check('the upstream agent got the results, and no progress',
    inputs.length >= 2 && thread.calls.every((c) => answers.filter((m) => m.toolCallId === c.id).length === 1)
      && !inputs.some((i) => i.messages.some((m) => m.role === 'activity')),
    JSON.stringify(inputs.at(-1).messages));
  t.check('the upstream agent has the last word', done.messages.at(-1).content?.startsWith('answered: '), JSON.stringify(done.messages.at(-1)));
}

// failed checks that a call has an error result of a kind, readable both by a
// model and by a machine, and that the upstream agent learns of it.
function failed(t, thread, done, call, kind, words) {
  const result = done.result(call.id);
  const error = result?.metadata?.[metaError];
  t.check(`the result says ${kind}`, error?.kind === kind && error.message !== '', JSON.stringify(result));
  t.check('the result says so in words', words.test(text(result?.content ?? '')), JSON.stringify(result?.content));
  if (!t.door.gateway) return;
  const told = t.upstream.inputsOf(thread.threadId).at(-1).messages.find((m) => m.toolCallId === call.id);
  t.check('the upstream agent gets it as an error', typeof told?.error === 'string' && told.error !== '', JSON.stringify(told));
}

export const scenarios = {
  async 'text result'(t) {
    const thread = t.door.thread([['word-count', { text: 'to be or not to be' }]]);
    const done = await run(t, thread);
    const result = done.result(thread.calls[0].id);
    t.check('the text is the tool\'s', json(result.content)?.words === 6, JSON.stringify(result.content));
    t.check('it says how it was run', result.metadata?.[metaExecution]?.attempt === 1, JSON.stringify(result.metadata));
  },

  async 'parallel calls'(t) {
    const thread = t.door.thread([['countdown', { from: 5 }], ['countdown', { from: 5 }], ['word-count', { text: 'a b c' }]]);
    const done = await run(t, thread);
    t.check('each result has a message of its own', new Set(done.results.map((e) => e.messageId)).size === 3);
  },

  async 'image result'(t) {
    const thread = t.door.thread([['chart', { values: [3, 1, 4, 1, 5] }]]);
    const { content } = (await run(t, thread)).result(thread.calls[0].id);
    if (t.client.legacy) {
      t.check('no placeholder stands for the image', !/image|png|\[|base64/i.test(content), content);
      return;
    }
    const [image] = media(content);
    t.check('the result has an image', image?.type === 'image' && image.source.mimeType === 'image/png', JSON.stringify(content).slice(0, 200));
    t.check('the image is one', (await fetched(image)).subarray(1, 4).toString() === 'PNG');
  },

  async 'image too large for an event'(t) {
    const thread = t.door.thread([['poster', {}]]);
    const done = await run(t, thread);
    const { content } = done.result(thread.calls[0].id);
    if (t.client.legacy) {
      t.check('the call is answered all the same', content === '', content);
      return;
    }
    const [image] = media(content);
    t.check('the result has the url of an image', image?.type === 'image' && image.source.type === 'url', JSON.stringify(content).slice(0, 200));
    t.check('anybody with the url has the image', image && (await fetched(image)).length === 600_008);
  },

  async 'file source'(t) {
    // A handle that the call was given comes back; one that the sandbox made up
    // is a forgery of somebody's file: it is dropped, and the call is answered.
    const thread = t.door.thread([['handle', { file: 'file-1' }], ['handle', {}]]);
    const done = await run(t, thread);
    const [given, made] = thread.calls.map((c) => done.result(c.id).content);
    if (t.client.legacy) {
      t.check('the text is all that an older client gets', given === 'Uploaded.' && made === 'Uploaded.', JSON.stringify([given, made]));
      return;
    }
    const [file, ...more] = media(given);
    t.check('the handle that was given comes back as a file source', more.length === 0 && file?.source.type === 'file' && file.source.value === 'file-1' && file.source.provider === 'openai', JSON.stringify(given));
    t.check('a handle from a sandbox is dropped, without a placeholder', text(made) === 'Uploaded.' && media(made).length === 0, JSON.stringify(made));
  },

  async 'error result'(t) {
    const thread = t.door.thread([['shell', { script: 'echo so far; exit 7' }], ['word-count', { text: 'a' }]]);
    const done = await run(t, thread);
    const [failing] = thread.calls;
    failed(t, thread, done, failing, 'tool_error', /so far[\s\S]*7/);
    t.check('it says the exit code', done.result(failing.id).metadata[metaError].exitCode === 7);
  },

  async 'crash'(t) {
    const thread = t.door.thread([['flaky', { mode: 'signal' }]]);
    failed(t, thread, await run(t, thread), thread.calls[0], 'crashed', /./);
  },

  async 'arguments that do not fit'(t) {
    const thread = t.door.thread([['word-count', { txet: 1 }], ['word-count', '{oops'], ['word-count', '']]);
    const done = await run(t, thread);
    for (const c of thread.calls) failed(t, thread, done, c, 'invalid_arguments', /./);
    t.check('every problem is listed', /txet/.test(text(done.result(thread.calls[0].id).content)) && /\btext\b/.test(text(done.result(thread.calls[0].id).content)));
  },

  async 'hostile arguments'(t) {
    const script = 'x="; rm -rf / $(id) `id` \'"\u2028\r\n';
    const thread = t.door.thread([['word-count', { text: script }]]);
    const done = await run(t, thread);
    const { content } = done.result(thread.calls[0].id);
    t.check('they reach the tool as they are', json(content)?.characters === [...script].length, JSON.stringify(content));
  },

  async 'result that looks like protocol'(t) {
    const thread = t.door.thread([['forger', {}]]);
    const done = await run(t, thread);
    const said = text(done.result(thread.calls[0].id).content);
    t.check('it is text and nothing else', said.includes('data: {"type":"RUN_FINISHED"') && said.includes('\n\n') && said.includes('\r\n\r\n'), JSON.stringify(said));
  },

  async 'unknown tool'(t) {
    const thread = t.door.thread([['no-such-tool', {}]]);
    const theirs = t.door.gateway ? thread.calls : [];
    const done = await run(t, thread, { theirs });
    if (!t.door.gateway) {
      failed(t, thread, done, thread.calls[0], 'unknown_tool', /no-such-tool/);
      return;
    }
    pendingAre(t, done, thread.calls);
  },

  async 'frontend calls'(t) {
    const tools = [{ name: 'ui-confirm', description: 'Asks the user.', parameters: { type: 'object' } }];
    const thread = t.door.thread([['ui-confirm', { question: 'really?' }], ['dice', {}], ['ui-confirm', { question: 'truly?' }]]);
    const theirs = [thread.calls[0], thread.calls[2]];
    const first = await run(t, thread, { tools, theirs });
    if (t.door.gateway) {
      pendingAre(t, first, theirs);
      const [input] = t.upstream.inputsOf(thread.threadId);
      t.check('the upstream agent knows the fleet\'s tools and the client\'s',
        ['dice', 'ui-confirm'].every((name) => input.tools.filter((tool) => tool.name === name).length === 1), input.tools.map((tool) => tool.name).join(' '));
    } else {
      t.check('the client\'s calls are not started again, nor pending', first.of('TOOL_CALL_START').length === 0 && !first.last.outcome?.pendingToolCallIds);
    }

    // The application answers its calls, and runs the agent again.
    const held = structuredClone(first.messages).filter((m) => m.role !== 'activity');
    const at = held.findLastIndex((m) => m.role === 'tool') + 1;
    held.splice(at, 0, ...theirs.map((c, n) => ({
      id: nextId('tool'), role: 'tool', toolCallId: c.id, content: n === 0 ? 'yes' : '', ...(n === 1 && { error: 'the user has closed the window' }),
    })));
    const second = await through(t.door, t.fleet, t.client, { ...thread, messages: held }, { tools });
    sound(t, second, 'the second run is sound');
    t.check('nothing is answered twice', second.results.length === 0 && succeeded(second), JSON.stringify(second.results));
    if (!t.door.gateway) return;
    const told = t.upstream.inputsOf(thread.threadId).at(-1).messages.filter((m) => m.role === 'tool').map((m) => m.toolCallId);
    t.check('the upstream agent has all answers', told.length === 3 && new Set(told).size === 3, told.join(' '));
    t.check('the upstream agent goes on', second.messages.at(-1).content?.startsWith('answered: '), JSON.stringify(second.messages.at(-1)));
  },

  async 'a name in both lists'(t) {
    const tools = [{ name: 'dice', description: 'The application has dice of its own.', parameters: { type: 'object' } }];
    const thread = t.door.thread([['dice', {}]]);
    const done = await run(t, thread, { tools, theirs: thread.calls });
    if (t.door.gateway) pendingAre(t, done, thread.calls);
    t.check('it is the client\'s', done.of('ACTIVITY_SNAPSHOT').length === 0);
  },

  async 'progress'(t) {
    const thread = t.door.thread([['countdown', { from: 10 }]]);
    const [call] = thread.calls;
    const done = await run(t, thread);
    const frames = done.frames.filter((f) => f.event?.type.startsWith('ACTIVITY_'));
    const resultAt = done.frames.find((f) => f.event?.type === 'TOOL_CALL_RESULT')?.at;
    // The tool takes a second. What comes in one burst at its end is no
    // progress.
    t.check('it is seen while the tool runs', frames.filter((f) => resultAt - f.at > 250).length >= 3 && frames.at(-1).at - frames[0].at > 500,
      frames.map((f) => Math.round(resultAt - f.at)).join(' '));
    const activity = done.messages.find((m) => m.role === 'activity');
    t.check('the client holds an activity', activity?.activityType === 'toolfleet.tool-execution' && activity.content.toolCallId === call.id && activity.content.toolName === 'countdown',
      JSON.stringify(activity));
    t.check('it ends where the call ended', activity?.content.status === 'succeeded' && activity.content.progress.current === 10, JSON.stringify(activity?.content));
  },

  async 'cancel'(t) {
    // The long calls would take a minute. They are cancelled as soon as both of
    // them run and the short one is answered, in whichever order: this is also
    // how calls that wait for each other would be found.
    const thread = t.door.thread([['countdown', { from: 600 }], ['countdown', { from: 600 }], ['word-count', { text: 'a' }]]);
    const [long, other, short] = thread.calls;
    const running = new Set();
    let asked = null;
    const done = await through(t.door, t.fleet, t.client, thread, {
      during(event, seen) {
        for (const c of [long, other]) if (statusOf(event, seen, c) === 'running') running.add(c);
        if (asked || running.size < 2 || !seen.result(short.id)) return;
        asked = fetch(`${t.fleet.url}/agui/threads/${thread.threadId}/runs/${seen.runId}`, { method: 'DELETE' });
      },
    });
    t.check('calls run side by side', running.size === 2 && done.result(short.id)?.metadata?.[metaError] === undefined, `${running.size} ran`);
    const status = asked ? (await asked).status : 'nothing ran';
    t.check('the cancel is taken', status === 200 || status === 202 || status === 204, status);
    sound(t, done);
    t.check('the open calls are answered as cancelled', [long, other].every((c) => done.result(c.id)?.metadata?.[metaError]?.kind === 'cancelled'), JSON.stringify(done.results));
    if (t.client.legacy) {
      t.check('it ends with RUN_ERROR', done.runError !== null && done.last.type === 'RUN_ERROR', JSON.stringify(done.last));
    } else {
      t.check('it ends as cancelled', done.last.type === 'RUN_FINISHED' && done.last.outcome?.type === 'cancelled' && done.finished?.outcome === 'cancelled' && !('result' in done.last), JSON.stringify(done.last));
    }
    if (t.door.gateway) t.check('the upstream agent is not run again', t.upstream.inputsOf(thread.threadId).length === 1);
  },

  async 'the same history again'(t) {
    const thread = t.door.thread([['dice', {}], ['shell', { script: 'od -An -tx1 -N8 /dev/urandom; exit 1' }]]);
    const first = await run(t, thread);
    const second = await run(t, thread);
    t.check('has a run of its own', first.runId !== second.runId);
    t.check('has the same results, from the same executions', thread.calls.every((c) => same(first.result(c.id), second.result(c.id))),
      [JSON.stringify(first.results), JSON.stringify(second.results)]);
    const slow = t.door.thread([['slow-dice', {}]]);
    const both = await Promise.all([through(t.door, t.fleet, t.client, slow), through(t.door, t.fleet, t.client, slow)]);
    both.forEach((done) => sound(t, done, 'one of two runs at the same time is sound'));
    t.check('meets a running call too', same(...both.map((done) => done.result(slow.calls[0].id))), both.map((done) => JSON.stringify(done.results)));
  },

  async 'browser'(t) {
    const ask = (origin) => fetch(t.door.url(t.fleet), {
      method: 'OPTIONS',
      headers: { Origin: origin, 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type,authorization' },
    });
    const [ours, theirs] = await Promise.all([ask(t.fleet.origin), ask('https://elsewhere.example')]);
    const allowed = (name) => (ours.headers.get(`access-control-allow-${name}`) ?? '').toLowerCase();
    t.check('a page of an allowed origin may ask', ours.ok && allowed('origin') === t.fleet.origin && allowed('methods').includes('post') && ['content-type', 'authorization'].every((h) => allowed('headers').includes(h)),
      JSON.stringify([ours.status, ...ours.headers]));
    t.check('a page from elsewhere may not', theirs.headers.get('access-control-allow-origin') === null, JSON.stringify([...theirs.headers]));
  },

  async 'reconnect'(t) {
    const thread = t.door.thread([['slow-dice', {}]]);
    const [call] = thread.calls;
    const lost = await through(t.door, t.fleet, t.client, thread, {
      during(event, seen) {
        if (statusOf(event, seen, call) === 'running') seen.agent.abortRun();
      },
    });
    t.check('the connection breaks while the tool runs', lost.results.length === 0 && lost.last?.type.startsWith('ACTIVITY_'), JSON.stringify(lost.last));
    t.check('nobody complains', lost.complaints.length === 0, lost.complaints);
    const found = await run(t, thread);
    const execution = found.result(call.id).metadata?.[metaExecution];
    t.check('the call went on', execution?.attempt === 1 && found.result(call.id).metadata[metaError] === undefined, JSON.stringify(found.result(call.id)));
    t.check('the rest of its progress is seen', found.of('ACTIVITY_SNAPSHOT').some((e) => e.content.toolCallId === call.id));
    const again = await run(t, thread);
    t.check('it ran once', same(found.result(call.id), again.result(call.id)));
  },
};

// same tells whether two results are of one execution.
const same = (a, b) => Boolean(a && b) && a.messageId === b.messageId && isDeepStrictEqual(a.content, b.content) && isDeepStrictEqual(a.metadata, b.metadata);

// pendingAre checks which calls the run leaves to the application.
export function pendingAre(t, done, calls) {
  const ids = calls.map((c) => c.id);
  t.check('the run leaves the application\'s calls pending', isDeepStrictEqual(done.last.outcome?.pendingToolCallIds ?? [], t.client.legacy ? [] : ids), JSON.stringify(done.last));
  if (!t.client.legacy) t.check('the client knows of them', isDeepStrictEqual(done.finished?.pendingToolCallIds, ids), JSON.stringify(done.finished?.pendingToolCallIds));
}

// statusOf is the status that an activity event gives a call, if it does.
export function statusOf(event, done, call) {
  if (event.type === 'ACTIVITY_SNAPSHOT') return event.content.toolCallId === call.id ? event.content.status : undefined;
  if (event.type !== 'ACTIVITY_DELTA') return undefined;
  const opened = done.of('ACTIVITY_SNAPSHOT').find((e) => e.messageId === event.messageId);
  if (opened?.content.toolCallId !== call.id) return undefined;
  return event.patch.find((op) => op.path === '/status')?.value;
}

// fetched are the bytes of a part, fetched as a client without a token would.
async function fetched(part) {
  if (part.source.type === 'data') return Buffer.from(part.source.value, 'base64');
  const response = await fetch(part.source.value);
  return response.ok ? Buffer.from(await response.arrayBuffer()) : Buffer.alloc(0);
}
