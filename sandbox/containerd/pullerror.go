package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/auth"
	answers "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/toolfleet/toolfleet/sandbox"
)

// pullError says what a failed pull of ref means. A containerd that went away
// is our fault and no image's.
//
// What a registry said is hostile, and the addresses that it sends on to have
// secrets in their queries; so little of either is kept.
func pullError(ref string, err error) error {
	if known, ok := errors.AsType[*sandbox.ImageError](err); ok {
		return &sandbox.ImageError{Image: ref, Fault: known.Fault, Detail: known.Detail}
	}
	if answer, ok := errors.AsType[answers.ErrUnexpectedStatus](err); ok {
		return &sandbox.ImageError{
			Image: ref, Fault: faultOf(answer.StatusCode),
			Detail: fmt.Sprintf("its registry answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode)),
		}
	}
	failed := func(fault sandbox.ImageFault, detail string) error {
		return &sandbox.ImageError{Image: ref, Fault: fault, Detail: detail}
	}
	switch {
	case errdefs.IsUnavailable(err):
		return wrap("pull "+ref, err)
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return failed(sandbox.ImageForbidden, "its registry wants credentials that we do not have")
	case errors.Is(err, auth.ErrNoToken):
		return failed(sandbox.ImageForbidden, "its registry's token server gives no token")
	case errdefs.IsNotFound(err):
		return failed(sandbox.ImageNotFound, "")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return failed(sandbox.ImageUnreachable, "the connection breaks while it is pulled")
	case errors.Is(err, context.DeadlineExceeded):
		return failed(sandbox.ImageUnreachable, fmt.Sprintf("its pull took more than %s", pullTimeout))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("containerd: pull %s: %w", ref, err)
	}
	return failed(sandbox.ImageCorrupt, oneLine(err.Error()))
}

// unpackError says what is wrong with the image name, which is in the store.
func unpackError(step, name string, err error) error {
	if errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return wrap(step+" image", err)
	}
	return &sandbox.ImageError{Image: name, Fault: sandbox.ImageCorrupt, Detail: oneLine(err.Error())}
}

// faultOf is what a registry's refusal means.
func faultOf(status int) sandbox.ImageFault {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.ImageForbidden
	case http.StatusNotFound, http.StatusGone:
		return sandbox.ImageNotFound
	}
	return sandbox.ImageUnreachable
}

// maxDetail bounds what is quoted of others, in bytes.
const maxDetail = 300

// oneLine makes s harmless in a log: short, printable, and without the queries
// of addresses.
func oneLine(s string) string {
	words := strings.Fields(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s[:min(len(s), 4*maxDetail)], " ")))
	for i, w := range words {
		if before, _, found := strings.Cut(w, "?"); found && strings.Contains(before, "://") {
			words[i] = before + "?…"
		}
	}
	s = strings.Join(words, " ")
	return strings.ToValidUTF8(s[:min(len(s), maxDetail)], "")
}
