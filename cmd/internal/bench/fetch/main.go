// Command fetch measures a network from within: how long it takes to download so
// many bytes, and how long small requests take, each on a connection of its own.
// The bench runs it in a sandbox and beside one.
//
// It prints the seconds of the download and the median of the requests, in
// milliseconds.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

// small is how many bytes a small request asks for.
const small = 64

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: fetch ADDRESS BYTES REQUESTS")
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	requests, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	whole, err := fetch(args[0], size)
	if err != nil {
		return err
	}
	took := make([]time.Duration, requests)
	for i := range took {
		if took[i], err = fetch(args[0], small); err != nil {
			return err
		}
	}
	slices.Sort(took)
	_, err = fmt.Println(whole.Seconds(), took[requests/2].Seconds()*1000)
	return err
}

// fetch asks for so many bytes on a new connection and waits for the last.
func fetch(address string, size int64) (time.Duration, error) {
	began := time.Now()
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, size); err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, bufio.NewReaderSize(c, 256<<10), make([]byte, 256<<10))
	if err != nil {
		return 0, err
	}
	if n != size {
		return 0, fmt.Errorf("%s sent %d bytes of %d", address, n, size)
	}
	return time.Since(began), nil
}
