package part

import (
	"log/slog"

	"github.com/toolfleet/toolfleet/worker/secret"
)

// openSecrets opens the store of what the operator grants; it is nil without a
// file. The variables of the environment that hold secrets are taken out in any
// case, before anything is started that would inherit them.
func openSecrets(file string, logger *slog.Logger) (*secret.Store, error) {
	environ := secret.TakeEnviron()
	if file == "" {
		return nil, nil //nolint:nilnil // a nil store grants nothing
	}
	return secret.Open(file, environ, logger)
}
