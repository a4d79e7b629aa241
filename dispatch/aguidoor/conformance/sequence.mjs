// The order of a run's events. The official client lets pass what is checked
// here: a result before the end of its call, two results for one call, a result
// for a call nobody made, a message id used twice, a wrong list of pending
// calls, the ids of another run, a stream without an end.

// disorder lists what is wrong with the events of one run. The calls of the
// run's input are known and complete; those that its messages answer have
// their result.
export function disorder(events, input) {
  const faults = [];
  const fault = (n, what) => faults.push(`event ${n + 1} (${events[n]?.type ?? 'end'}): ${what}`);
  const calls = new Map();
  const messageIds = new Set();
  const activities = new Set();
  for (const m of input.messages) {
    messageIds.add(m.id);
    for (const c of m.toolCalls ?? []) calls.set(c.id, { open: false, answered: false, here: false });
    if (m.role === 'tool' && calls.has(m.toolCallId)) calls.get(m.toolCallId).answered = true;
  }

  const texts = new Set();
  let ended = false;
  for (const [n, e] of events.entries()) {
    if (ended) fault(n, 'the run has ended');
    if ((n === 0) !== (e.type === 'RUN_STARTED') && !(n === 0 && e.type === 'RUN_ERROR')) fault(n, 'a run begins with RUN_STARTED, once');
    const call = calls.get(e.toolCallId);
    switch (e.type) {
      case 'RUN_STARTED':
      case 'RUN_FINISHED':
        if (e.threadId !== input.threadId || e.runId !== input.runId) fault(n, 'the ids are not those of the input');
        break;
      case 'TEXT_MESSAGE_START':
        texts.add(e.messageId);
        break;
      case 'TEXT_MESSAGE_CONTENT':
        if (!texts.has(e.messageId)) fault(n, 'the message is not open');
        break;
      case 'TEXT_MESSAGE_END':
        if (!texts.delete(e.messageId)) fault(n, 'the message is not open');
        break;
      case 'TOOL_CALL_START':
        if (call?.open) fault(n, 'the call is open already');
        calls.set(e.toolCallId, { open: true, answered: call?.answered ?? false, here: true });
        break;
      case 'TOOL_CALL_ARGS':
      case 'TOOL_CALL_END':
        if (!call?.open) fault(n, 'the call is not open');
        if (call && e.type === 'TOOL_CALL_END') call.open = false;
        break;
      case 'TOOL_CALL_RESULT':
        if (!call) fault(n, 'nobody made the call');
        else if (call.open) fault(n, 'the call has no end yet');
        else if (call.answered) fault(n, 'the call has a result already');
        if (call) call.answered = true;
        if (messageIds.has(e.messageId) || calls.has(e.messageId)) fault(n, `the messageId ${e.messageId} is taken`);
        messageIds.add(e.messageId);
        break;
      case 'ACTIVITY_SNAPSHOT':
        activities.add(e.messageId);
        break;
      case 'ACTIVITY_DELTA':
        if (!activities.has(e.messageId)) fault(n, 'the activity has no snapshot');
        break;
    }
    if (e.type === 'RUN_FINISHED') {
      for (const [id, c] of calls) if (c.open) fault(n, `call ${id} is still open`);
      for (const id of texts) fault(n, `message ${id} is still open`);
      const pending = [...calls].filter(([, c]) => c.here && !c.answered).map(([id]) => id);
      const told = e.outcome?.pendingToolCallIds ?? [];
      if (told.length > 0 && told.join() !== pending.join()) fault(n, `pending are [${pending}], not [${told}]`);
    }
    ended ||= e.type === 'RUN_FINISHED' || e.type === 'RUN_ERROR';
  }
  if (!ended) fault(events.length, 'the stream has no terminal event');
  return faults;
}
