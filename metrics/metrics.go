package metrics

import (
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds every metric of the fleet. Make one with [New]. All methods
// are safe for concurrent use and do nothing on a nil *Metrics.
type Metrics struct {
	admitted *prometheus.CounterVec
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	waited   *prometheus.GaugeVec
	toolRun  *prometheus.CounterVec

	tenantEnded *prometheus.CounterVec
	tenantRun   *prometheus.CounterVec
	tenantJobs  *prometheus.GaugeVec

	output    *prometheus.CounterVec
	truncated *prometheus.CounterVec

	lettersFiled *prometheus.CounterVec
	letters      prometheus.Gauge

	queueJobs  *prometheus.GaugeVec
	queueLimit *prometheus.GaugeVec
	deliveries *prometheus.CounterVec
	redelivers prometheus.Counter
	rebuilds   prometheus.Counter
	adopted    prometheus.Counter
	slots      prometheus.Gauge
	slotsBusy  prometheus.Gauge

	workers     *prometheus.GaugeVec
	nats        prometheus.Gauge
	containerd  prometheus.Gauge
	streamBytes *prometheus.GaugeVec
	streamLimit *prometheus.GaugeVec

	sandboxes       *prometheus.GaugeVec
	sandboxStart    *prometheus.HistogramVec
	sandboxFailures *prometheus.CounterVec
	sandboxesSwept  *prometheus.CounterVec
	pulls           *prometheus.HistogramVec

	poolWarm     *prometheus.GaugeVec
	poolTarget   *prometheus.GaugeVec
	poolGets     *prometheus.CounterVec
	poolFailures *prometheus.CounterVec
	hostObjects  *prometheus.GaugeVec

	progressDropped *prometheus.CounterVec
	appendsLost     *prometheus.CounterVec
	resultsDropped  prometheus.Counter

	httpRequests *prometheus.CounterVec
	httpDuration *prometheus.HistogramVec
	httpStreams  *prometheus.GaugeVec

	egress      *prometheus.CounterVec
	egressBytes *prometheus.CounterVec

	blobs     *prometheus.CounterVec
	blobBytes *prometheus.CounterVec

	catalogTools  *prometheus.GaugeVec
	catalogLoaded prometheus.Gauge
	catalogFailed *prometheus.CounterVec

	tools, tenants, kinds, names *bounded
}

// callBuckets reach from a warm call that does nothing (1 ms) to the longest
// timeout there is (1 h), in seconds.
var callBuckets = []float64{
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
	1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
}

// startBuckets are finer where a start happens: a cell in 4 ms, a container in
// 200 ms, a pull in a minute; in seconds.
var startBuckets = []float64{
	0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
	0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
}

// httpBuckets, in seconds; a request that waits for its call ends with it.
var httpBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600}

