package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// secret keeps a secret file for the start that follows on the same stream.
func (a *agent) secret(f wire.Frame) error {
	if !a.cfg.Secrets && !a.cfg.Cells {
		return fmt.Errorf("%w: %v, for which there is no place here", wire.ErrFrame, f.Kind)
	}
	busy := a.tool != nil && (!a.cfg.Cells || !a.tool.isOver())
	if busy || len(a.secrets) == wire.MaxSecrets || len(a.secrets) > 0 && f.Stream != a.secretsOf {
		return fmt.Errorf("%w: %v out of turn", wire.ErrFrame, f.Kind)
	}
	var s wire.Secret
	err := wire.Decode(f, &s)
	clear(f.Payload) // the reader's, and the next frames may be short
	if err != nil {
		return err
	}
	if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00") {
		return fmt.Errorf("%w: %v that names no file", wire.ErrFrame, f.Kind)
	}
	a.secrets, a.secretsOf = append(a.secrets, s), f.Stream
	return nil
}

// takeSecrets returns what came for the start on a stream.
func (a *agent) takeSecrets(stream uint32) ([]wire.Secret, error) {
	if len(a.secrets) > 0 && a.secretsOf != stream {
		return nil, fmt.Errorf("%w: secrets of stream %d before the start of %d", wire.ErrFrame, a.secretsOf, stream)
	}
	secrets := a.secrets
	a.secrets = nil
	return secrets, nil
}

// secretsSize bounds the tmpfs of a cell's secrets, in bytes. What a call can
// have of them, wherever it runs, is less.
const secretsSize = 1 << 20

// putSecrets writes the tool's secret files, in a cell onto a tmpfs that it
// mounts for them. The directory stays the agent's, and each file belongs to the
// tool's user alone, who may read it. They go with the mount, which is the
// sandbox's or the cell's.
func (p *program) putSecrets() error {
	if len(p.secrets) == 0 {
		return nil
	}
	if p.inCell {
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755", secretsSize, 2*wire.MaxSecrets)
		if err := unix.Mount("toolfleet", wire.DirSecrets, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mount a place for secrets: %w", err)
		}
	}
	for _, s := range p.secrets {
		if err := putSecret(s, p.UID, p.GID); err != nil {
			return fmt.Errorf("put a secret into its file: %w", err)
		}
	}
	return nil
}

func putSecret(s wire.Secret, uid, gid int) error {
	name := filepath.Join(wire.DirSecrets, s.Name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(s.Data)
	owned := f.Chown(uid, gid)
	if errors.Is(owned, unix.EINVAL) {
		owned = nil // there is no such user, which is told when the tool becomes it
	}
	return errors.Join(err, owned, f.Close())
}
