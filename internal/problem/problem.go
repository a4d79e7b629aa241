// Package problem writes RFC 9457 problem documents, the one shape in which
// every door of the HTTP server says what is wrong with a request. A call that
// failed is none: it was answered.
package problem

import (
	"encoding/json"
	"net/http"
)

// Document is a problem document. Its members stand in the order of the RFC's
// examples, which is also that of the documents that huma writes.
type Document struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Write answers with a document of the given status. The detail is for the
// client: a sentence that says what to do, and nothing of our insides.
func Write(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(Document{Title: http.StatusText(status), Status: status, Detail: detail})
	if err != nil {
		body = []byte("{}") // cannot be: strings and a number
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client is gone, and there is nobody to tell
}