// New makes the metrics and registers them with reg. It panics when reg holds
// one of the names already: two Metrics on one registry are a fault of the
// program. The build's version comes from the binary itself.
func New(reg prometheus.Registerer) *Metrics {
	f := family{reg}
	m := &Metrics{
		admitted: f.counter("calls_admitted_total", "Calls taken, refused ones included, by tool.", "tool"),
		ended:    f.counter("calls_ended_total", "Calls answered, by tool, kind of error (empty for success) and status.", "tool", "kind", "status"),
		duration: f.histogram("call_duration_seconds", "Time that calls spent in each step; step total is observed once per call.", callBuckets, "step"),
		waited:   f.gauge("oldest_waiting_call_age_seconds", "How long the oldest call waits that nobody has started, by class; 0 or no series when none does. Every dispatcher tells the same.", "class"),
		toolRun:  f.counter("tool_run_seconds_total", "Time that tools ran, added up over their calls, by tool.", "tool"),

		tenantEnded: f.counter("tenant_calls_ended_total", "Calls answered, by tenant and status.", "tenant", "status"),
		tenantRun:   f.counter("tenant_run_seconds_total", "Time that tools ran, added up over their calls, by tenant.", "tenant"),
		tenantJobs:  f.gauge("tenant_jobs", "Jobs of the tenants that have any, by tenant and state: waiting for their turn; placed, which is ready or in flight. The process that schedules tells.", "tenant", "state"),

		output:    f.counter("tool_output_bytes_total", "Bytes that tools wrote, kept or not, by stream (stdout, stderr).", "stream"),
		truncated: f.counter("tool_output_truncated_total", "Calls whose output lost bytes to a limit, by stream (stdout, stderr).", "stream"),

		lettersFiled: f.counter("dead_letters_filed_total", "Dead letters filed by this process, by tool and kind of error.", "tool", "kind"),
		letters:      f.gauge("dead_letters", "Dead letters that nobody has redriven or dropped yet, of all tenants.").WithLabelValues(),

		queueJobs:  f.gauge("queue_jobs", "Jobs in the queues, by class and state: waiting for their turn, which the process that schedules tells; ready for a slot; in_flight.", "class", "state"),
		queueLimit: f.gauge("queue_in_flight_limit", "Jobs of a class that may be in flight before the NATS server stops delivering, by class.", "class"),
		redelivers: f.counter("redeliveries_total", "Deliveries to this worker that were not their job's first.").WithLabelValues(),
		deliveries: f.counter("deliveries_total", "Deliveries that a worker has finished with, by outcome (ack, retry, abandoned).", "outcome"),
		rebuilds:   f.counter("consumer_rebuilds_total", "Consumers rebuilt because they had work and delivered none.").WithLabelValues(),
		adopted:    f.counter("jobs_adopted_total", "Jobs that the NATS server's consumer had lost and that were queued again.").WithLabelValues(),
		slots:      f.gauge("slots", "Slots of this worker.").WithLabelValues(),
		slotsBusy:  f.gauge("slots_busy", "Slots of this worker that hold a delivery.").WithLabelValues(),

		workers:     f.gauge("workers", "Workers that are registered and alive, by class. Every dispatcher tells the same.", "class"),
		nats:        f.gauge("nats_connected", "Whether this process is connected to a NATS server: 1 or 0.").WithLabelValues(),
		containerd:  f.gauge("containerd_connected", "Whether this worker's containerd answered when it was last asked, every two seconds: 1 or 0.").WithLabelValues(),
		streamBytes: f.gauge("stream_bytes", "Bytes that a stream holds, by stream. Every dispatcher tells the same.", "stream"),
		streamLimit: f.gauge("stream_limit_bytes", "Bytes that a stream may hold, by stream.", "stream"),

		sandboxes:       f.gauge("sandboxes", "Sandboxes of this worker, by runtime and state (starting, warm, running, closing).", "runtime", "state"),
		sandboxStart:    f.histogram("sandbox_start_duration_seconds", "Time from asking for a sandbox until its agent is ready, by runtime and whether it was warm or cold.", startBuckets, "runtime", "temperature"),
		sandboxFailures: f.counter("sandbox_failures_total", "Sandboxes that failed for a reason of ours, by runtime.", "runtime"),
		sandboxesSwept:  f.counter("sandboxes_swept_total", "Sandboxes that a dead worker left behind and the sweep removed, by runtime.", "runtime"),
		pulls:           f.histogram("image_pull_duration_seconds", "Time that pulls of images took, by outcome (pulled, failed); an image that was there is none.", startBuckets, "outcome"),

		poolWarm:     f.gauge("pool_warm", "Sandboxes that wait in this worker's pool, by runtime and isolation.", "runtime", "isolation"),
		poolTarget:   f.gauge("pool_target", "Sandboxes that should wait in this worker's pool, as its calls come now, by runtime and isolation.", "runtime", "isolation"),
		poolGets:     f.counter("pool_gets_total", "Sandboxes that calls asked the pool for, by runtime, isolation and outcome (hit, miss).", "runtime", "isolation", "outcome"),
		poolFailures: f.counter("pool_refill_failures_total", "Sandboxes that could not be started for the pool, by runtime and isolation.", "runtime", "isolation"),
		hostObjects:  f.gauge("host_objects", "What this worker's sandboxes have on the host, by object; object sandboxes is how many are alive. Looked up twice a minute.", "object"),

		progressDropped: f.counter("progress_dropped_total", "Progress events not published, by reason (full, failed, malformed).", "reason"),
		appendsLost:     f.counter("log_appends_lost_total", "Appends that came after a call's result and were refused by the log, by event.", "event"),
		resultsDropped:  f.counter("results_dropped_total", "Results that lost to an earlier result of the same call.").WithLabelValues(),

		httpRequests: f.counter("http_requests_total", "Requests answered, by door, route pattern, method and status code.", "door", "route", "method", "code"),
		httpDuration: f.histogram("http_request_duration_seconds", "Time until a request was answered in full, by door and route pattern.", httpBuckets, "door", "route"),
		httpStreams:  f.gauge("http_streams", "Event streams that are open, by door.", "door"),

		egress:      f.counter("egress_connections_total", "Connections of tools, by verdict (connected, denied, failed) and reason (not_allowed, address, limit, name, failed; empty for none).", "verdict", "reason"),
		egressBytes: f.counter("egress_bytes_total", "Bytes of tools' connections, by direction (sent, received).", "direction"),

		blobs:     f.counter("blobs_total", "Blobs, by operation (put, get).", "operation"),
		blobBytes: f.counter("blob_bytes_total", "Bytes of blobs moved, by operation (put, get).", "operation"),

		catalogTools:  f.gauge("catalog_tools", "Tools that this process serves, by source (file, bucket).", "source"),
		catalogLoaded: f.gauge("catalog_last_load_success_timestamp_seconds", "When the tool files and the fleet's bucket were last read without a fault.").WithLabelValues(),
		catalogFailed: f.counter("catalog_load_failures_total", "Readings of the tool files or of the fleet's bucket that found a fault, by source (file, bucket).", "source"),

		tools: newBounded(maxTools), tenants: newBounded(maxTenants), kinds: newBounded(64), names: newBounded(256),
	}
	version, revision, goVersion := build()
	f.gauge("build_info", "The build that runs; always 1.", "version", "revision", "goversion").WithLabelValues(version, revision, goVersion).Set(1)
	return m
}

