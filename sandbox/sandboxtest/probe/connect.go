package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dial connects, within a time in which a refusal comes by far.
func dial(network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), network, address)
}

// exchange sends a text to an address, ends its half and prints what comes back;
// or how that failed.
func exchange(args []string) int {
	c, err := dial(args[0], args[1])
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, args[2]); err != nil {
		return failed(err)
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
		_, err = io.Copy(os.Stdout, c)
	} else {
		buf := make([]byte, 64<<10)
		var n int
		n, err = c.Read(buf)
		_, _ = os.Stdout.Write(buf[:n])
	}
	if err != nil {
		return failed(err)
	}
	return 0
}

func failed(err error) int {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	fmt.Println("failed:", err)
	return 0
}

// clog sends so many bytes to an address and tells how many were taken before its
// patience was over; then it asks another address, which must answer meanwhile.
func clog(args []string) int {
	c, err := dial("tcp", args[0])
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	size, sent := atoi(args[1]), 0
	chunk := make([]byte, 32<<10)
	for sent < size {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := c.Write(chunk)
		if sent += n; err != nil {
			break
		}
	}
	fmt.Println(sent)
	return exchange([]string{"tcp", args[2], "still"})
}

// clogmany makes so many connections to an address, sends so many bytes on each as
// far as they are taken, and reads nothing; then it tells how many were taken in
// all, and asks another address while it holds them.
func clogmany(args []string) int {
	conns, size := make([]net.Conn, atoi(args[1])), atoi(args[2])
	for i := range conns {
		c, err := dial("tcp", args[0])
		if err != nil {
			return failed(fmt.Errorf("connection %d: %w", i, err))
		}
		defer c.Close()
		conns[i] = c
	}
	var sent atomic.Int64
	var writing sync.WaitGroup
	chunk := make([]byte, size)
	for _, c := range conns {
		writing.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(3 * time.Second))
			n, _ := c.Write(chunk)
			sent.Add(int64(n))
		})
	}
	writing.Wait()
	fmt.Println(sent.Load())
	return exchange([]string{"tcp", args[3], "still"})
}

// crowd holds so many connections at once, sends a number on each and expects it
// back on the same one.
func crowd(args []string) int {
	conns := make([]net.Conn, atoi(args[1]))
	for i := range conns {
		c, err := dial("tcp", args[0])
		if err != nil {
			return failed(fmt.Errorf("connection %d: %w", i, err))
		}
		defer c.Close()
		conns[i] = c
	}
	for i, c := range conns {
		if _, err := io.WriteString(c, strconv.Itoa(i)+"\n"); err != nil {
			return failed(err)
		}
	}
	for i, c := range conns {
		want := []byte(strconv.Itoa(i) + "\n")
		got := make([]byte, len(want))
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			return failed(fmt.Errorf("connection %d answered %q: %w", i, got, err))
		}
	}
	fmt.Println("all")
	return 0
}

// part sends a text and is gone, without waiting for anything.
func part(args []string) int {
	c, err := dial("tcp", args[0])
	if err != nil {
		return failed(err)
	}
	if _, err := io.WriteString(c, args[1]); err != nil {
		return failed(err)
	}
	return 0
}

// get prints what it gets from addresses, as programs in Go do; whoever answers
// by TLS is believed.
func get(args []string) int {
	t := http.DefaultTransport.(*http.Transport).Clone()      //nolint:forcetypeassert // what it is
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test's own server
	for _, address := range args {
		answer, err := (&http.Client{Transport: t}).Get(address) //nolint:noctx // the sandbox's end is its own
		if err != nil {
			return failed(err)
		}
		_, err = io.Copy(os.Stdout, answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return failed(err)
		}
	}
	return 0
}
