package main

import (
	"context"
	"net"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if at := os.Getenv(testNameServer); at != "" {
			net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "udp", at)
			}}
		}
		main()
	}
	os.Exit(m.Run())
}