// family registers what it makes, so that no metric is made and forgotten.
type family struct{ reg prometheus.Registerer }

const namespace = "toolfleet"

func (f family) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.reg.MustRegister(v)
	return v
}

func (f family) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.reg.MustRegister(v)
	return v
}

// histogram has the buckets given, which every Prometheus can read, and native ones
// beside them, within 10 % of any value, for those that ask for them.
func (f family) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
	f.reg.MustRegister(v)
	return v
}

// build reads what the Go tool stamped into the binary; "unknown" stands for
// what it did not.
func build() (version, revision, goVersion string) {
	version, revision, goVersion = "unknown", "unknown", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision, goVersion
	}
	goVersion = info.GoVersion
	if v := info.Main.Version; v != "" {
		version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision, goVersion
}

// UnknownTool is the tool label of calls to a tool that the catalogue does not
// have. The name that such a call brought is raw input and never a label.
const UnknownTool = "_unknown"

// CallAdmitted counts a call that was taken. tool is the name of a tool of the
// catalogue, or "" when there is no such tool.
func (m *Metrics) CallAdmitted(tool string) {
	if m == nil {
		return
	}
	m.admitted.WithLabelValues(m.tool(tool)).Inc()
}

// Ended says how one call ended and where its time went.
type Ended struct {
	// Tool is the name of a tool of the catalogue, or "" for a call to a tool
	// that is not there.
	Tool string
	// Tenant is whose call it was.
	Tenant string
	// Kind is the kind of an error result, "" for success; Status is where
	// the call stands. Both are from the closed table in package call.
	Kind, Status string
	// Queue is from admission to the claim, Start from the claim to the start
	// of the tool, Run from there to its end, Publish until the log had taken the
	// result. Zero is a step that did not happen; it is not observed.
	Queue, Start, Run, Publish time.Duration
	// Total is from admission to the result. It is observed always, so that
	// the histogram's count is the number of calls.
	Total time.Duration
	// Stdout and Stderr are how many bytes the tool wrote, kept or not, and
	// Truncated names the streams that lost some.
	Stdout, Stderr int64
	Truncated      []string
}

