// Command testserver is an MCP server for tests: its first argument says how it
// behaves, or misbehaves. It writes its messages by hand, since a library would
// not let it lie.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// message is what a client sends.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name            string          `json:"name"`
		Arguments       json.RawMessage `json:"arguments"`
		ProtocolVersion string          `json:"protocolVersion"`
		Cursor          string          `json:"cursor"`
		RequestID       json.RawMessage `json:"requestId"`
	} `json:"params"`
	Error json.RawMessage `json:"error"`
}

// forever waits for the kill.
func forever() {
	for {
		_ = syscall.Pause()
	}
}

var out = bufio.NewWriterSize(os.Stdout, 64<<10)

// say writes a line.
func say(format string, args ...any) {
	fmt.Fprintf(out, format+"\n", args...)
	if out.Flush() != nil {
		os.Exit(9)
	}
}

// result answers m.
func result(m message, format string, args ...any) {
	say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, fmt.Sprintf(format, args...))
}

// text answers a call with a text.
func text(m message, s string) {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	result(m, `{"content":[{"type":"text","text":%s}]}`, raw)
}

// calls are what the modes do when their tool is called.
var calls = map[string]func(m message){
	"echo":  func(m message) { text(m, m.Params.Name+" "+string(m.Params.Arguments)) },
	"stays": func(m message) { text(m, "answered"); forever() },
	"crashes": func(m message) {
		text(m, "answered")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		forever()
	},
	"floods": func(m message) { text(m, "answered"); flood() },
	"never":  func(message) { forever() },
	"silent": func(message) {},
	"exit":   func(message) { fmt.Fprintln(os.Stderr, "the disk was eaten"); os.Exit(3) },
	"exit0":  func(message) { os.Exit(0) },
	"junk": func(message) {
		fmt.Fprintln(os.Stderr, "hello from stderr")
		say("Listening for requests…")
		forever()
	},
	"half": func(m message) { fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"res`, m.ID); _ = out.Flush(); os.Exit(0) },
	"long": func(message) { longLine() },
	"error": func(m message) {
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no such luck"}}`, m.ID)
	},
	"is-error": func(m message) { result(m, `{"content":[{"type":"text","text":"it is broken"}],"isError":true}`) },
	"unknown-kind": func(m message) {
		result(m, `{"content":[{"type":"hologram","text":"x"}]}`)
	},
	"input":    func(m message) { result(m, `{"content":[],"resultType":"input_required","inputRequests":{}}`) },
	"progress": progress,
	"asks":     asks,
	"nags":     nags,
	"cancel":   func(message) { fmt.Fprintln(os.Stderr, "called") },
	"parts": func(m message) {
		result(m, `{"content":%s,"structuredContent":{"big":12345678901234567890}}`, os.Args[2])
	},
	"many-parts": func(m message) {
		result(m, `{"content":[{}%s]}`, strings.Repeat(",{}", 30_000))
	},
	"many-values": func(m message) {
		result(m, `{"content":[],"structuredContent":{"a":[0%s]}}`, strings.Repeat(",[]", 300_000))
	},
	"twice": func(m message) { text(m, "first"); text(m, "second") },
}

// progress tells some, answers, and goes on telling.
func progress(m message) {
	for i := range 3 {
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call","progress":%d,"total":3,"message":"step %d"}}`, i+1, i+1)
	}
	say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":99}}`)
	text(m, "done")
	say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call","progress":100,"message":"late"}}`)
}

// pending is the call that asks, or nags, and that waits for what it asked.
var pending message

var questions = []string{"sampling/createMessage", "roots/list", "elicitation/create", "ping"}

func asks(m message) {
	pending = m
	for i, q := range questions {
		say(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"messages":[],"maxTokens":1,"message":"?","requestedSchema":{"type":"object"}}}`, 100+i, q)
	}
}

var heard []string

// hear takes the answer to a question; with the last one the call is answered.
func hear(m message) {
	heard = append(heard, fmt.Sprintf("%s:%t", m.ID, m.Error != nil))
	if len(heard) == len(questions) {
		text(pending, strings.Join(heard, " "))
	}
}

// nags asks for ever and reads no answer.
func nags(message) {
	for i := 0; ; i++ {
		say(`{"jsonrpc":"2.0","id":"n%d","method":"roots/list"}`, i)
	}
}

func flood() {
	for {
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"and on"}}`)
	}
}

// longLine writes 100 MiB without a newline.
func longLine() {
	block := strings.Repeat("x", 1<<20)
	fmt.Fprint(out, `{"jsonrpc":"2.0","method":"`)
	for range 100 {
		if _, err := out.WriteString(block); err != nil {
			os.Exit(9)
		}
	}
	say(`"}`)
	forever()
}

// lists answers tools/list.
func lists(mode string, m message) {
	tool := `{"name":"%s","inputSchema":{"type":"object"}}`
	switch mode {
	case "tools":
		result(m, `{"tools":%s}`, os.Args[2])
	case "many-tools":
		var list []string
		for i := range 10000 {
			list = append(list, fmt.Sprintf(tool, fmt.Sprintf("t%d", i)))
		}
		result(m, `{"tools":[%s]}`, strings.Join(list, ","))
	case "endless-pages":
		result(m, `{"tools":[`+tool+`],"nextCursor":"again%s"}`, "t"+m.Params.Cursor, m.Params.Cursor)
	default:
		result(m, `{"tools":[`+tool+`]}`, "echo")
	}
}

// old are the versions that modes of their name speak, whatever they are offered.
var old = map[string]string{"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "1999-01-01": "1999-01-01"}

// shakes answers an initialize.
func shakes(mode string, m message) {
	version := m.Params.ProtocolVersion
	if v := old[mode]; v != "" {
		version = v
	}
	switch mode {
	case "dies":
		fmt.Fprintln(os.Stderr, "cannot find module 'everything'")
		os.Exit(1)
	case "mute":
		forever()
	case "banner":
		say("Welcome to my server!")
	case "modern", "refuses":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"initialize is of yesterday"}}`, m.ID)
		return
	}
	result(m, `{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"testserver","version":"1"}}`, version)
}

// discovers answers the handshake of the newest protocol, in the mode that knows it.
func discovers(mode string, m message) {
	if mode != "modern" {
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"never heard of that"}}`, m.ID)
		return
	}
	result(m, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`)
}

func main() {
	mode := os.Args[1]
	if mode == "deaf" {
		forever()
	}
	if mode == "cancel" {
		signal.Ignore(syscall.SIGTERM)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			fmt.Fprintln(os.Stderr, "the client wrote junk:", err)
			os.Exit(8)
		}
		switch m.Method {
		case "initialize":
			shakes(mode, m)
		case "server/discover":
			discovers(mode, m)
		case "tools/list":
			lists(mode, m)
		case "tools/call":
			do := calls[mode]
			if do == nil {
				do = calls["echo"]
			}
			do(m)
		case "notifications/cancelled":
			fmt.Fprintln(os.Stderr, "cancelled", string(m.Params.RequestID))
			os.Exit(0)
		case "":
			hear(m)
		}
	}
	if mode == "cancel" {
		forever() // until it is stopped
	}
}
