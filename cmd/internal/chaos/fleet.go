package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/internal/failpoint"
)

// lease is how long a worker or a delivery lives without a heartbeat in a fleet
// under faults: a third of the default, so that a run sees many of them end.
const lease = 5 * time.Second

// fleet is everything that runs.
type fleet struct {
	cfg    Config
	logger *slog.Logger
	// faulty says that the fleet is made to be broken: with a network and a
	// disk that can fail, failpoints, and a short lease.
	faulty bool
	net    *network // nil unless faulty, and so is disk
	disk   *disk
	// host is where the NATS servers listen.
	host string

	servers, dispatchers, workers []*process
	clients                       []*client.Fleet
	// addresses are those of the NATS servers, for clients.
	addresses string
	running   sync.WaitGroup
	logs      []*os.File
}

// startFleet starts all parts in their order and returns once all are up. stop
// must be called when the error is nil.
func startFleet(ctx context.Context, cfg Config, faulty bool, logger *slog.Logger) (_ *fleet, err error) {
	f := &fleet{cfg: cfg, logger: logger, faulty: faulty, host: "127.0.0.1"}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop(ctx), f.remove(ctx))
		}
	}()
	if faulty {
		if f.net, err = makeNetwork(ctx); err != nil {
			return nil, err
		}
		if f.disk, err = makeDisk(f.store(smallDisk)); err != nil {
			return nil, err
		}
		f.host = f.net.outside
	}
	if err := errors.Join(makeLedger(f.ledger()), writeTools(f.at("tools")), linkImage(f.cfg.Images, f.at("images"))); err != nil {
		return nil, err
	}
	if err := f.defineServers(); err != nil {
		return nil, err
	}
	if err := f.defineParts(); err != nil {
		return nil, err
	}
	for _, group := range [][]*process{f.servers, f.dispatchers, f.workers} {
		for _, p := range group {
			f.running.Go(p.run)
		}
		for _, p := range group {
			if _, err := p.awaitUp(ctx); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// smallDisk is the server whose store can be filled.
const smallDisk = 0

func (f *fleet) at(name string) string      { return filepath.Join(f.cfg.Dir, name) }
func (f *fleet) ledger() string             { return f.at("ledger") }
func (f *fleet) store(server int) string    { return f.at(fmt.Sprintf("nats%d", server)) }
func (f *fleet) state(worker int) string    { return f.at(fmt.Sprintf("w%d", worker)) }
func (f *fleet) program(name string) string { return filepath.Join(f.cfg.Bin, name) }
func (f *fleet) all() (processes []*process) {
	return append(append(append(processes, f.servers...), f.dispatchers...), f.workers...)
}

const serverConfig = `server_name: %s
listen: "%s:%d"
http: "127.0.0.1:%d"
jetstream: {store_dir: %q, max_memory_store: 256MiB, max_file_store: 16GiB}
cluster: {name: chaos, listen: "127.0.0.1:%d", routes: [%s]}
`

// defineServers says how the NATS servers are run. With a cable they listen at
// our end of it, where the worker in the namespace reaches them too.
func (f *fleet) defineServers() error {
	clients, err := freePorts(f.host, servers)
	if err != nil {
		return err
	}
	private, err := freePorts("127.0.0.1", 2*servers)
	if err != nil {
		return err
	}
	peers, pages := private[:servers], private[servers:]
	var routes, urls []string
	for i := range servers {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", peers[i]))
		urls = append(urls, "nats://"+net.JoinHostPort(f.host, strconv.Itoa(clients[i])))
	}
	for i := range servers {
		name := fmt.Sprintf("nats%d", i)
		config := fmt.Sprintf(serverConfig, name, f.host, clients[i], pages[i], f.store(i), peers[i], strings.Join(routes, ", "))
		if err := os.WriteFile(f.at(name+".conf"), []byte(config), 0o600); err != nil {
			return err
		}
		p, err := f.define(name, []string{f.program("toolfleet"), "nats", f.at(name + ".conf")}, nil)
		if err != nil {
			return err
		}
		// It is not well before its copies of the streams are those of the others.
		p.page = fmt.Sprintf("http://127.0.0.1:%d/healthz", pages[i])
		f.servers = append(f.servers, p)
	}
	f.addresses = strings.Join(urls, ",")
	return nil
}

// defineParts says how dispatchers and workers are run. The last worker is the
// one in the namespace.
func (f *fleet) defineParts() error {
	ports, err := freePorts("127.0.0.1", dispatchers+workers)
	if err != nil {
		return err
	}
	for i := range dispatchers {
		listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i]))
		argv := []string{f.program("dispatcher"), "--nats", f.addresses, "--tools", f.at("tools"), "--listen", listen}
		p, err := f.define(fmt.Sprintf("d%d", i), argv, f.failpoints)
		if err != nil {
			return err
		}
		p.page = "http://" + listen + "/readyz"
		f.dispatchers = append(f.dispatchers, p)
		c, err := client.New("http://"+listen, "")
		if err != nil {
			return err
		}
		if !f.faulty { // there is always another door
			c = c.Impatient()
		}
		f.clients = append(f.clients, c)
	}
	drain := "60s" // as by default
	if f.faulty {
		drain = "20s"
	}
	for i := range workers {
		listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[dispatchers+i]))
		argv := []string{
			f.program("worker"), "--nats", f.addresses, "--tools", f.at("tools"), "--images", f.at("images"), "--state", f.state(i),
			"--programs", f.cfg.Programs, "--listen", listen, "--slots", "4", "--drain", drain,
		}
		p, err := f.define(fmt.Sprintf("w%d", i), argv, f.failpoints)
		if err != nil {
			return err
		}
		p.page = "http://" + listen + "/readyz"
		f.workers = append(f.workers, p)
	}
	if f.faulty {
		f.workers[cutOff].ns = f.net.ns
	}
	return nil
}