// CallEnded counts a call's end. Only who won the call's result calls it, so
// that a call counts once however many tried to end it.
func (m *Metrics) CallEnded(e Ended) {
	if m == nil {
		return
	}
	m.ended.WithLabelValues(m.tool(e.Tool), m.kinds.value(e.Kind), m.kinds.value(e.Status)).Inc()
	m.tenantEnded.WithLabelValues(m.tenants.value(e.Tenant), m.kinds.value(e.Status)).Inc()
	if e.Run > 0 {
		m.toolRun.WithLabelValues(m.tool(e.Tool)).Add(e.Run.Seconds())
		m.tenantRun.WithLabelValues(m.tenants.value(e.Tenant)).Add(e.Run.Seconds())
	}
	m.output.WithLabelValues("stdout").Add(float64(max(0, e.Stdout)))
	m.output.WithLabelValues("stderr").Add(float64(max(0, e.Stderr)))
	for _, stream := range e.Truncated {
		m.truncated.WithLabelValues(m.kinds.value(stream)).Inc()
	}
	for _, s := range [...]struct {
		name string
		took time.Duration
	}{{"queue", e.Queue}, {"start", e.Start}, {"run", e.Run}, {"publish", e.Publish}} {
		if s.took > 0 {
			m.duration.WithLabelValues(s.name).Observe(s.took.Seconds())
		}
	}
	m.duration.WithLabelValues("total").Observe(max(0, e.Total).Seconds())
}

// LetterFiled counts a call that ended by a fault of the fleet's own and is kept
// as a dead letter.
func (m *Metrics) LetterFiled(tool, kind string) {
	if m == nil {
		return
	}
	m.lettersFiled.WithLabelValues(m.tool(tool), m.kinds.value(kind)).Inc()
}

// SetDeadLetters says how many dead letters there are.
func (m *Metrics) SetDeadLetters(n int) {
	if m == nil {
		return
	}
	m.letters.Set(float64(n))
}

func (m *Metrics) tool(name string) string {
	if name == "" {
		return UnknownTool
	}
	return m.tools.value(name)
}

// SetQueue says how many jobs of a class are ready for a slot and how many are
// being worked on.
func (m *Metrics) SetQueue(class string, ready, inFlight int) {
	if m == nil {
		return
	}
	class = m.names.value(class)
	m.queueJobs.WithLabelValues(class, "ready").Set(float64(ready))
	m.queueJobs.WithLabelValues(class, "in_flight").Set(float64(inFlight))
}

// SetWaiting says how many jobs of a class wait for their turn. The process that
// schedules says so; one that does no more says 0.
func (m *Metrics) SetWaiting(class string, n int) {
	if m == nil {
		return
	}
	m.queueJobs.WithLabelValues(m.names.value(class), "waiting").Set(float64(n))
}

// Delivery counts a delivery that a worker is done with. outcome is "ack",
// "retry" or "abandoned", the last for one whose handler ended it neither way.
func (m *Metrics) Delivery(outcome string) {
	if m == nil {
		return
	}
	m.deliveries.WithLabelValues(m.kinds.value(outcome)).Inc()
}

// ConsumerRebuilt counts a consumer that had work, delivered none, and was
// made anew.
func (m *Metrics) ConsumerRebuilt() {
	if m == nil {
		return
	}
	m.rebuilds.Inc()
}

