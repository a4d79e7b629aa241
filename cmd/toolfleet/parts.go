package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/toolfleet/toolfleet/agui"
)

// maxMedia bounds what is fetched for one part of a result.
const maxMedia = 1 << 30

// writeParts writes a result for people: texts as they are, media as a line
// that says what it is and how large, or where it was saved.
func writeParts(ctx context.Context, term *terminal, parts []agui.Part, s *saver) error {
	text, n := strings.Builder{}, 0
	for _, p := range parts {
		if p.Type == agui.PartText {
			text.WriteString(p.Text)
			continue
		}
		n++
		line, err := s.describe(ctx, n, p)
		if err != nil {
			return err
		}
		endLine(&text)
		text.WriteString(line)
	}
	endLine(&text)
	out := text.String()
	if !term.raw {
		out = harmless(out)
	}
	_, err := io.WriteString(term.out, out)
	return err
}

// endLine ends the last line of b when there is one and it has no end.
func endLine(b *strings.Builder) {
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
}

// saver saves the media of a result.
type saver struct {
	// dir is where; empty saves nothing.
	dir string
	// name begins the files' names.
	name  string
	fetch func(ctx context.Context, url string) (io.ReadCloser, error)
}

// saveAll saves every medium of parts and says so on w.
func (s *saver) saveAll(ctx context.Context, parts []agui.Part, w io.Writer) error {
	if s.dir == "" {
		return nil
	}
	n := 0
	for _, p := range parts {
		if p.Type == agui.PartText {
			continue
		}
		n++
		line, err := s.describe(ctx, n, p)
		if err != nil {
			return err
		}
		fmt.Fprint(w, line)
	}
	return nil
}

// describe says in one line what the n-th medium is, and saves it.
func (s *saver) describe(ctx context.Context, n int, p agui.Part) (string, error) {
	if err := p.Validate(); err != nil {
		return fmt.Sprintf("[%s: %v]\n", oneLine(p.Type), err), nil
	}
	what := oneLine(p.Source.MimeType)
	if what == "" {
		what = p.Type
	}
	if s.dir != "" && p.Source.Type != agui.SourceFile {
		return s.save(ctx, n, p, what)
	}
	switch p.Source.Type {
	case agui.SourceData:
		length := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(p.Source.Value, "=")))
		return fmt.Sprintf("[%s, %s; save it with --output-dir]\n", what, size(int64(length))), nil
	case agui.SourceURL:
		return fmt.Sprintf("[%s at %s]\n", what, oneLine(p.Source.Value)), nil
	}
	return fmt.Sprintf("[%s, kept by %s as %s]\n", what, oneLine(p.Source.Provider), oneLine(p.Source.Value)), nil
}

// save writes the n-th medium to a new file and says so. A medium that cannot be had costs the caller that medium and not
// the rest of the result.
func (s *saver) save(ctx context.Context, n int, p agui.Part, what string) (string, error) {
	src := io.NopCloser(base64.NewDecoder(base64.StdEncoding, strings.NewReader(p.Source.Value)))
	if p.Source.Type == agui.SourceURL {
		var err error
		if src, err = s.fetch(ctx, p.Source.Value); err != nil {
			return fmt.Sprintf("[%s, not saved: %s]\n", what, oneLine(err.Error())), nil
		}
	}
	defer src.Close()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return "", err
	}
	f, err := s.create(p, n)
	if err != nil {
		return "", err
	}
	length, err := io.Copy(f, io.LimitReader(src, maxMedia))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("save %s: %w", f.Name(), err)
	}
	return fmt.Sprintf("[%s, %s, saved as %s]\n", what, size(length), f.Name()), nil
}

// create makes the file for the n-th medium: under the name that the tool gave it,
// when that is free and a plain one, or under the call's.
func (s *saver) create(p agui.Part, n int) (*os.File, error) {
	var meta struct {
		Filename string `json:"filename"`
	}
	_ = json.Unmarshal(p.Metadata, &meta) // what else it holds is not ours
	name := path.Base(meta.Filename)
	if fs.ValidPath(name) && !strings.HasPrefix(name, ".") && !strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || r == ':' || !unicode.IsPrint(r) }) {
		f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			return f, nil
		}
	}
	return newFile(s.dir, filepath.Base(s.name), n, extension(p.Source.MimeType))
}

// maxNames bounds the search for a free name.
const maxNames = 10_000

// newFile makes a file that was not there: dir/name-n.ext, or the next number
// that is free. Nothing is ever written over, and a symbolic link that lies at
// the name is not followed.
func newFile(dir, name string, n int, ext string) (*os.File, error) {
	for i := n; i < n+maxNames; i++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s-%d%s", name, i, ext)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("%s holds %s-%d%s and the %d names after it; choose another directory", dir, name, n, ext, maxNames)
}

// extension is the usual ending of a file of that type. The common ones are
// named here, since what a system's own table says of them differs.
func extension(mimeType string) string {
	base, _, err := mime.ParseMediaType(mimeType)
	if err != nil {
		return ".bin"
	}
	common := map[string]string{
		"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/svg+xml": ".svg",
		"text/plain": ".txt", "text/html": ".html", "text/csv": ".csv", "application/json": ".json",
		"application/pdf": ".pdf", "audio/mpeg": ".mp3", "audio/wave": ".wav", "video/mp4": ".mp4",
	}
	if ext, ok := common[base]; ok {
		return ext
	}
	if exts, err := mime.ExtensionsByType(base); err == nil && len(exts) > 0 {
		return exts[0]
	}
	return ".bin"
}
