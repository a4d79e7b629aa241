// Package schema judges JSON that a model or a tool produced, and derives JSON
// Schema from Go types.
//
// It has three parts. [CheckJSON] judges text before anything decodes it: size,
// depth, duplicate keys, numbers that cost more to compute with than to send.
// [Compile] and [Schema.Validate] check it against a schema and list every
// problem in a fixed order, so that a model can mend all of them at once. [Of]
// and [For] make the schema of a Go type.
//
// Two libraries stand behind it, one for each job: santhosh-tekuri/jsonschema
// validates, since it passes the official suite of every draft and keeps the
// place of each error; google/jsonschema-go generates. Neither is visible to a
// caller that only checks.
package schema
