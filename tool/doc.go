// Package tool is the tool model for Go authors.
package tool
