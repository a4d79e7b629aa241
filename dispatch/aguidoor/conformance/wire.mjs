// What travels between a client and a door, seen from outside of both.

// tapped is a fetch that passes everything on and keeps what the server sent,
// frame by frame, with the time at which it came.
export function tapped(frames, seen) {
  return async (url, init) => {
    const response = await fetch(url, init);
    seen.status = response.status;
    seen.type = response.headers.get('content-type');
    if (!response.ok || !response.body) return response;
    const decoder = new TextDecoder('utf-8', { fatal: true });
    let rest = '';
    const tap = new TransformStream({
      transform(chunk, controller) {
        rest += decoder.decode(chunk, { stream: true });
        for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
          const frame = readFrame(rest.slice(0, end));
          if (frame) frames.push({ at: performance.now(), ...frame });
        }
        controller.enqueue(chunk);
      },
      flush() {
        if (rest !== '') frames.push({ at: performance.now(), fault: `the stream ends in the middle of a frame: ${rest.slice(0, 80)}` });
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(tap), { status, statusText, headers });
  };
}

// readFrame reads one frame of server-sent events, more strictly than anybody
// has to: line feeds only, one data line, one JSON object in it. A frame of
// comments is null.
function readFrame(text) {
  if (text.includes('\r')) return { fault: 'a carriage return on the wire' };
  const data = [];
  for (const line of text.split('\n')) {
    if (line.startsWith(':')) continue;
    if (line.startsWith('data: ')) data.push(line.slice('data: '.length));
    else if (!/^id: \d+$/.test(line)) return { fault: `a line that is neither data nor an id: ${line.slice(0, 80)}` };
  }
  if (data.length === 0) return null;
  if (data.length > 1) return { fault: 'two data lines in one frame' };
  try {
    return { event: JSON.parse(data[0]) };
  } catch (error) {
    return { fault: `a frame that is no JSON: ${error.message}` };
  }
}
