package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"

	"github.com/toolfleet/toolfleet/sandbox"
)

// maxConfig bounds a config.json.
const maxConfig = 1 << 20

// config reads the credentials file. Its errors do not quote it.
func (g *registries) config() (*configfile.ConfigFile, error) {
	f, err := os.Open(g.cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("containerd: read the registries' credentials: %w", err)
	}
	defer f.Close()
	cf := configfile.New(g.cfg.Config)
	if err := cf.LoadFromReader(io.LimitReader(f, maxConfig)); err != nil {
		return nil, fmt.Errorf("containerd: %s is not a config.json as docker login writes it", g.cfg.Config)
	}
	return cf, nil
}

// credentials are the name and the password for a registry, both empty for
// none. A secret without a name is a token to be exchanged for others.
func (g *registries) credentials(ctx context.Context, host string) (user, secret string, err error) {
	if g.cfg.Config == "" {
		return "", "", nil
	}
	cf, err := g.config()
	if err != nil {
		return "", "", &sandbox.ImageError{Fault: sandbox.ImageForbidden, Detail: oneLine(err.Error())}
	}
	helper, named := cf.CredentialHelpers[host]
	if !named {
		helper = cf.CredentialsStore
	}
	if helper != "" {
		return askHelper(ctx, helper, host)
	}
	auth, err := cf.GetAuthConfig(host)
	switch {
	case err != nil:
		return "", "", &sandbox.ImageError{Fault: sandbox.ImageForbidden, Detail: "the credentials cannot be read from " + g.cfg.Config}
	case auth.RegistryToken != "":
		return "", "", &sandbox.ImageError{Fault: sandbox.ImageForbidden, Detail: "a registrytoken in config.json is not supported; log in with a name and a password"}
	case auth.IdentityToken != "":
		return "", auth.IdentityToken, nil
	}
	return auth.Username, auth.Password, nil
}

// helperTimeout bounds a credential helper, which may ask a service, and
// helperLeft what it leaves behind: a process that holds its output would have
// the pull, and all who want the image, wait for ever.
const (
	helperTimeout = 30 * time.Second
	helperLeft    = time.Second
)

var validHelper = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// askHelper runs docker-credential-NAME, the program that a config.json names
// in credHelpers or credsStore. What it says when it fails is not passed on: it
// may be half a secret.
func askHelper(ctx context.Context, name, host string) (user, secret string, err error) {
	program := "docker-credential-" + name
	if !validHelper.MatchString(name) {
		return "", "", &sandbox.ImageError{Fault: sandbox.ImageForbidden, Detail: "config.json names a credential helper that cannot be one"}
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	got, err := client.Get(func(args ...string) client.Program {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.WaitDelay = helperLeft
		return helperProgram{cmd}
	}, host)
	switch {
	case credentials.IsErrCredentialsNotFound(err):
		return "", "", nil
	case err != nil:
		return "", "", &sandbox.ImageError{Fault: sandbox.ImageForbidden, Detail: fmt.Sprintf("the credential helper %s failed; run it by hand to see why", program)}
	case got.Username == "<token>":
		return "", got.Secret, nil
	}
	return got.Username, got.Secret, nil
}

// helperProgram is a credential helper that ends with a context, and whose
// standard error goes nowhere.
type helperProgram struct{ *exec.Cmd }

func (p helperProgram) Input(in io.Reader) { p.Stdin = in }
