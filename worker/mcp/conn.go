package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The methods that this side knows by name.
const (
	methodCall      = "tools/call"
	methodList      = "tools/list"
	methodPing      = "ping"
	methodProgress  = "notifications/progress"
	methodCancelled = "notifications/cancelled"
)

// progressToken marks the notifications of the one call.
const progressToken = "call"

// transport makes the connection of one session over a stdio. A server that does
// not know the handshake it is offered is offered another one, in a session of
// its own, over the same pipes.
type transport struct {
	*stdio
	maxLine  int
	progress func(mcp.ProgressNotificationParams) // of the call, until its answer

	mu        sync.Mutex    // guards the fields below
	broken    error         // what was wrong with the server's messages, or nil
	asked     jsonrpc.ID    // the id of the call, or of the page of a list
	answer    []byte        // the raw result of that, once it has come
	cancelled chan struct{} // closed when the server was told of the cancel
	told      bool          // cancelled is closed
}

// Connect implements [mcp.Transport].
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	io := &mcp.IOTransport{Reader: newSieve(&ear{stdio: t.stdio}), Writer: mouth{t.stdio}, MaxLineLength: t.maxLine}
	c, err := io.Connect(ctx)
	return &conn{Connection: c, transport: t}, err
}

// conn is a connection whose other side is not trusted.
type conn struct {
	mcp.Connection
	*transport
}

// Read returns the next response of the server. It answers requests itself: a
// server that asks and does not read the answers is not read any further.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		message, err := c.Connection.Read(ctx)
		if err != nil {
			c.note(err)
			return nil, err
		}
		switch m := message.(type) {
		case *jsonrpc.Response:
			c.hearAnswer(m)
			return m, nil
		case *jsonrpc.Request:
			if !m.IsCall() {
				c.hearNotification(m)
			} else if err := c.Connection.Write(ctx, refusal(m)); err != nil {
				return nil, err
			}
		}
	}
}

// note keeps what was wrong with the server's messages. That there are no more
// is not wrong by itself.
func (c *conn) note(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
	}
}

// hearAnswer keeps the answer as it was written: numbers and the order of members
// lose nothing. From then on there is no progress.
func (c *conn) hearAnswer(r *jsonrpc.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsValid() && r.ID == c.asked && c.answer == nil {
		c.asked, c.answer = jsonrpc.ID{}, r.Result
	}
}

// hearNotification takes progress of the call, as long as it has no answer.
func (c *conn) hearNotification(r *jsonrpc.Request) {
	if r.Method != methodProgress || c.progress == nil {
		return
	}
	c.mu.Lock()
	running := c.asked.IsValid()
	c.mu.Unlock()
	var p mcp.ProgressNotificationParams
	if running && json.Unmarshal(r.Params, &p) == nil && p.ProgressToken == progressToken {
		c.progress(p)
	}
}

// refusal answers a request of the server: it may know that this side lives, and
// nothing else.
func refusal(r *jsonrpc.Request) *jsonrpc.Response {
	if r.Method == methodPing {
		return &jsonrpc.Response{ID: r.ID, Result: json.RawMessage("{}")}
	}
	return &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{
		Code:    jsonrpc.CodeMethodNotFound,
		Message: fmt.Sprintf("this client has no %s: the server runs in a sandbox, for one call, with nobody to ask", clip(r.Method)),
	}}
}

// Write sends a message, and sees the call and its cancellation go out.
func (c *conn) Write(ctx context.Context, message jsonrpc.Message) error {
	r, ok := message.(*jsonrpc.Request)
	if ok && (r.Method == methodCall || r.Method == methodList) {
		c.mu.Lock()
		c.asked, c.answer = r.ID, nil
		c.mu.Unlock()
	}
	err := c.Connection.Write(ctx, message)
	if ok && r.Method == methodCancelled {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.told {
			c.told = true
			close(c.cancelled)
		}
	}
	return err
}

// heard is the answer to what was asked last.
func (t *transport) heard() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answer
}

// maxWord bounds what is quoted of a server, in bytes.
const maxWord = 1 << 10

// clip bounds s without splitting a rune.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxWord {
		return s
	}
	return strings.ToValidUTF8(s[:maxWord], "") + "…"
}
