//go:build !amd64

package main

// forgotten is empty: architectures younger than amd64 left these calls out.
var forgotten []uintptr

// There is one table of calls.
var i386Getpid, x32Getpid func() int64

func ports() outcome { return absent("this architecture has no I/O ports") }