// cutOff is the worker that has a cable to cut.
const cutOff = workers - 1

var readyLine = regexp.MustCompile(`^ready `)

// define makes a process whose messages go to a file of its name.
func (f *fleet) define(name string, argv []string, env func(name string, start int) []string) (*process, error) {
	log, err := os.Create(f.at(name + ".log"))
	if err != nil {
		return nil, err
	}
	f.logs = append(f.logs, log)
	return &process{
		name: name, argv: argv, ready: readyLine, log: log, logger: f.logger,
		env: func(start int, tame bool) []string {
			own := []string{
				"TOOLFLEET_CHAOS_LEDGER=" + f.ledger(), "TOOLFLEET_REPLICAS=" + strconv.Itoa(servers),
				"TOOLFLEET_LOG_LEVEL=info",
			}
			if f.faulty {
				own = append(own, "TOOLFLEET_LEASE="+lease.String())
			}
			if f.faulty && env != nil && !tame {
				own = append(own, env(name, start)...)
			}
			return own
		},
	}, nil
}

// failpoints makes a part die by itself now and then, at each point about twice
// in a run. Each start draws anew, or a part that died early would die at the
// same moment for ever.
func (f *fleet) failpoints(name string, start int) []string {
	every := max(50, f.cfg.Calls/2)
	rules := make([]string, 0, len(failpoint.Points))
	for _, p := range failpoint.Points {
		rules = append(rules, fmt.Sprintf("%s:exit:1in%d", p, every))
	}
	seed := f.cfg.Seed
	for _, c := range []byte(name + strconv.Itoa(start)) {
		seed = seed*31 + uint64(c)
	}
	return []string{"TOOLFLEET_FAILPOINT=" + strings.Join(rules, ","), "TOOLFLEET_FAILPOINT_SEED=" + strconv.FormatUint(seed, 10)}
}

// connect connects to the fleet's servers. The caller closes the connection.
func (f *fleet) connect() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(f.addresses, nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		return nil, nil, fmt.Errorf("chaos: connect: %w", err)
	}
	js, err := jetstream.New(nc)
	return nc, js, err
}

// stopParts stops workers and dispatchers, in this order: what a worker has to
// say at its end is still followed. A worker that a failpoint met at its very end
// is started once more, which is how what it left is swept.
func (f *fleet) stopParts(ctx context.Context) error {
	errs := []error{endAll(ctx, f.workers)}
	for _, w := range f.workers {
		if w.isUnclean() {
			w.revive()
			f.running.Go(w.run)
			_, err := w.awaitUp(ctx)
			errs = append(errs, err, w.end(ctx))
		}
	}
	return errors.Join(append(errs, endAll(ctx, f.dispatchers))...)
}

// stop stops all that still runs.
func (f *fleet) stop(ctx context.Context) error {
	err := errors.Join(f.stopParts(ctx), endAll(ctx, f.servers))
	f.running.Wait()
	for _, l := range f.logs {
		l.Close()
	}
	return err
}

func endAll(ctx context.Context, processes []*process) error {
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.end(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove removes the network and the disk. The directory is the caller's.
func (f *fleet) remove(ctx context.Context) error {
	var errs []error
	if f.net != nil {
		errs = append(errs, f.net.remove(context.WithoutCancel(ctx)))
	}
	if f.disk != nil {
		errs = append(errs, f.disk.remove())
	}
	return errors.Join(errs...)
}

// freePorts finds ports of host that nobody listens on at this moment. Servers
// are started again under the same address, so it must be known beforehand.
func freePorts(host string, n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // takes no time that a context could bound
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("chaos: %v is no TCP address", l.Addr())
		}
		ports[i] = addr.Port
	}
	return ports, nil
}
