package natsd

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger hands the server's printf lines to slog. The lines are the server's
// text, so the message is constant and the text an attribute.
type logger struct {
	log   *slog.Logger
	fatal *fatal
}

// fatal keeps the complaint after which the server gave up. The server says
// it nowhere else: it is written for a main that would exit.
type fatal struct {
	mu  sync.Mutex
	err error
}

func (f *fatal) set(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = fmt.Errorf("natsd: %s", text)
}

func (f *fatal) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

const message = "nats server"

func (l logger) Noticef(format string, v ...any) {
	if l.log != nil {
		l.log.Debug(message, "text", fmt.Sprintf(format, v...))
	}
}

func (l logger) Warnf(format string, v ...any) {
	if l.log != nil {
		l.log.Warn(message, "text", fmt.Sprintf(format, v...))
	}
}

// Fatalf does not end the process: Start reports it.
func (l logger) Fatalf(format string, v ...any) {
	l.fatal.set(fmt.Sprintf(format, v...))
	l.Errorf(format, v...)
}

func (l logger) Errorf(format string, v ...any) {
	if l.log != nil {
		l.log.Error(message, "text", fmt.Sprintf(format, v...))
	}
}

func (l logger) Debugf(string, ...any) {}

func (l logger) Tracef(string, ...any) {}
