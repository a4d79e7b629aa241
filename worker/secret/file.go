package secret

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Kind is the kind of a secrets file.
const Kind = "Secrets"

// Prefix is how the variables of a worker's environment begin that may hold
// secrets. No others are looked at: a slip in the file must not hand a tool the
// worker's own credentials.
const Prefix = "TOOLFLEET_SECRET_"

// AllTenants in place of a tenant's name stands for every tenant.
const AllTenants = "*"

// file is a secrets file as it is written:
//
//	apiVersion: toolfleet/v1
//	kind: Secrets
//	secrets:
//	  - {name: weather-key, file: /run/weather/key, tools: [weather], tenants: ["*"]}
//	  - {name: crm-token, env: TOOLFLEET_SECRET_CRM_ACME, tools: [crm], tenants: [acme]}
//	  - {name: crm-token, env: TOOLFLEET_SECRET_CRM_GLOBEX, tools: [crm], tenants: [globex]}
//
// An entry grants one secret to tools for tenants, both by name and both
// required: what an operator has not written down nobody has. The same name may
// stand in several entries, for tenants that have a value each.
type file struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Secrets    []grant `json:"secrets"`
}

// grant is one entry of a file.
type grant struct {
	Name string `json:"name"`
	// Env is a variable of the worker's environment, File a path, relative to
	// the directory of the secrets file. One of them is set.
	Env     string   `json:"env"`
	File    string   `json:"file"`
	Tools   []string `json:"tools"`
	Tenants []string `json:"tenants"`
}

// gives reports whether the grant gives the secret to a tool for a tenant.
func (g *grant) gives(name, tool, tenant string) bool {
	return g.Name == name && slices.Contains(g.Tools, tool) &&
		(slices.Contains(g.Tenants, tenant) || slices.Contains(g.Tenants, AllTenants))
}

// meets reports whether there is a call to which both grants give a secret of
// the same name.
func (g *grant) meets(other *grant) bool {
	all := func(g *grant) bool { return slices.Contains(g.Tenants, AllTenants) }
	common := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
	}
	return g.Name == other.Name && common(g.Tools, other.Tools) &&
		(all(g) || all(other) || common(g.Tenants, other.Tenants))
}

// parse reads a file that stands in dir. The error is [catalog.Problems].
func parse(data []byte, dir string) ([]grant, error) {
	var f file
	expected := "secrets (apiVersion: " + catalog.APIVersion + ", kind: " + Kind + ", …)"
	if err := catalog.Decode(data, expected, &f, f.faults); err != nil {
		return nil, err
	}
	for i := range f.Secrets {
		if g := &f.Secrets[i]; g.File != "" && !filepath.IsAbs(g.File) {
			g.File = filepath.Join(dir, g.File)
		}
	}
	return f.Secrets, nil
}

// faults lists everything that is wrong with what was read.
func (f *file) faults() (problems catalog.Problems) {
	fault := func(field, format string, args ...any) {
		problems = append(problems, catalog.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if f.APIVersion != catalog.APIVersion {
		fault("apiVersion", "expected %s", catalog.APIVersion)
	}
	if f.Kind != Kind {
		fault("kind", "expected %s", Kind)
	}
	for i := range f.Secrets {
		field := fmt.Sprintf("secrets[%d]", i)
		g := &f.Secrets[i]
		g.faults(field, fault)
		if j := slices.IndexFunc(f.Secrets[:i], func(other grant) bool { return g.meets(&other) }); j >= 0 {
			fault(field, "gives %s to a tool and a tenant that secrets[%d] gives it to, too", g.Name, j)
		}
	}
	return problems
}

func (g *grant) faults(field string, fault func(field, format string, args ...any)) {
	if !catalog.ValidSecretName(g.Name) {
		fault(field+".name", "expected 1 to 64 of letters, digits, ., _ and -")
	}
	switch {
	case (g.Env == "") == (g.File == ""):
		fault(field, "expected one of env and file, which says where the value is")
	case g.Env != "" && !strings.HasPrefix(g.Env, Prefix):
		fault(field+".env", "expected a name that begins %s; no other variable of a worker is a secret for tools", Prefix)
	}
	if len(g.Tools) == 0 {
		fault(field+".tools", "is missing; a secret is for the tools that are named")
	}
	for i, tool := range g.Tools {
		if !call.ValidToolName(tool) {
			fault(fmt.Sprintf("%s.tools[%d]", field, i), "expected the name of a tool")
		}
	}
	if len(g.Tenants) == 0 {
		fault(field+".tenants", `is missing; a secret is for the tenants that are named, or for all with "*"`)
	}
	for i, tenant := range g.Tenants {
		if tenant != AllTenants && !call.ValidTenant(tenant) {
			fault(fmt.Sprintf("%s.tenants[%d]", field, i), `expected the name of a tenant, or "*" for all`)
		}
	}
}
