package part

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/toolfleet/toolfleet/catalog"
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

// tellUngranted warns, once for each tool and what it lacks, of tools that name
// secrets which the operator grants them not: their calls are going to be declined,
// and whoever starts the worker learns it before whoever calls.
func (w *Worker) tellUngranted(tools []catalog.Spec) {
	ungranted := map[string]string{}
	for _, t := range tools {
		var names []string
		for _, s := range t.Secrets {
			names = append(names, s.Name)
		}
		missing := strings.Join(w.secrets.Ungranted(t.Name, t.Tenants, names), " ")
		if missing == "" {
			continue
		}
		ungranted[t.Name] = missing
		if w.ungranted[t.Name] != missing {
			w.logger.Warn("a tool names secrets that it is not granted; its calls are declined until the secrets file grants them",
				"tool", t.Name, "secrets", missing, "tenants", strings.Join(t.Tenants, " "), "file", w.cfg.Secrets)
		}
	}
	w.ungranted = ungranted
}

// hostRoots are the system's authorities and those of a file; nil, which stands
// for the system's, without one.
func hostRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // see above
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificates of hosts: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificates of hosts: there is none in %s", file)
	}
	return roots, nil
}