// JobsAdopted counts jobs that the server's consumer had lost and that were
// queued again.
func (m *Metrics) JobsAdopted(n int) {
	if m == nil {
		return
	}
	m.adopted.Add(float64(n))
}

// SetSlots says how many slots this worker has and how many are in use.
func (m *Metrics) SetSlots(total, busy int) {
	if m == nil {
		return
	}
	m.slots.Set(float64(total))
	m.slotsBusy.Set(float64(busy))
}

// Sandboxes counts the sandboxes of one runtime by what they are doing.
type Sandboxes struct{ Starting, Warm, Running, Closing int }

// SetSandboxes says what this worker's sandboxes of a runtime are doing. It is
// a whole picture each time and not steps up and down, so that a forgotten
// step cannot make a gauge drift.
func (m *Metrics) SetSandboxes(runtime string, s Sandboxes) {
	if m == nil {
		return
	}
	runtime = m.names.value(runtime)
	m.sandboxes.WithLabelValues(runtime, "starting").Set(float64(s.Starting))
	m.sandboxes.WithLabelValues(runtime, "warm").Set(float64(s.Warm))
	m.sandboxes.WithLabelValues(runtime, "running").Set(float64(s.Running))
	m.sandboxes.WithLabelValues(runtime, "closing").Set(float64(s.Closing))
}

// SandboxStarted observes how long a call waited for its sandbox. warm says
// that it came from the pool.
func (m *Metrics) SandboxStarted(runtime string, warm bool, took time.Duration) {
	if m == nil {
		return
	}
	temperature := "cold"
	if warm {
		temperature = "warm"
	}
	m.sandboxStart.WithLabelValues(m.names.value(runtime), temperature).Observe(max(0, took).Seconds())
}

// SandboxFailed counts a sandbox that failed for a reason of ours.
func (m *Metrics) SandboxFailed(runtime string) {
	if m == nil {
		return
	}
	m.sandboxFailures.WithLabelValues(m.names.value(runtime)).Inc()
}

// SandboxesSwept counts sandboxes that a dead worker left and the sweep removed.
func (m *Metrics) SandboxesSwept(runtime string, n int) {
	if m == nil || n <= 0 {
		return
	}
	m.sandboxesSwept.WithLabelValues(m.names.value(runtime)).Add(float64(n))
}

// SetPool says how many sandboxes of a kind wait in the pool, and how many
// should.
func (m *Metrics) SetPool(runtime, isolation string, warm, target int) {
	if m == nil {
		return
	}
	runtime, isolation = m.names.value(runtime), m.kinds.value(isolation)
	m.poolWarm.WithLabelValues(runtime, isolation).Set(float64(warm))
	m.poolTarget.WithLabelValues(runtime, isolation).Set(float64(target))
}

// PoolGet counts a sandbox that a call asked the pool for. A miss is one that
// had to be started, also when that failed.
func (m *Metrics) PoolGet(runtime, isolation string, hit bool) {
	if m == nil {
		return
	}
	outcome := "miss"
	if hit {
		outcome = "hit"
	}
	m.poolGets.WithLabelValues(m.names.value(runtime), m.kinds.value(isolation), outcome).Inc()
}

// RefillFailed counts a sandbox that could not be started for the pool.
func (m *Metrics) RefillFailed(runtime, isolation string) {
	if m == nil {
		return
	}
	m.poolFailures.WithLabelValues(m.names.value(runtime), m.kinds.value(isolation)).Inc()
}

// HostObjects counts what there is on the host because of sandboxes, beside the
// sandboxes that are alive. What stays above them for long is a leak.
type HostObjects struct {
	Sandboxes int // alive: starting, warm, with a call, or being removed

	Shims, Containers, Snapshots, Mounts    int
	Cgroups, NetworkNamespaces, Directories int
}

