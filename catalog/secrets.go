package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// maxSecrets bounds the secrets of one tool.
const maxSecrets = 16

var (
	secretForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	fileForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// ValidSecretName reports whether s may name a secret: 1 to 64 of letters,
// digits, ".", "_" and "-", the first of them a letter or a digit.
func ValidSecretName(s string) bool { return secretForm.MatchString(s) }

// SecretNames are the names of the secrets that the tool itself sees, each
// once, in the order of the spec.
func (s *Spec) SecretNames() []string {
	var names []string
	for _, secret := range s.Secrets {
		if !slices.Contains(names, secret.Name) {
			names = append(names, secret.Name)
		}
	}
	return names
}

// HasSecretFiles reports whether the tool finds secrets in files.
func (s *Spec) HasSecretFiles() bool {
	return slices.ContainsFunc(s.Secrets, func(secret Secret) bool { return secret.File != "" })
}

// secrets checks what a tool says of its secrets: a name, and one place.
func (v *validator) secrets(s *Spec) {
	if len(s.Secrets) > maxSecrets {
		v.fault("secrets", "are %d, and at most %d are allowed", len(s.Secrets), maxSecrets)
	}
	places := map[string]bool{}
	for i, secret := range s.Secrets {
		field := fmt.Sprintf("secrets[%d]", i)
		if !ValidSecretName(secret.Name) {
			v.fault(field+".name", "expected 1 to 64 of letters, digits, ., _ and -, got %q", cut(secret.Name))
		}
		ways := 0
		for _, given := range []bool{secret.Env != "", secret.File != "", secret.Inject != nil} {
			if given {
				ways++
			}
		}
		if ways != 1 {
			v.fault(field, "expected one of env, file and inject, which says how the tool gets it")
			continue
		}
		place := "env " + secret.Env
		switch {
		case secret.Env != "":
			v.secretEnv(s, field+".env", secret.Env)
		case secret.File != "":
			place = "file " + secret.File
			if !fileForm.MatchString(secret.File) {
				v.fault(field+".file", "expected the name of a file in %s, without a directory, got %q", wire.DirSecrets, cut(secret.File))
			}
		default:
			place = v.inject(s, field+".inject", secret.Inject)
		}
		if place != "" && places[place] {
			v.fault(field, "two secrets cannot have the same place")
		}
		places[place] = true
	}
}

// secretEnv checks the name of a variable that is to hold a secret.
func (v *validator) secretEnv(s *Spec, field, name string) {
	_, set := s.Env[name]
	switch {
	case !envForm.MatchString(name):
		v.fault(field, "expected a name of letters, digits and _, got %q", cut(name))
	case strings.HasPrefix(name, "TOOLFLEET_"):
		v.fault(field, "names that begin TOOLFLEET_ belong to the fleet")
	case slices.Contains([]string{"PATH", "HOME", "TMPDIR", "GOMAXPROCS"}, name) || strings.HasPrefix(name, "LD_"):
		v.fault(field, "%s decides how a program is run and is no place for a secret", name)
	case set:
		v.fault(field, "%s is set in env, too", name)
	}
}
