package worker

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/secret"
)

const (
	// heldFile is the largest file that may travel inside the event.
	heldFile = (blob.InlinePart - leastRoom) / 4 * 3
	// heldFiles bounds those of one call together, in the worker's memory and in
	// the event, which has to name the others and hold the tool's own content.
	heldFiles = blob.InlineEvent / 2 / 4 * 3
	// keepTimeout bounds how long a call waits for the store to take its files.
	// The tool has ended by then, and the rest of its result waits too.
	keepTimeout = 15 * time.Second
)

// files makes parts of the files that a tool leaves. Small ones are held for the
// event, as far as they fit, and the others go to the blob store as they come:
// a chunk of one is all that is in memory.
type files struct {
	a     *attempt
	ctx   context.Context // of the attempt, and of the writes once stop is set
	stop  context.CancelFunc
	held  int64
	bytes int64
	parts []agui.Part
	lost  []call.LeftOut // by the store
	last  *file          // the file that comes
}

// file is one that comes.
type file struct {
	of      *files
	name    string
	size    int64
	came    int64
	clean   *secret.Stream // between what comes and what is kept
	kept    int64
	sniffer agui.Sniffer
	sum     hash.Hash
	data    []byte       // held, unless
	blob    *blob.Writer // it is written to the store
	id      blob.ID
}

// sink adds the files to what s takes.
func (fs *files) sink(s sandbox.Sink) sandbox.Sink {
	s.File = fs.begin
	return s
}

// begin takes the next file.
func (fs *files) begin(name string, size int64) io.Writer {
	fs.giveUp()
	redact := fs.a.secrets.redact
	f := &file{of: fs, name: redact.String(name), size: size, clean: redact.Stream(), sum: sha256.New()}
	fs.last = f
	switch {
	case size <= heldFile && fs.held+size <= heldFiles:
		fs.held += size
		f.data = make([]byte, 0, size)
	default:
		if fs.stop == nil {
			fs.ctx, fs.stop = context.WithTimeout(context.WithoutCancel(fs.ctx), keepTimeout)
		}
		f.id = fs.a.nextBlob()
		f.blob = fs.a.Blobs.Create(fs.ctx, f.id)
	}
	if size == 0 {
		fs.done(f)
	}
	return f
}

// Write implements [io.Writer].
func (f *file) Write(p []byte) (int, error) {
	f.came += int64(len(p))
	err := f.keep(f.clean.Write(p))
	if err == nil && f.came == f.size {
		err = f.keep(f.clean.Close())
	}
	if err != nil {
		f.of.lose(f, err)
		return 0, err
	}
	if f.came == f.size {
		f.of.done(f)
	}
	return len(p), nil
}

// keep keeps the next bytes, which have no secrets in them.
func (f *file) keep(p []byte) error {
	_, _ = f.sniffer.Write(p)
	f.sum.Write(p)
	f.kept += int64(len(p))
	if f.blob == nil {
		f.data = append(f.data, p...)
		return nil
	}
	_, err := f.blob.Write(p)
	return err
}

// done makes a part of a file that came whole.
func (fs *files) done(f *file) {
	fs.last = nil
	mimeType := typeOf(f.name, f.sniffer.MimeType())
	source := agui.Source{Type: agui.SourceData, MimeType: mimeType, Value: base64.StdEncoding.EncodeToString(f.data)}
	if f.blob != nil {
		if _, err := f.blob.Commit(mimeType, path.Base(f.name)); err != nil {
			fs.lose(f, err)
			return
		}
		fs.a.Metrics.BlobPut(f.kept)
		source.Type, source.Value = agui.SourceURL, f.id.String()
	}
	part := agui.Media(agui.PartTypeOf(mimeType), source)
	part.Metadata, _ = json.Marshal(fileMeta{f.name, f.kept, hex.EncodeToString(f.sum.Sum(nil))}) // it has no member that could fail
	fs.parts = append(fs.parts, part)
	fs.bytes += f.kept
}

// fileMeta is the metadata of a part that was a file.
type fileMeta struct {
	// Filename is the path below /workspace/out.
	Filename string `json:"filename"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
}

// lose notes that the store did not take a file.
func (fs *files) lose(f *file, err error) {
	fs.a.logger.Error("a file of the tool could not be kept", "file", f.name, "bytes", f.size, "error", err)
	reason := "could not be kept: the fleet's store did not take it"
	if errors.Is(err, context.DeadlineExceeded) {
		reason = fmt.Sprintf("could not be kept: the fleet's store did not take it within %s", keepTimeout)
	}
	fs.lost = append(fs.lost, call.LeftOut{Name: f.name, Reason: reason})
	f.blob.Abort()
	fs.last = nil
}

// giveUp drops a file that did not come whole.
func (fs *files) giveUp() {
	if fs.last != nil && fs.last.blob != nil {
		fs.last.blob.Abort()
	}
	fs.last = nil
}

// add puts the files into the result of a run: behind the tool's own content,
// also when it failed. What was left out is told to machines in the execution
// and to the model in a text.
func (fs *files) add(r call.Result, exit sandbox.Exit) call.Result {
	fs.giveUp()
	if fs.stop != nil {
		fs.stop()
	}
	left := fs.lost
	for _, l := range exit.LeftOut {
		left = append(left, call.LeftOut{Name: path.Clean(l.Name), Reason: l.Reason})
	}
	if len(fs.parts) == 0 && len(left) == 0 {
		return r
	}
	r.Content = append(r.Content, fs.parts...)
	if r.Execution != nil {
		r.Execution.Files = &call.Files{Count: len(fs.parts), Bytes: fs.bytes, LeftOut: left, LeftOutMore: exit.LeftOutMore}
	}
	if len(left) > 0 {
		r.Extra = append(r.Extra, leftOut(left, exit.LeftOutMore))
	}
	return r
}

// leftOut tells a model what it will not find among the parts.
func leftOut(left []call.LeftOut, more int) agui.Part {
	var b strings.Builder
	b.WriteString("\n\nNot everything in /workspace/out came back:")
	for _, l := range left {
		fmt.Fprintf(&b, "\n- %s %s", l.Name, l.Reason)
	}
	if more > 0 {
		fmt.Fprintf(&b, "\n- and %d more", more)
	}
	p := agui.Text(b.String())
	p.Metadata = json.RawMessage(`{"` + call.MetaLeftOut + `":true}`)
	return p
}

// textTypes are the types of texts that their name tells and their bytes do not.
var textTypes = map[string]string{
	".csv": "text/csv; charset=utf-8", ".html": "text/html; charset=utf-8", ".json": "application/json",
	".md": "text/markdown; charset=utf-8", ".xml": "application/xml",
}

// typeOf is the MIME type of a file. A name makes no picture of a text, but it
// may say which kind of text it is.
func typeOf(name, sniffed string) string {
	if t, ok := textTypes[strings.ToLower(path.Ext(name))]; ok && strings.HasPrefix(sniffed, "text/plain") {
		return t
	}
	return sniffed
}
