// An AG-UI agent for the gateway to talk to. It has no model: the last user
// message says, as JSON, what it does.
import { createServer } from 'node:http';

// start listens on a port of its own. inputs are the RunAgentInputs it got, in
// order; the application's messages tell whose they are.
export async function startUpstream() {
  const inputs = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const input = JSON.parse(body);
    inputs.push(input);
    const script = JSON.parse(input.messages.findLast((m) => m.role === 'user').content);
    if (script.does === 'refuse') return response.writeHead(500, { 'Content-Type': 'application/json' }).end('{"message":"no"}');
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    const raw = (text) => response.write(text);
    say({ type: 'RUN_STARTED', threadId: input.threadId, runId: input.runId, protocolVersion: '1.0' });
    await scripts[script.does]({ script, input, say, raw, response });
    response.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/agent`,
    // inputsOf are the inputs of one thread.
    inputsOf: (threadId) => inputs.filter((i) => i.threadId === threadId),
    stop: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }),
  };
}

const finish = ({ input, say }, pending = []) => say({
  type: 'RUN_FINISHED', threadId: input.threadId, runId: input.runId,
  outcome: { type: 'success', ...(pending.length > 0 && { pendingToolCallIds: pending }) },
});

function speak({ input, say }, text) {
  const messageId = `text-${input.runId}`;
  say({ type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' });
  for (const delta of text.match(/.{1,4}/gs)) say({ type: 'TEXT_MESSAGE_CONTENT', messageId, delta });
  say({ type: 'TEXT_MESSAGE_END', messageId });
}

// answers are the tool messages behind the last user message.
const answers = ({ input }) => input.messages.slice(input.messages.findLastIndex((m) => m.role === 'user')).filter((m) => m.role === 'tool');

// propose makes the calls of a script: all of them open at once, the pieces of
// their arguments in turns, or chunk by chunk.
function propose({ script, say }, calls = script.calls) {
  const parentMessageId = script.parent;
  if (script.spelling === 'chunks') {
    for (const c of calls) {
      const [head, tail] = halves(c.args);
      say({ type: 'TOOL_CALL_CHUNK', toolCallId: c.id, toolCallName: c.tool, parentMessageId, delta: head });
      say({ type: 'TOOL_CALL_CHUNK', delta: tail });
    }
    return;
  }
  for (const c of calls) say({ type: 'TOOL_CALL_START', toolCallId: c.id, toolCallName: c.tool, parentMessageId });
  for (const half of [0, 1]) for (const c of calls) say({ type: 'TOOL_CALL_ARGS', toolCallId: c.id, delta: halves(c.args)[half] });
  for (const c of calls) say({ type: 'TOOL_CALL_END', toolCallId: c.id });
}

const halves = (text) => [text.slice(0, text.length / 2), text.slice(text.length / 2)];

const scripts = {
  // call proposes the script's calls and, once they are answered, says so.
  call(run) {
    const answered = answers(run).map((m) => m.toolCallId);
    if (answered.length === 0) {
      propose(run);
      finish(run, run.script.calls.map((c) => c.id));
    } else {
      speak(run, `answered: ${answered.join(' ')}`);
      finish(run);
    }
  },

  // own runs a tool of its own, and answers it in the stream.
  own(run) {
    propose(run);
    for (const c of run.script.calls) run.say({ type: 'TOOL_CALL_RESULT', messageId: `own-${c.id}`, toolCallId: c.id, content: c.content, role: 'tool' });
    finish(run);
  },

  // much says everything that a gateway has no part in.
  much(run) {
    run.say({ type: 'STATE_SNAPSHOT', snapshot: { count: 1 } });
    run.say({ type: 'STEP_STARTED', stepName: 'thinking' });
    run.say({ type: 'CUSTOM', name: 'example.note', value: null });
    run.say({ type: 'STATE_DELTA', delta: [{ op: 'replace', path: '/count', value: 2 }] });
    speak(run, 'much said');
    run.say({ type: 'STEP_FINISHED', stepName: 'thinking' });
    finish(run);
  },

  // talk goes on talking, chunk by chunk, while a call of it is run. The pause is
  // long enough for the result to come in the middle of the message.
  async talk(run) {
    if (answers(run).length === 0) {
      propose(run);
      run.say({ type: 'TEXT_MESSAGE_CHUNK', messageId: `talk-${run.input.runId}`, role: 'assistant', delta: 'while it runs, ' });
      await new Promise((resolve) => setTimeout(resolve, 800));
      run.say({ type: 'TEXT_MESSAGE_CHUNK', delta: 'I talk' });
      finish(run, run.script.calls.map((c) => c.id));
    } else {
      scripts.call(run);
    }
  },

  // reopen opens a call again that it has closed, as it may, or under another
  // name, as it may not.
  reopen(run) {
    if (answers(run).length === 0) {
      propose(run);
      propose(run, run.script.calls.map((c) => ({ ...c, ...run.script.as })));
      finish(run, run.script.calls.map((c) => c.id));
    } else {
      scripts.call(run);
    }
  },

  // loop never has enough.
  loop(run) {
    const id = `${run.script.parent}-${answers(run).length}`;
    propose(run, [{ ...run.script.calls[0], id }]);
    finish(run, [id]);
  },

  // die loses its connection in the middle of a call.
  async die(run) {
    const [c] = run.script.calls;
    run.say({ type: 'TOOL_CALL_START', toolCallId: c.id, toolCallName: c.tool, parentMessageId: run.script.parent });
    await new Promise((resolve) => run.raw(`data: {"type":"TOOL_CALL_ARGS","toolCallId":"${c.id}",`) ? resolve() : run.response.once('drain', resolve));
    await new Promise(setImmediate);
    run.response.destroy();
  },

  // stop ends its stream before the end of its run.
  stop(run) { speak(run, 'and'); },

  // babble sends what is no event.
  babble(run) { run.raw('data: {oops\n\n'); },

  // disorder answers a call that it has not made.
  disorder(run) {
    run.say({ type: 'TOOL_CALL_ARGS', toolCallId: 'nobody', delta: '{}' });
    finish(run);
  },

  // fail ends by its own error.
  fail(run) { run.say({ type: 'RUN_ERROR', message: 'the model is asleep', code: 'asleep' }); },
};
