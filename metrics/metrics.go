package metrics

import (
	"runtime/debug"
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
	workersLost prometheus.Counter
	nats        prometheus.Gauge
	containerd  *prometheus.GaugeVec // of workers only: no series is not 0
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

	spansDropped prometheus.Counter

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
		workersLost: f.counter("workers_lost_total", "Workers that stopped beating without signing off. Every dispatcher counts the same.").WithLabelValues(),
		nats:        f.gauge("nats_connected", "Whether this process is connected to a NATS server: 1 or 0.").WithLabelValues(),
		containerd:  f.gauge("containerd_connected", "Whether this worker's containerd answered when it was last asked, every two seconds: 1 or 0."),
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

		spansDropped: f.counter("trace_spans_dropped_total", "Spans that the collector of traces did not get: it took nothing, or more came than could wait for it.").WithLabelValues(),

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
