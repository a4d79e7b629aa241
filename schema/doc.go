// Package schema judges JSON that a model or a tool produced, and derives JSON
// Schema from Go types.
//
// It has two parts. [CheckJSON] judges text before anything decodes it: size,
// depth, duplicate keys, numbers that cost more to compute with than to send.
// [Of] and [For] make the schema of a Go type, by google/jsonschema-go.
//
// Whether text fits a schema is told by package schema/validate.
package schema
