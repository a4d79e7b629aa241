package metrics

import (
	"strconv"
	"time"
)

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