// SetHostObjects takes a whole picture, made at one time.
func (m *Metrics) SetHostObjects(o HostObjects) {
	if m == nil {
		return
	}
	for object, n := range map[string]int{
		"sandboxes": o.Sandboxes, "shims": o.Shims, "containers": o.Containers, "snapshots": o.Snapshots,
		"mounts": o.Mounts, "cgroups": o.Cgroups, "network_namespaces": o.NetworkNamespaces, "directories": o.Directories,
	} {
		m.hostObjects.WithLabelValues(object).Set(float64(n))
	}
}

// ProgressDropped counts a progress event that was not published. reason is
// "full" (the log is), "failed" (the server is away) or "malformed".
func (m *Metrics) ProgressDropped(reason string) {
	if m == nil {
		return
	}
	m.progressDropped.WithLabelValues(m.kinds.value(reason)).Inc()
}

// AppendLost counts an append that the log refused because the call has its
// result. event is the kind of log entry, such as "progress" or "claim".
func (m *Metrics) AppendLost(event string) {
	if m == nil {
		return
	}
	m.appendsLost.WithLabelValues(m.kinds.value(event)).Inc()
}

// ResultDropped counts a result that lost to an earlier one.
func (m *Metrics) ResultDropped() {
	if m == nil {
		return
	}
	m.resultsDropped.Inc()
}

// HTTPRequest counts a request that was answered. route is the pattern that
// matched ("/v1/calls/{id}"), never the path; "" when none did.
func (m *Metrics) HTTPRequest(door, route, method string, code int, took time.Duration) {
	if m == nil {
		return
	}
	door, route = m.names.value(door), m.names.value(route)
	m.httpRequests.WithLabelValues(door, route, verb(method), status(code)).Inc()
	m.httpDuration.WithLabelValues(door, route).Observe(max(0, took).Seconds())
}

// HTTPStreams adds n, which may be negative, to the event streams a door has
// open.
func (m *Metrics) HTTPStreams(door string, n int) {
	if m == nil {
		return
	}
	m.httpStreams.WithLabelValues(m.names.value(door)).Add(float64(n))
}

// verb keeps a method that a client made up out of the labels.
func verb(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return method
	}
	return other
}

func status(code int) string {
	if code < 100 || code > 599 {
		return other
	}
	return strconv.Itoa(code)
}

// BlobPut counts a blob that was written, with its size in bytes.
func (m *Metrics) BlobPut(bytes int64) { m.blob("put", bytes) }

// BlobGot counts a blob that was read, with the bytes that were sent.
func (m *Metrics) BlobGot(bytes int64) { m.blob("get", bytes) }

func (m *Metrics) blob(operation string, bytes int64) {
	if m == nil {
		return
	}
	m.blobs.WithLabelValues(operation).Inc()
	m.blobBytes.WithLabelValues(operation).Add(float64(max(0, bytes)))
}

// SetCatalog tells how many tools of a source ("file", "bucket") are served.
func (m *Metrics) SetCatalog(source string, tools int) {
	if m == nil {
		return
	}
	m.catalogTools.WithLabelValues(m.kinds.value(source)).Set(float64(tools))
}

// CatalogLoaded notes that all sources of the catalogue were read without a
// fault.
func (m *Metrics) CatalogLoaded(at time.Time) {
	if m == nil {
		return
	}
	m.catalogLoaded.Set(float64(at.UnixMilli()) / 1000)
}

// CatalogFailed counts a reading of a source that found a fault.
func (m *Metrics) CatalogFailed(source string) {
	if m == nil {
		return
	}
	m.catalogFailed.WithLabelValues(m.kinds.value(source)).Inc()
}

// Egress counts a connection of a tool that has ended or was refused, with the
// bytes that the tool sent and received.
func (m *Metrics) Egress(verdict, reason string, sent, received int64) {
	if m == nil {
		return
	}
	m.egress.WithLabelValues(m.kinds.value(verdict), m.kinds.value(reason)).Inc()
	m.egressBytes.WithLabelValues("sent").Add(float64(max(0, sent)))
	m.egressBytes.WithLabelValues("received").Add(float64(max(0, received)))
}
